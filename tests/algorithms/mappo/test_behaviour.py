"""T11, departure and return, and T12: the same episode whatever stands beside it in the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_openness.algorithms.mappo.networks.plato import PlatoActor, PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.envs.base import OpenVectorEnv, PackedObs
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.wildfire import make_wildfire
from tests.algorithms.worlds import MotleyEnv
from tests.nn.builders import ACTORS, HIDDEN, MEMORIES, close, draws, equal, network, random_obs, sent_away, tensors

AGENTS, GONE = 4, 2


def rollout(
    actor: PlatoActor, present: list[list[int]]
) -> tuple[list[torch.Tensor], list[np.ndarray], list[PackedObs]]:
    """Memories [M, .], choices and observations of a team of which only the given agents are present at each step."""
    memory, memories, choices, seen = None, [], [], []
    for t, here in enumerate(present):
        obs = random_obs(np.random.default_rng(t), [(AGENTS, 3)], present=1.0, pairs=1.0)
        obs = replace(obs, carry=np.full(AGENTS, -1) if t == 0 else np.arange(AGENTS))
        obs = sent_away(obs, np.setdiff1d(np.arange(AGENTS), here))
        decision = actor.act(obs, draws(obs, t), memory, explore=True)
        memory = decision.memory
        memories.append(memory)
        choices.append(decision.choices)
        seen.append(obs)
    return memories, choices, seen


EVERYBODY = list(range(AGENTS))
OTHERS = [i for i in EVERYBODY if i != GONE]
LEAVES = [EVERYBODY, EVERYBODY, OTHERS, OTHERS, OTHERS, EVERYBODY, EVERYBODY]


@pytest.mark.parametrize("query", ["stats", "agent_pointer"])
def test_t11_hold_resumes_where_it_was(query: str) -> None:
    actor = network(encoder="lstm", absent_state="hold", query=query).actor
    memories, choices, _ = rollout(actor, LEAVES)
    for t in (2, 3, 4):
        equal(memories[t][GONE], memories[1][GONE])
        assert not torch.equal(memories[t][OTHERS], memories[t - 1][OTHERS])
        assert choices[t][GONE] == -1
    assert not torch.equal(memories[5][GONE], memories[1][GONE])
    # the return is as if the time away had not been: skip those steps
    obs = random_obs(np.random.default_rng(5), [(AGENTS, 3)], present=1.0, pairs=1.0)
    obs = replace(obs, carry=np.arange(AGENTS))
    resumed = actor.act(obs, draws(obs, 5), memories[1], explore=True)
    equal(resumed.memory[GONE], memories[5][GONE])
    assert resumed.choices[GONE] == choices[5][GONE]


@pytest.mark.parametrize("query", ["stats", "agent_pointer"])
def test_t11_reset_returns_like_a_new_agent(query: str) -> None:
    actor = network(encoder="lstm", absent_state="reset", query=query).actor
    memories, choices, _ = rollout(actor, LEAVES)
    for t in (2, 3, 4):
        equal(memories[t][GONE], np.zeros(2 * HIDDEN))
    obs = random_obs(np.random.default_rng(5), [(AGENTS, 3)], present=1.0, pairs=1.0)
    carry = np.arange(AGENTS)
    carry[GONE] = -1
    fresh = actor.act(replace(obs, carry=carry), draws(obs, 5), memories[4], explore=True)
    equal(fresh.memory, memories[5])
    equal(fresh.choices, choices[5])


@pytest.mark.parametrize("query", ["stats", "agent_pointer"])
def test_t11_update_goes_on_thinking(query: str) -> None:
    actor = network(encoder="lstm", absent_state="update", query=query).actor
    memories, choices, seen = rollout(actor, LEAVES)
    for t in (2, 3, 4):
        assert not torch.equal(memories[t][GONE], memories[t - 1][GONE])
        assert choices[t][GONE] == -1
        # by hand: the cell on the query of the away member, from its own state
        table = actor.query(actor.features(tensors(seen[t])))
        after = actor.memory(table.rows[GONE : GONE + 1], memories[t - 1][GONE : GONE + 1], torch.tensor([False]))[1]
        close(after[0], memories[t][GONE])


def test_memory_is_an_lstm_whose_hidden_state_becomes_the_query() -> None:
    memory = network(encoder="lstm").actor.memory
    reference = nn.LSTM(HIDDEN, HIDDEN).double()
    with torch.no_grad():
        for name, parameter in memory.cell.named_parameters():
            getattr(reference, f"{name}_l0").copy_(parameter)
    rows = torch.randn(6, 3, HIDDEN, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hidden, (last, cell) = reference(rows)
    state, here = torch.zeros(3, 2 * HIDDEN, dtype=torch.float64), torch.ones(3, dtype=torch.bool)
    for step, expected in zip(rows, hidden, strict=True):
        query, state = memory(step, state, here)
        close(query, memory.out(expected))
    close(state, torch.cat([last[0], cell[0]], dim=1))


@pytest.mark.parametrize("name", MEMORIES)
def test_t11_the_state_follows_the_member_not_the_row(name: str) -> None:
    """Rows before a member vanish (others left for good, another copy began anew), its memory comes along."""
    actor = network(**MEMORIES[name]).actor
    before = random_obs(np.random.default_rng(0), [(3, 2), (4, 2)], present=1.0)
    memory = actor.act(before, draws(before), explore=True).memory
    now = random_obs(np.random.default_rng(1), [(1, 2), (3, 2)], present=1.0)
    now = replace(now, carry=np.array([-1, 6, 3, -1]))
    decision = actor.act(now, draws(now), memory, explore=True)
    equal(
        decision.memory_in,
        torch.stack([torch.zeros_like(memory[0]), memory[6], memory[3], torch.zeros_like(memory[0])]),
    )


@pytest.mark.parametrize("name", MEMORIES)
def test_t11_present_or_not_a_step_of_the_present_is_the_same(name: str) -> None:
    absent = MEMORIES[name].get("absent_state", "update")
    one = network(**MEMORIES[name])
    for other in {"update", "hold", "reset"} - {absent}:
        two = network(**{**MEMORIES[name], "absent_state": other})
        two.load_state_dict(one.state_dict())
        runs = [rollout(net.actor, [EVERYBODY] * 4) for net in (one, two)]
        for left, right in zip(runs[0][0], runs[1][0], strict=True):
            equal(left, right)


# T12

VARIANTS: dict[str, dict[str, Any]] = {
    name: (ACTORS | MEMORIES)[name]
    for name in ("stats-additive-both", "agent_pointer-dot-both", "strict", "lstm-update", "lstm-pointer-hold")
}


def play(env: OpenVectorEnv, actor: PlatoActor, seeds: np.ndarray, steps: int, *, explore: bool) -> list[list[Any]]:
    """What happened in each copy: choices and rewards of every step."""
    env.reset(seeds)
    memory, log = None, [[] for _ in range(env.num_copies)]
    for _ in range(steps):
        obs = env.observe()
        decision = actor.act(obs, env.draws(), memory, explore=explore)
        result = env.step(decision.choices)
        memory = decision.memory
        for b in range(env.num_copies):
            mine = decision.choices[obs.agent_ptr[b] : obs.agent_ptr[b + 1]].tolist()
            log[b].append((mine, float(result.team_reward[b]), bool(result.terminated[b]), bool(result.truncated[b])))
    return log


def world(which: str, copies: int) -> OpenVectorEnv:
    return MotleyEnv(copies) if which == "motley" else make_wildfire(copies, setup="3x3/S3")


@pytest.mark.parametrize("which", ["motley", "wildfire"])
@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_t12_an_episode_does_not_depend_on_the_batch(name: str, explore: bool, which: str) -> None:
    torch.manual_seed(0)
    env = world(which, 6)
    net = PlatoNetwork(env.spec, PlatoSettings(**{"hidden": 32, **VARIANTS[name]}))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    actor, seeds, steps = net.actor, child_seeds(3, count=6), 15
    together = play(env, actor, seeds, steps, explore=explore)
    assert len({str(log) for log in together}) > 1
    order = np.array([4, 0, 5, 2, 1, 3])
    shuffled = play(world(which, 6), actor, seeds[order], steps, explore=explore)
    assert shuffled == [together[b] for b in order]
    for b in (0, 4):
        assert play(world(which, 1), actor, seeds[[b]], steps, explore=explore) == [together[b]]
    many = np.concatenate([child_seeds(8, count=30), seeds, child_seeds(9, count=20)])
    if which == "wildfire":
        assert play(world(which, 56), actor, many, steps, explore=explore)[30:36] == together


def test_t12_other_seeds_and_other_steps_draw_other_samples() -> None:
    env = MotleyEnv(4)
    env.reset(child_seeds(3, count=4))
    first = env.decision_keys()
    env.step(np.full(len(env.observe().present), -1))
    keys = np.concatenate([first, env.decision_keys()])
    assert len(np.unique(keys)) == len(keys)
