"""What a decision depends on: properties T1 to T5 of PLATO's specification (section 10), and what is hidden.

With random weights in float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from rl_openness.algorithms.mappo.networks.plato import PlatoActor, PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.envs.base import NO_OP, PackedObs
from rl_openness.envs.wildfire import make_wildfire
from tests.nn.builders import (
    ACTORS,
    AGENT,
    ALL,
    BUSY,
    HIDDEN,
    MEMORIES,
    SEE,
    SEEDS,
    SIZES,
    SPEC,
    TASK,
    actor_inputs,
    carrying,
    close,
    distribution,
    draws,
    equal,
    few,
    gradients,
    memory_of,
    network,
    queries,
    random_obs,
    reorder,
    sent_away,
    several,
    shuffled_within,
    values,
    with_column,
    without_pairs,
    without_tasks,
)

ALL_ACTORS = ACTORS | MEMORIES
POINTERS = {name: s for name, s in ACTORS.items() if s.get("query") == "agent_pointer"}
NETWORKS = {name: network(1, **settings) for name, settings in ALL.items()}


def by_member(obs: PackedObs, actor: PlatoActor, rows: torch.Tensor) -> np.ndarray:
    """Decider rows as [M, .], NaN for members that do not think."""
    member = actor_inputs(actor, obs).member.numpy()
    full = np.full((len(obs.present), *rows.shape[1:]), np.nan)
    full[member] = rows.detach().numpy()
    return full


def seen_by(obs: PackedObs, member: int) -> list[int]:
    """Rows of the present agents that a member observes."""
    copy = obs.agent_copy
    if obs.see_ptr is None:
        seen = np.flatnonzero(copy == copy[member])
    else:
        seen = obs.see_agent[obs.see_ptr[member] : obs.see_ptr[member + 1]]
    return [int(i) for i in seen if obs.present[i]]


# T1, T2: orders


@several
@example(seed=1, sizes=[(8, 5), (3, 2)], see=0.5)
@given(seed=SEEDS, sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), min_size=1, max_size=3), see=SEE)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_t1_the_order_of_agents_is_nothing(
    name: str, seed: int, sizes: list[tuple[int, int]], see: float | None
) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, sizes, see=see)
    memory = memory_of(NETWORKS[name], obs)
    order = shuffled_within(rng, obs.agent_ptr)
    moved, pairs = reorder(obs, agents=order)
    obs, moved = carrying(obs), carrying(moved, order)
    before, after = actor_inputs(actor, obs), actor_inputs(actor, moved)
    close(by_member(moved, actor, after.query_rows.rows), by_member(obs, actor, before.query_rows.rows)[order])
    close(by_member(moved, actor, queries(actor, after)), by_member(obs, actor, queries(actor, before))[order])
    old, new = distribution(actor, obs, memory), distribution(actor, moved, memory)
    close(by_member(moved, actor, new.noop_logits), by_member(obs, actor, old.noop_logits)[order])
    close(new.pair_logits, old.pair_logits[pairs])
    close(new.pair_log_probs, old.pair_log_probs[pairs])
    for explore in (True, False):
        first = actor.act(obs, draws(obs), memory, explore=explore)
        second = actor.act(moved, draws(obs), memory, explore=explore)
        equal(second.choices, first.choices[order])
        if memory is not None:
            close(second.memory, first.memory[torch.from_numpy(order)])


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_t2_the_order_of_tasks_moves_their_logits(name: str, seed: int, sizes: list[tuple[int, int]]) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, sizes)
    moved, pairs = reorder(obs, tasks=shuffled_within(rng, obs.task_ptr))
    old, new = distribution(actor, obs), distribution(actor, moved)
    equal(new.noop_logits, old.noop_logits)
    close(new.pair_logits, old.pair_logits[pairs])
    close(new.noop_log_probs, old.noop_log_probs)


# T3, T4: the distribution over options


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_t3_support_is_what_is_open_and_the_no_op(name: str, seed: int, sizes: list[tuple[int, int]]) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, sizes)
    inputs, dist = actor_inputs(actor, obs), distribution(actor, obs)
    pairs, noop = dist.pair_log_probs.exp().detach().numpy(), dist.noop_log_probs.exp().detach().numpy()
    assert (pairs > 0).all()
    assert (noop > 0).all()
    owner = obs.pair_agent  # of every open pair, in order
    equal(inputs.member[inputs.owner], owner)
    total = np.bincount(owner, pairs, minlength=len(obs.present))[inputs.member] + noop
    close(total, np.ones(len(noop)))
    alone = ~inputs.decides.numpy()
    equal(dist.noop_log_probs[alone], np.zeros(alone.sum()))
    equal(dist.entropy()[alone], np.zeros(alone.sum()))
    close(
        dist.entropy(), -(np.bincount(inputs.owner, pairs * np.log(pairs), minlength=len(noop)) + noop * np.log(noop))
    )
    for explore in (True, False):
        decision = actor.act(obs, draws(obs), explore=explore)
        count = np.diff(obs.pair_ptr)
        assert ((decision.choices >= NO_OP) & (decision.choices < count)).all()
        assert (decision.log_probs[count == 0] == 0.0).all()
        assert (decision.log_probs <= 0.0).all()


@few
@example(seed=1, agents=4, tasks=6)
@given(seed=SEEDS, agents=st.integers(1, 6), tasks=st.integers(2, 8))
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_t4_other_tasks_do_not_matter(name: str, seed: int, agents: int, tasks: int) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, [(agents, tasks)], pairs=0.8)
    gone = rng.random(tasks) < 0.4
    other = with_column(obs, "task_rows", TASK["size"], rng.normal(size=gone.sum()), gone)
    fewer, pairs = without_tasks(obs, gone)
    thinned = without_pairs(obs, gone[obs.pair_task])
    old = distribution(actor, obs)
    owner = obs.pair_agent[pairs]
    rivals = owner[:, None] == owner  # options of one agent

    def ranking(logits: torch.Tensor) -> np.ndarray:
        logits = logits.detach().numpy()
        return np.sign(np.round(logits[:, None] - logits, 9)) * rivals

    lone = by_member(obs, actor, old.noop_log_probs)[obs.pair_agent]
    ratio = old.pair_log_probs.detach().numpy() - lone  # log pi(x) / pi(no-op) fixes all ratios of an agent
    for changed, kept in ((fewer, slice(None)), (thinned, slice(None)), (other, pairs)):
        new = distribution(actor, changed)
        lone = by_member(changed, actor, new.noop_log_probs)[changed.pair_agent]
        close((new.pair_log_probs.detach().numpy() - lone)[kept], ratio[pairs])
        equal(ranking(new.pair_logits[kept]), ranking(old.pair_logits[pairs]))


@pytest.mark.parametrize("settings", [*ACTORS.values(), MEMORIES["lstm-update"]])
@pytest.mark.parametrize("setup", ["3x3/S3", "5x5/S3"])
def test_the_first_policy_is_almost_uniform(settings: dict[str, Any], setup: str) -> None:
    torch.manual_seed(0)
    env = make_wildfire(4, setup=setup)
    actor = PlatoNetwork(env.spec, PlatoSettings(**settings)).actor

    def distance() -> float:
        """Largest difference of a log-probability from the uniform distribution's."""
        dist = distribution(actor, env.observe())
        options = torch.bincount(dist.owner, minlength=len(dist.noop_logits)) + 1
        pairs = dist.pair_log_probs + options.log()[dist.owner]
        return float(torch.cat([pairs, dist.noop_log_probs + options.log()]).detach().abs().max())

    small = distance()
    assert small < 0.02
    with torch.no_grad():  # it is the head's gain that does it
        (actor.scorer.head or actor.scorer.query).weight.mul_(100)
    assert distance() > 20 * small > 0.0


# T5: the agent pointer


@several
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
@pytest.mark.parametrize("name", POINTERS)
def test_t5_attention_covers_the_present_agents_seen(
    name: str, seed: int, sizes: list[tuple[int, int]], see: float | None
) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, sizes, see=see)
    inputs = actor_inputs(actor, obs)
    weight, key, owner = actor.query.attention(inputs)
    query = queries(actor, inputs)
    assert query.shape == (len(inputs.member), HIDDEN)
    assert (weight > 0).all()
    for d, member in enumerate(inputs.member.tolist()):
        mine = owner == d
        assert mine.sum() == len(seen_by(obs, member))
        assert member in seen_by(obs, member)
        close(weight[mine].sum(), 1.0)
        assert (query[d] <= key[mine].max(0).values + 1e-9).all()
        assert (query[d] >= key[mine].min(0).values - 1e-9).all()


@several
@example(seed=1, agents=8)
@given(seed=SEEDS, agents=st.integers(3, 8))
@pytest.mark.parametrize("name", POINTERS)
def test_t5_other_agents_leave_the_ratios(name: str, seed: int, agents: int) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, [(agents, 4)], present=1.0, pairs=0.7)
    gone = rng.choice(agents, size=rng.integers(1, agents), replace=False)
    fewer = sent_away(obs, gone)

    def weights(obs: PackedObs) -> dict[int, np.ndarray]:
        inputs = actor_inputs(actor, obs)
        weight, _, owner = actor.query.attention(inputs)
        return {m: weight[owner == d].detach().numpy() for d, m in enumerate(inputs.member.tolist())}

    before, after = weights(obs), weights(fewer)
    stayed = np.setdiff1d(np.arange(agents), gone)
    for member, weight in after.items():
        close(weight, before[member][stayed] / before[member][stayed].sum())


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_t5_tasks_leave_the_query(name: str, seed: int, sizes: list[tuple[int, int]]) -> None:
    rng, actor = np.random.default_rng(seed), NETWORKS[name].actor
    obs = random_obs(rng, sizes)
    other = replace(obs, task_rows=obs.task_rows + 1.0, pair_rows=obs.pair_rows * 2.0)
    equal(queries(actor, actor_inputs(actor, other)), queries(actor, actor_inputs(actor, obs)))


# What an actor may not know


@few
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
@pytest.mark.parametrize("name", NETWORKS)
def test_columns_for_the_critic_are_hidden_from_actors(
    name: str, seed: int, sizes: list[tuple[int, int]], see: float | None
) -> None:
    rng, net = np.random.default_rng(seed), NETWORKS[name]
    obs = random_obs(rng, sizes, see=see)
    secret = with_column(obs, "agent_rows", AGENT["secret"], rng.normal(size=len(obs.present)))
    fuel = with_column(obs, "task_rows", TASK["fuel"], rng.normal(size=len(obs.task_rows)))
    truth = with_column(obs, "pair_rows", 3, rng.normal(size=len(obs.pair_rows)))
    before = distribution(net.actor, obs)
    for changed in (secret, fuel, truth):
        after = distribution(net.actor, changed)
        equal(after.pair_logits, before.pair_logits)
        equal(after.noop_logits, before.noop_logits)
    equal(values(net, truth), values(net, obs))


@pytest.mark.parametrize("name", NETWORKS)
def test_columns_for_the_critic_reach_it(name: str) -> None:
    rng, net = np.random.default_rng(0), NETWORKS[name]
    obs = random_obs(rng, [(4, 4), (4, 0), (0, 4), (0, 0)] * 5, present=1.0)
    secret = with_column(obs, "agent_rows", AGENT["secret"], rng.normal(size=len(obs.present)))
    fuel = with_column(obs, "task_rows", TASK["fuel"], rng.normal(size=len(obs.task_rows)))
    for changed, where in ((secret, np.diff(obs.agent_ptr) > 0), (fuel, np.diff(obs.task_ptr) > 0)):
        moved = ((values(net, changed) - values(net, obs)).abs() > 1e-6).numpy()
        assert not moved[~where].any()
        assert moved[where].mean() > 0.8  # a value behind a dead ReLU does not move


@several
@example(seed=1, agents=5, see=0.5)
@given(seed=SEEDS, agents=st.integers(2, 6), see=SEE)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_a_column_for_oneself_is_hidden_from_others(name: str, seed: int, agents: int, see: float | None) -> None:
    rng, net = np.random.default_rng(seed), NETWORKS[name]
    obs = random_obs(rng, [(agents, 4)], see=see, present=1.0, pairs=1.0)
    j = int(rng.integers(agents))
    changed = with_column(obs, "agent_rows", AGENT["tank"], 9.0, j)
    before, after = distribution(net.actor, obs), distribution(net.actor, changed)
    others = np.arange(agents) != j
    equal(after.noop_logits[others], before.noop_logits[others])
    equal(after.pair_logits[others[obs.pair_agent]], before.pair_logits[others[obs.pair_agent]])
    knows_itself = net.actor.features.pointer or net.actor.features.include_self
    moved = float((after.noop_logits[j] - before.noop_logits[j]).detach().abs())
    assert (moved > 1e-9) == knows_itself


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_an_unseen_agent_has_no_influence(name: str, seed: int, sizes: list[tuple[int, int]]) -> None:
    rng, net = np.random.default_rng(seed), NETWORKS[name]
    obs = random_obs(rng, sizes, see=0.5)
    before = by_member(obs, net.actor, distribution(net.actor, obs).noop_logits)
    for j in rng.permutation(len(obs.present))[:3]:
        changed = with_column(obs, "agent_rows", slice(None), rng.normal(size=len(SPEC.agent_columns)), j)
        after = by_member(changed, net.actor, distribution(net.actor, changed).noop_logits)
        blind = np.array([j not in seen_by(obs, m) and m != j for m in range(len(obs.present))], dtype=bool)
        equal(after[blind], before[blind])


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
@pytest.mark.parametrize("name", ALL_ACTORS)
def test_seeing_everyone_is_the_default(name: str, seed: int, sizes: list[tuple[int, int]]) -> None:
    net = NETWORKS[name]
    obs = random_obs(np.random.default_rng(seed), sizes, see=1.0)
    spelled, plain = distribution(net.actor, obs), distribution(net.actor, replace(obs, see_ptr=None, see_agent=None))
    close(spelled.noop_logits, plain.noop_logits)
    close(spelled.pair_logits, plain.pair_logits)


def test_actor_and_critic_share_nothing() -> None:
    net = network(encoder="lstm", query="agent_pointer")
    obs = random_obs(np.random.default_rng(0), [(4, 4)])
    on_actor = gradients(net, distribution(net.actor, obs).entropy().sum())
    on_critic = gradients(net, values(net, obs).sum())
    assert {n.split(".")[0] for n, g in on_actor.items() if g.any()} == {"actor"}
    assert {n.split(".")[0] for n, g in on_critic.items() if g.any()} == {"critic"}
