"""The executable properties T1 to T7 and T9 of PLATO's specification (section 10), with random weights in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from rl_openness.algorithms.mappo.networks.plato import PlatoActor, PlatoNetwork, make_actor
from rl_openness.algorithms.mappo.settings import PLATO_VARIANTS, PlatoSettings
from rl_openness.envs.base import NO_OP, PackedObs, concatenate
from rl_openness.envs.wildfire import make_wildfire
from tests.nn.builders import (
    ACTORS,
    AGENT,
    BUSY,
    CRITICS,
    HIDDEN,
    MEMORIES,
    SEE,
    SEEDS,
    SIZES,
    SPEC,
    TASK,
    actor_inputs,
    close,
    distribution,
    draws,
    equal,
    few,
    gradients,
    network,
    queries,
    random_obs,
    reorder,
    same_gradients,
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
NETWORKS = {name: network(1, **settings) for name, settings in (ALL_ACTORS | CRITICS).items()}


def memory_of(net: PlatoNetwork, obs: PackedObs, seed: int = 3) -> torch.Tensor | None:
    """A random state for every member."""
    if net.actor.memory is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(obs.present), 2 * HIDDEN, generator=generator, dtype=torch.float64)


def carrying(obs: PackedObs, order: np.ndarray | None = None) -> PackedObs:
    """Every member comes from row i (or order[i]) of the step before."""
    return replace(obs, carry=np.arange(len(obs.present)) if order is None else order)


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


# T6: any number of agents and tasks


@few
@example(seed=1, agents=40, tasks=60, present=1.0)
@given(seed=SEEDS, agents=st.integers(1, 40), tasks=st.integers(0, 60), present=st.sampled_from([0.0, 0.6, 1.0]))
@pytest.mark.parametrize("name", NETWORKS)
def test_t6_any_numbers(name: str, seed: int, agents: int, tasks: int, present: float) -> None:
    net = NETWORKS[name]
    obs = random_obs(np.random.default_rng(seed), [(agents, tasks)], present=present)
    dist = distribution(net.actor, obs, memory_of(net, obs))
    assert torch.isfinite(dist.pair_logits).all()
    assert torch.isfinite(dist.noop_logits).all()
    assert torch.isfinite(dist.entropy()).all()
    assert torch.isfinite(values(net, obs)).all()
    assert net.actor.act(obs, draws(obs), explore=True).choices.shape == (agents,)


@pytest.mark.parametrize("sizes", [[(0, 0)], [(0, 3)], [(3, 0)], [(0, 0), (0, 2), (0, 0)], [(0, 0), (4, 3)]])
@pytest.mark.parametrize("name", NETWORKS)
def test_t6_nobody_and_nothing(name: str, sizes: list[tuple[int, int]]) -> None:
    for present in (0.0, 1.0):
        _finite(NETWORKS[name], sizes, present)


def _finite(net: PlatoNetwork, sizes: list[tuple[int, int]], present: float) -> None:
    obs = random_obs(np.random.default_rng(0), sizes, present=present, pairs=1.0)
    loss = values(net, obs).sum()
    dist = distribution(net.actor, obs)
    loss = loss + dist.entropy().sum() + dist.noop_log_probs.sum() + dist.pair_log_probs.sum()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(net, loss).values())
    for explore in (True, False):
        choices = net.actor.act(obs, None, explore=explore).choices
        assert len(choices) == len(obs.present)
        if present == 0.0:
            assert (choices == NO_OP).all()


@pytest.mark.parametrize("name", CRITICS)
def test_t6_a_state_without_nodes_pools_to_zero(name: str) -> None:
    net = NETWORKS[name]
    nothing = random_obs(np.random.default_rng(0), [(2, 0), (0, 0), (3, 2)], present=0.0)
    nobody_here = values(net, nothing).detach()
    close(nobody_here[:2], net.critic.value(torch.zeros(2, HIDDEN, dtype=torch.float64)).squeeze(-1))
    assert abs(float(nobody_here[2] - nobody_here[0])) > 1e-6


@pytest.mark.parametrize("variant", PLATO_VARIANTS)
def test_t6_parameters_do_not_depend_on_the_world(variant: str) -> None:
    settings = PlatoSettings(**PLATO_VARIANTS[variant])
    shapes = []
    for setup in ("2x3/S0", "5x5/S3"):
        env = make_wildfire(1, setup=setup)
        shapes.append({name: p.shape for name, p in PlatoNetwork(env.spec, settings).state_dict().items()})
    assert shapes[0] == shapes[1]


def test_an_actor_is_made_without_a_critic() -> None:
    settings = PlatoSettings(hidden=HIDDEN, scorer="dot")
    whole = PlatoNetwork(SPEC, settings)
    assert PlatoNetwork(SPEC, settings, with_critic=False).critic is None
    made = make_actor(SPEC, settings.model_dump())
    made.load_state_dict(whole.actor.state_dict())
    obs = random_obs(np.random.default_rng(0), [(4, 4)])
    equal(made.act(obs, draws(obs), explore=True).choices, whole.actor.act(obs, draws(obs), explore=True).choices)


def test_actor_and_critic_share_nothing() -> None:
    net = network(encoder="lstm", query="agent_pointer")
    obs = random_obs(np.random.default_rng(0), [(4, 4)])
    on_actor = gradients(net, distribution(net.actor, obs).entropy().sum())
    on_critic = gradients(net, values(net, obs).sum())
    assert {n.split(".")[0] for n, g in on_actor.items() if g.any()} == {"actor"}
    assert {n.split(".")[0] for n, g in on_critic.items() if g.any()} == {"critic"}


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


# T7: copies in a batch


def per_copy(net: PlatoNetwork, obs: PackedObs, memory: torch.Tensor | None) -> list[torch.Tensor]:
    """A number for each copy that depends on all its logits and on its value."""
    dist, inputs = distribution(net.actor, obs, memory), actor_inputs(net.actor, obs)
    step = torch.from_numpy(obs.agent_copy)[inputs.member]
    value = values(net, obs)
    numbers = []
    for b in range(obs.num_copies):
        thinks = (step == b) & inputs.decides
        pairs = thinks[dist.owner]
        numbers.append(
            dist.pair_log_probs[pairs].square().sum()
            + dist.noop_log_probs[thinks].sum()
            + dist.entropy()[thinks].sum()
            + value[b]
        )
    return numbers


@few
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
@pytest.mark.parametrize("name", NETWORKS)
def test_t7_copies_do_not_meet(name: str, seed: int, sizes: list[tuple[int, int]], see: float | None) -> None:
    net = NETWORKS[name]
    obs = carrying(random_obs(np.random.default_rng(seed), sizes, see=see))
    memory = memory_of(net, obs)
    together = per_copy(net, obs, memory)
    for b, number in enumerate(together):
        alone = obs.select(np.array([b]))  # `carry` still names rows of the whole batch, as `memory` does
        number_alone = per_copy(net, alone, memory)[0]
        close(number, number_alone)
        same_gradients(gradients(net, number), gradients(net, number_alone))


@few
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in ("lstm-update", "lstm-pointer")])
def test_t7_rows_of_away_members_are_never_read(
    name: str, seed: int, sizes: list[tuple[int, int]], see: float | None
) -> None:
    # (With `absent_state: update` an away member's memory goes on from its own row.)
    net = NETWORKS[name]
    obs = carrying(random_obs(np.random.default_rng(seed), sizes, see=see, present=0.5))
    hollow = obs.agent_rows.copy()
    hollow[~obs.present] = np.nan
    hollow = replace(obs, agent_rows=hollow)
    memory = memory_of(net, obs)
    before, after = torch.stack(per_copy(net, obs, memory)), torch.stack(per_copy(net, hollow, memory))
    equal(after, before)
    same_gradients(gradients(net, after.sum()), gradients(net, before.sum()), atol=0.0)
    first, second = (net.actor.act(o, draws(o), memory, explore=True) for o in (obs, hollow))
    equal(second.choices, first.choices)
    equal(second.log_probs, first.log_probs)
    if memory is not None:
        equal(second.memory, first.memory)


@pytest.mark.parametrize("name", ["lstm-update", "lstm-pointer"])
def test_t7_away_members_do_not_reach_others(name: str) -> None:
    net = NETWORKS[name]
    obs = carrying(random_obs(np.random.default_rng(5), [(5, 4), (3, 2)], present=0.6, pairs=1.0))
    hollow = obs.agent_rows.copy()
    hollow[~obs.present] = np.nan
    hollow = replace(obs, agent_rows=hollow)
    memory = memory_of(net, obs)
    equal(torch.stack(per_copy(net, hollow, memory)), torch.stack(per_copy(net, obs, memory)))
    first, second = (net.actor.act(o, draws(o), memory, explore=True) for o in (obs, hollow))
    equal(second.choices, first.choices)
    equal(second.memory[obs.present], first.memory[obs.present])


@several
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
def test_selecting_and_joining_copies_are_inverse(seed: int, sizes: list[tuple[int, int]], see: float | None) -> None:
    rng = np.random.default_rng(seed)
    obs = random_obs(rng, sizes, see=see)
    order = rng.permutation(obs.num_copies)
    parts = [obs.select(np.array([b])) for b in order]
    joined = concatenate(parts)
    for field in replace(obs).__dict__:
        equal(getattr(joined, field), getattr(obs.select(order), field))
    back = joined.select(np.argsort(order))
    for field in replace(obs).__dict__:
        equal(getattr(back, field), getattr(obs, field))


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


# T9: cost


class Work(TorchDispatchMode):
    """Counts multiply-adds: m n k for matrix products, one for every number any other operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        sizes = [x.numel() for x in (out if isinstance(out, tuple | list) else [out]) if isinstance(x, torch.Tensor)]
        self.total += sum(sizes)
        matrices = [a for a in args if isinstance(a, torch.Tensor) and a.dim() == 2]
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.total += sizes[0] * matrices[-2].shape[1]
        return out


def work(net: PlatoNetwork, agents: int, tasks: int) -> int:
    obs = random_obs(np.random.default_rng(0), [(agents, tasks)], present=1.0, pairs=1.0)
    with torch.no_grad(), Work() as counter:
        distribution(net.actor, obs)
        values(net, obs)
    return counter.total


@pytest.mark.parametrize("name", ["stats-additive-both", "agent_pointer-dot-relative", "lstm-pointer", *CRITICS])
def test_t9_work_is_linear_in_tasks_and_at_most_quadratic_in_agents(name: str) -> None:
    net = NETWORKS[name]
    counts = np.array([8, 16, 32, 64, 128])
    tasks = np.array([work(net, 8, x) for x in counts])
    assert (tasks[1:] <= 2 * tasks[:-1]).all()
    growth = np.diff(tasks) / np.diff(counts)
    np.testing.assert_allclose(growth, growth[0], rtol=1e-6)
    agents = np.array([work(net, n, 8) for n in counts])
    slope = np.polyfit(np.log(counts), np.log(agents), 1)[0]
    assert slope <= (2.1 if "pointer" in name else 1.1)
    if "pointer" in name:
        assert work(net, 256, 8) / work(net, 128, 8) > 3.0  # the count sees the attention at all
