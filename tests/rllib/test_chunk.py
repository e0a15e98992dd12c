"""Chunks: carry across steps, and shares of their copies."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.algorithms.mappo.update import evaluate, minibatches, prepare_rollout
from rl_openness.envs.base import PackedObs
from rl_openness.envs.draws import child_seeds
from rl_openness.rllib.chunk import RolloutChunk, join_steps
from rl_openness.rllib.sampler import Sampler
from tests.algorithms.worlds import MotleyEnv
from tests.nn.builders import HIDDEN, MEMORIES, close, equal, network, several

COPIES = 6
NETWORKS = {"mlp": network(), **{name: network(**settings) for name, settings in MEMORIES.items()}}


def collect(name: str, steps: int, window: int, *, see: float | None = None, skip: int = 0) -> RolloutChunk:
    sampler = Sampler(MotleyEnv(COPIES, see=see), window=window)
    sampler.restart(child_seeds(5, count=COPIES))
    if skip:
        sampler.collect(NETWORKS[name].actor, skip)
    return sampler.collect(NETWORKS[name].actor, steps)


SHARED = collect("lstm-hold", 9, 4, see=0.5)


def same_obs(left: PackedObs, right: PackedObs, *, carry: bool = True) -> None:
    for field in fields(left):
        if field.name != "carry" or carry:
            equal(getattr(left, field.name), getattr(right, field.name))


# Joining steps


@pytest.mark.parametrize("skip", [0, 4])
def test_carry_names_the_same_member_one_step_earlier(skip: int) -> None:
    chunk = collect("mlp", 20, 20, skip=skip)
    obs, copy = chunk.obs, chunk.obs.agent_copy
    equal(obs.carry[copy < COPIES], np.full((copy < COPIES).sum(), -1))
    old = obs.carry >= 0
    equal(obs.agent_id[obs.carry[old]], obs.agent_id[old])
    equal(copy[obs.carry[old]], copy[old] - COPIES)
    ended = (chunk.terminated | chunk.truncated).ravel()
    assert not ended[copy[obs.carry[old]]].any()
    # and everyone who was there before, in the same episode, is carried
    there = {(int(s), int(i)) for s, i in zip(copy, obs.agent_id, strict=True)}
    for row in np.flatnonzero((obs.carry < 0) & (copy >= COPIES)):
        before = copy[row] - COPIES
        assert ended[before] or (before, obs.agent_id[row]) not in there
    assert (old & ~obs.present).any()


def test_joining_one_step_and_steps_without_members() -> None:
    obs = MotleyEnv(3).observe()
    same_obs(join_steps([obs]), obs)
    nobody = replace(
        obs.select(np.array([0])),
        **{name: getattr(obs, name)[:0] for name in ("agent_rows", "present", "carry", "agent_id")},
        **{name: getattr(obs, name)[:0] for name in ("pair_agent", "pair_task", "pair_rows", "task_rows")},
        agent_ptr=np.zeros(2, dtype=np.int64),
        task_ptr=np.zeros(2, dtype=np.int64),
    )
    one = replace(
        nobody,
        agent_rows=obs.agent_rows[:1],
        present=np.array([True]),
        carry=np.array([-1]),
        agent_id=np.array([4]),
        agent_ptr=np.array([0, 1]),
    )
    stays = replace(one, carry=np.array([0]))
    joined = join_steps([nobody, one, stays, nobody, one, stays])
    equal(joined.carry, [-1, 0, -1, 2])
    equal(joined.agent_ptr, [0, 0, 1, 2, 2, 3, 4])


def test_sizes() -> None:
    chunk = collect("mlp", 7, 20)
    assert len(chunk) == chunk.env_steps() == 7 * COPIES == chunk.obs.num_copies
    assert chunk.agent_steps() == chunk.obs.present.sum()


# Shares


def continued(chunk: RolloutChunk, copies: np.ndarray | None = None) -> list[int]:
    """Identities of the members that `boot.carry` names in the last step, -1 = new; of all copies or of some."""
    first = chunk.obs.agent_ptr[(chunk.num_steps - 1) * chunk.num_copies]
    boot = chunk.boot if copies is None else chunk.boot.select(copies)
    return [int(chunk.obs.agent_id[first + row]) if row >= 0 else -1 for row in boot.carry]


def assert_share(chunk: RolloutChunk, share: RolloutChunk, copies: np.ndarray) -> None:
    """`share` holds what `chunk` says about `copies`."""
    assert share.num_copies == len(copies)
    assert share.num_steps == chunk.num_steps
    assert share.window == chunk.window
    for name in ("team_reward", "terminated", "truncated"):
        equal(getattr(share, name), getattr(chunk, name)[:, copies])
    same_obs(share.boot, chunk.boot.select(copies), carry=False)
    equal(continued(share), continued(chunk, copies))
    finals = {int(step): row for row, step in enumerate(chunk.final_step)}
    share_finals = {int(step): row for row, step in enumerate(share.final_step)}
    memory_row = share_memory_row = 0
    matched = 0
    for t in range(chunk.num_steps):
        for b in range(chunk.num_copies):
            step = t * chunk.num_copies + b
            rows = slice(chunk.obs.agent_ptr[step], chunk.obs.agent_ptr[step + 1])
            count = rows.stop - rows.start
            if b in copies:
                mine = t * len(copies) + int(np.flatnonzero(copies == b)[0])
                own = slice(share.obs.agent_ptr[mine], share.obs.agent_ptr[mine + 1])
                same_obs(share.obs.select(np.array([mine])), chunk.obs.select(np.array([step])), carry=False)
                equal(share.choices[own], chunk.choices[rows])
                equal(share.log_probs[own], chunk.log_probs[rows])
                before = chunk.obs.carry[rows]
                offset = chunk.obs.agent_ptr[step - chunk.num_copies] if t else 0
                own_offset = share.obs.agent_ptr[mine - len(copies)] if t else 0
                equal(share.obs.carry[own], np.where(before >= 0, before - offset + own_offset, -1))
                assert (mine in share_finals) == (step in finals)
                if step in finals:
                    last = chunk.final.select(np.array([finals[step]]))
                    same_obs(share.final.select(np.array([share_finals[mine]])), last, carry=False)
                    matched += 1
                if t % chunk.window == 0 and chunk.memory is not None:
                    stored = slice(share_memory_row, share_memory_row + count)
                    equal(share.memory[stored], chunk.memory[memory_row : memory_row + count])
                    share_memory_row += count
            if t % chunk.window == 0:
                memory_row += count
    assert matched == len(share.final_step)
    if chunk.memory is not None:
        assert share_memory_row == len(share.memory)
        assert memory_row == len(chunk.memory)
    else:
        assert share.memory is None


@pytest.mark.parametrize(
    ("name", "window", "see"),
    [("mlp", 20, None), ("mlp", 20, 0.5), ("lstm-hold", 20, None), ("lstm-hold", 4, 0.5), ("lstm-update", 1, None)],
)
@pytest.mark.parametrize("shares", [1, 4])
def test_shares_cover_everything_once(name: str, window: int, shares: int, see: float | None) -> None:
    chunk = collect(name, 9, window, see=see, skip=3)
    assert len(chunk.final_step) > 2
    parts = np.array_split(np.arange(COPIES), shares)
    for copies in parts:
        assert_share(chunk, chunk.select_copies(copies), copies)
    assert sum(len(chunk.select_copies(copies)) for copies in parts) == len(chunk)


@several
@given(picks=st.sets(st.integers(0, COPIES - 1), min_size=1), again=st.randoms(use_true_random=False))
def test_shares_of_any_copies_and_of_shares(picks: set[int], again: object) -> None:
    chunk = SHARED
    copies = np.array(sorted(picks))
    share = chunk.select_copies(copies)
    assert_share(chunk, share, copies)
    half = np.array(sorted(again.sample(range(len(copies)), (len(copies) + 1) // 2)))
    assert_share(chunk, share.select_copies(half), copies[half])


def test_a_chunk_without_truncations() -> None:
    chunk = collect("mlp", 4, 20)
    plain = replace(chunk, final=None, final_step=np.empty(0, dtype=np.int64))
    share = plain.select_copies(np.array([1, 3]))
    assert share.final is None
    assert len(share.final_step) == 0


@pytest.mark.parametrize(("name", "window"), [("mlp", 20), ("lstm-update", 4), ("lstm-pointer-hold", 20)])
def test_what_a_learner_derives_from_its_share(name: str, window: int) -> None:
    net = NETWORKS[name]
    settings = PlatoSettings(
        hidden=HIDDEN, num_epochs=1, minibatch_size=8, max_seq_len=window, **MEMORIES.get(name, {})
    )
    chunks = [collect(name, 9, window, skip=3), collect(name, 5, window)]
    whole = prepare_rollout(chunks, net, settings, torch.float64).whole
    place = np.arange(sum(len(chunk) for chunk in chunks))
    step_of = np.repeat(place, np.diff(whole.actor.step_ptr))
    for copies in np.array_split(np.arange(COPIES), 4):
        rollout = prepare_rollout([c.select_copies(copies) for c in chunks], net, settings, torch.float64)
        share, mine = rollout.whole, np.isin(place % COPIES, copies)
        close(share.target, whole.target[mine])
        close(share.old_value, whole.old_value[mine])
        equal(share.old_log_prob, whole.old_log_prob[mine[step_of]])
        for batch in minibatches(rollout, settings, np.random.default_rng(0)):
            close(evaluate(net, batch).log_prob, batch.old_log_prob, atol=1e-6)
