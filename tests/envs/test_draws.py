"""The counter-based numbers are uniform, independent of each other, and the same in every form."""

import numpy as np
import pytest

from rl_openness.envs.draws import AGENT, FIELD, DecisionDraws, child_seeds, step_key, step_keys, uniform
from rl_openness.envs.wildfire import make_wildfire

COUNT = 200_000
MANY = np.arange(COUNT, dtype=np.int64)
ZERO = np.zeros(COUNT, dtype=np.int64)


def over_members(seed: int = 5) -> np.ndarray:
    return DecisionDraws(step_keys(np.array([seed]), np.array([0]), np.array([0]))).uniform(ZERO, MANY)


def over_options() -> np.ndarray:
    return DecisionDraws(step_keys(np.array([5]), np.array([0]), np.array([0]))).uniform(ZERO, ZERO, MANY)


def over_steps() -> np.ndarray:
    return DecisionDraws(step_keys(ZERO + 5, ZERO, MANY)).uniform(MANY, ZERO)


def over_episodes() -> np.ndarray:
    return DecisionDraws(step_keys(ZERO + 5, MANY, ZERO)).uniform(MANY, ZERO)


def over_seeds() -> np.ndarray:
    return DecisionDraws(step_keys(MANY, ZERO, ZERO)).uniform(MANY, ZERO)


def of_the_environment(stream: int, index: int = 0) -> np.ndarray:
    """The numbers that consecutive seeds give an environment's own stream."""
    plain = getattr(uniform, "py_func", uniform)
    return np.asarray(
        plain(step_keys(MANY, ZERO, ZERO), np.full(COUNT, stream, np.uint64), np.full(COUNT, index, np.uint64))
    )


NUMBERS = {
    "members": over_members,
    "options": over_options,
    "steps": over_steps,
    "episodes": over_episodes,
    "seeds": over_seeds,
    "field": lambda: of_the_environment(int(FIELD)),
    "agents": lambda: of_the_environment(int(AGENT)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_uniform(name: str) -> None:
    numbers = NUMBERS[name]()
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    bins = 256
    for digits in (numbers, numbers * 2**20 % 1.0):  # leading and trailing bits
        observed = np.bincount((digits * bins).astype(int), minlength=bins)
        chi_square = ((observed - COUNT / bins) ** 2 / (COUNT / bins)).sum()
        assert abs(chi_square - (bins - 1)) < 5 * np.sqrt(2 * (bins - 1))
    assert len(np.unique(numbers)) == COUNT


def correlation(left: np.ndarray, right: np.ndarray) -> float:
    """In standard errors of independent numbers."""
    return abs(float(np.corrcoef(left, right)[0, 1])) * np.sqrt(len(left))


@pytest.mark.parametrize("name", NUMBERS)
def test_neighbours_are_uncorrelated(name: str) -> None:
    numbers = NUMBERS[name]()
    for lag in (1, 2, 3, 64):
        assert correlation(numbers[:-lag], numbers[lag:]) < 5
        assert correlation((numbers[:-lag] - 0.5) ** 2, (numbers[lag:] - 0.5) ** 2) < 5


def test_streams_indices_and_policies_are_uncorrelated() -> None:
    blocks = [of_the_environment(stream, index) for stream in range(1, 9) for index in range(3)]
    blocks += [DecisionDraws(step_keys(MANY, ZERO, ZERO)).uniform(MANY, ZERO + agent, agent) for agent in range(3)]
    table = np.abs(np.corrcoef(blocks)) * np.sqrt(COUNT)
    assert table[~np.eye(len(blocks), dtype=bool)].max() < 5


def test_kernels_and_arrays_give_the_same_numbers() -> None:
    seeds, episodes, steps = np.array([0, 7, 2**62]), np.array([0, 3, 2**40]), np.array([0, 99, 5])
    keys = step_keys(seeds, episodes, steps)
    plain = getattr(uniform, "py_func", uniform)
    with np.errstate(over="ignore"):  # scalars wrap too, but NumPy reports it when the JIT is off
        for row in range(3):
            key = np.uint64(step_key(np.uint64(seeds[row]), np.uint64(episodes[row]), np.uint64(steps[row])))
            assert key == keys[row]
            for stream, index in ((1, 0), (4, 17), (8, 2**33)):
                scalar = uniform(key, np.uint64(stream), np.uint64(index))
                array = plain(keys, np.full(3, stream, np.uint64), np.full(3, index, np.uint64))
                assert scalar == array[row]


def test_the_environment_uses_these_numbers() -> None:
    env = make_wildfire(2)
    env.reset([11, 12])
    np.testing.assert_array_equal(
        env.decision_keys(), step_keys(np.array([11, 12]), np.zeros(2, int), np.zeros(2, int))
    )
    env.step(np.full(6, -1))
    np.testing.assert_array_equal(env.draws().keys, step_keys(np.array([11, 12]), np.zeros(2, int), np.ones(2, int)))


def test_options_broadcast() -> None:
    draws = DecisionDraws(step_keys(np.array([1, 2]), np.zeros(2, int), np.zeros(2, int)))
    copy, agent = np.array([0, 0, 1]), np.array([0, 1, 0])
    for option in (0, 1, 2, 10**12):
        np.testing.assert_array_equal(
            draws.uniform(copy, agent, option), draws.uniform(copy, agent, np.full(3, option))
        )
    assert draws.uniform(copy[:0], agent[:0]).shape == (0,)


def test_gumbel_noise() -> None:
    noise = DecisionDraws(step_keys(MANY, ZERO, ZERO)).gumbel(MANY, ZERO)
    assert np.isfinite(noise).all()
    assert abs(noise.mean() - np.euler_gamma) < 5 * np.pi / np.sqrt(6 * COUNT)


def test_child_seeds_are_distinct_and_repeatable() -> None:
    families = [
        child_seeds(seed, *path, count=20_000) for seed in (0, 1, 2**63 - 1) for path in ((), (0,), (1,), (0, 0))
    ]
    every = np.concatenate(families)
    assert every.dtype == np.int64
    assert every.min() >= 0
    assert len(np.unique(every)) == len(every)
    np.testing.assert_array_equal(child_seeds(1, 1, count=5), child_seeds(1, 1, count=20_000)[:5])


def test_fresh_draws_do_not_repeat() -> None:
    assert (DecisionDraws.fresh(4).keys != DecisionDraws.fresh(4).keys).all()
