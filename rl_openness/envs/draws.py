"""Counter-based randomness: a draw is a function of (seed, episode, step, stream, index).

There is no generator whose state has to be saved: whatever the batch size, the number of workers or the point of
resumption, the same episode sees the same numbers. The hash is the SplitMix64 finaliser (Steele, Lea and Flood 2014)
over a 64-bit key per (seed, episode, step); every draw adds its stream and index to that key before the final mix.

All functions below work on NumPy arrays in plain Python and on scalars inside Numba kernels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

# Streams. Environments own 1..15; whoever decides owns the rest, so that a policy never reads an environment's numbers.
FIELD, AGENT = np.uint64(1), np.uint64(4)  # Wildfire: 3 field streams, 5 agent streams
POLICY = np.uint64(16)

_STREAM = np.uint64(0x9E3779B97F4A7C15)
_INDEX = np.uint64(0xD1B54A32D192ED03)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53
_POLICY_OFFSET = np.uint64(int(POLICY) * int(_STREAM) % 2**64)  # a product of NumPy scalars would warn of its overflow


@njit(cache=True)
def mix(x):  # type: ignore[no-untyped-def]
    """Bijective 64-bit hash (SplitMix64 finaliser)."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@njit(cache=True)
def fold(key, number):  # type: ignore[no-untyped-def]
    """Key that depends on `key` and one more number (both uint64)."""
    return mix(key ^ mix(number * _STREAM + _INDEX))


@njit(cache=True)
def step_key(seed, episode, step):  # type: ignore[no-untyped-def]
    """Key of one time step of one episode (three uint64)."""
    return fold(fold(mix(seed + _STREAM), episode), step)


@njit(cache=True)
def uniform(key, stream, index):  # type: ignore[no-untyped-def]
    """Number in [0, 1) with 53 random bits for draw `index` of `stream` (all uint64) under a step's key."""
    return (mix(key + stream * _STREAM + index * _INDEX) >> _S11) * _UNIT


def _plain(function: Any) -> Any:
    """The Python body of a kernel, which also takes arrays (a Numba dispatcher or, with the JIT off, itself)."""
    return getattr(function, "py_func", function)


def _mix_array(x: Keys) -> Keys:
    return _plain(mix)(x)  # type: ignore[no-any-return]


def child_seeds(seed: int, *path: int, count: int) -> NDArray[np.int64]:
    """`count` seeds (int64 >= 0) derived from `seed` and a path of numbers, e.g. (worker index,)."""
    with np.errstate(over="ignore"):
        key = np.full(count, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), dtype=np.uint64)
        for number in path:
            key = _fold_array(key, np.full(count, number, dtype=np.uint64))
        key = _fold_array(key, np.arange(count, dtype=np.uint64))
    return (key >> np.uint64(1)).astype(np.int64)


def _fold_array(key: Keys, number: Keys) -> Keys:
    return _mix_array(key ^ _mix_array(number * _STREAM + _INDEX))


def step_keys(seeds: NDArray[np.int64], episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> Keys:
    """`step_key` for arrays [B] -> uint64 [B]."""
    key = _mix_array(seeds.astype(np.uint64) + _STREAM)
    return _fold_array(_fold_array(key, episodes.astype(np.uint64)), steps.astype(np.uint64))


@dataclass(frozen=True)
class DecisionDraws:
    """The random numbers a policy may use for one decision of B copies; `keys` is uint64 [B]."""

    keys: Keys

    @classmethod
    def fresh(cls, num_copies: int) -> DecisionDraws:
        """Unrepeatable numbers, for callers who do not care about reproduction."""
        return cls(np.frombuffer(os.urandom(8 * num_copies), dtype=np.uint64))

    def uniform(
        self, copy: NDArray[np.int64], agent: NDArray[np.int64], option: NDArray[np.int64] | int = 0
    ) -> NDArray[np.float64]:
        """Numbers in [0, 1), one per row: for `option` (any int64 >= 0) of agent `agent` in copy `copy`."""
        key = self.keys[copy] + _POLICY_OFFSET + agent.astype(np.uint64) * _INDEX
        index = np.atleast_1d(option).astype(np.uint64) * _INDEX + _STREAM  # 1-d: scalars warn of overflow
        number: NDArray[np.float64] = (_mix_array(_mix_array(key) + index) >> _S11).astype(np.float64) * _UNIT
        return number

    def gumbel(
        self, copy: NDArray[np.int64], agent: NDArray[np.int64], option: NDArray[np.int64] | int = 0
    ) -> NDArray[np.float64]:
        """Standard Gumbel noise for sampling by argmax(logit + noise); finite for every draw."""
        return -np.log(-np.log(np.maximum(self.uniform(copy, agent, option), 2.0**-60)))
