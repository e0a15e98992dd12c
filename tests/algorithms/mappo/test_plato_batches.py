"""Worlds of any size, copies in a batch, and cost: properties T6, T7 and T9 of PLATO's specification (section 10).

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
from torch.utils._python_dispatch import TorchDispatchMode

from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork, make_actor
from rl_openness.algorithms.mappo.settings import PLATO_VARIANTS, PlatoSettings
from rl_openness.envs.base import NO_OP, PackedObs, concatenate
from rl_openness.envs.wildfire import make_wildfire
from tests.nn.builders import (
    ALL,
    BUSY,
    CRITICS,
    HIDDEN,
    SEE,
    SEEDS,
    SIZES,
    SPEC,
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
    random_obs,
    same_gradients,
    several,
    values,
)

NETWORKS = {name: network(1, **settings) for name, settings in ALL.items()}


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
