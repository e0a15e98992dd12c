"""Random packed observations, operations on them, and networks with large random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rl_openness.algorithms.mappo.networks.plato import PlatoActor, PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.envs.base import Column, EnvSpec, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import pointer, segment_of_row
from rl_openness.nn.acting import carried
from rl_openness.nn.inputs import ActorInputs, RowTable, TeamTensors
from rl_openness.nn.pointer import PointerDistribution

SPEC = EnvSpec(
    name="any",
    agent_columns=(
        Column("y", 0.25, axis="y"),
        Column("x", 0.5, axis="x"),
        Column("power", 2.0),
        Column("tank", 0.5, visible="self"),
        Column("secret", 1.5, visible="critic"),
    ),
    task_columns=(
        Column("y", 0.25, axis="y"),
        Column("x", 0.5, axis="x"),
        Column("size", 3.0),
        Column("fuel", 0.1, visible="critic"),
    ),
    pair_columns=(
        Column("dy", 0.25, axis="y"),
        Column("dx", 0.5, axis="x"),
        Column("deficit", 2.0),
        Column("truth", 1.0, visible="critic"),
    ),
)
AGENT = {column.name: i for i, column in enumerate(SPEC.agent_columns)}
TASK = {column.name: i for i, column in enumerate(SPEC.task_columns)}
PAIR = {column.name: i for i, column in enumerate(SPEC.pair_columns)}

HIDDEN = 8
ACTORS: dict[str, dict[str, Any]] = {
    f"{query}-{scorer}-{frame}": {"query": query, "scorer": scorer, "frame": frame, "noop": noop}
    for (query, scorer, frame), noop in zip(
        [
            (q, s, f)
            for q in ("stats", "agent_pointer")
            for s in ("additive", "dot")
            for f in ("absolute", "relative", "both")
        ],
        ["feature_row", "learned_key", "zeros"] * 2 + ["learned_key", "zeros", "feature_row"] * 2,
        strict=True,
    )
} | {
    "strict": {"query_include_self": False, "frame": "absolute", "task_extras": False},
    "all-stats": {
        "stats": ("mean", "std", "min", "max", "sum", "median", "count"),
        "dot_scaled": False,
        "scorer": "dot",
    },
}
MEMORIES: dict[str, dict[str, Any]] = {
    "lstm-update": {"encoder": "lstm"},
    "lstm-hold": {"encoder": "lstm", "absent_state": "hold", "scorer": "dot"},
    "lstm-reset": {"encoder": "lstm", "absent_state": "reset", "frame": "relative"},
    "lstm-pointer": {"encoder": "lstm", "query": "agent_pointer"},
    "lstm-pointer-hold": {"encoder": "lstm", "query": "agent_pointer", "absent_state": "hold"},
}
CRITICS: dict[str, dict[str, Any]] = {
    f"{edges}-{norm}": {"critic_edges": edges, "gcn_norm": norm}
    for edges in ("complete", "actions")
    for norm in ("sym_selfloop", "sym", "mean")
}
ALL = ACTORS | MEMORIES | CRITICS


def random_obs(
    rng: np.random.Generator,
    sizes: Sequence[tuple[int, int]],
    *,
    present: float = 0.7,
    pairs: float = 0.5,
    see: float | None = None,
) -> PackedObs:
    """Copies with the given numbers of (members, tasks).

    `present`, `pairs`: probability that a member is here, and that a present member may choose a task. `see`:
    probability that a member observes another (itself always); None = everybody sees everybody.
    """
    agents, tasks = (np.array([size[i] for size in sizes], dtype=np.int64) for i in (0, 1))
    agent_ptr, task_ptr = pointer(agents), pointer(tasks)
    copy_of_agent, copy_of_task = segment_of_row(agent_ptr), segment_of_row(task_ptr)
    here = rng.random(agent_ptr[-1]) < present
    same = copy_of_agent[:, None] == copy_of_task
    pair_agent, pair_task = np.nonzero(same & here[:, None] & (rng.random(same.shape) < pairs))
    see_ptr = see_agent = None
    if see is not None:
        seen = (copy_of_agent[:, None] == copy_of_agent) & (rng.random((len(here), len(here))) < see)
        seen |= np.eye(len(here), dtype=bool)
        see_ptr, see_agent = pointer(seen.sum(1)), np.nonzero(seen)[1]
    return PackedObs(
        agent_rows=rows(rng, len(here), len(SPEC.agent_columns)),
        present=here,
        carry=np.full(len(here), -1, dtype=np.int64),
        agent_id=np.arange(len(here), dtype=np.int64) - agent_ptr[copy_of_agent],
        agent_ptr=agent_ptr,
        task_rows=rows(rng, int(task_ptr[-1]), len(SPEC.task_columns)),
        task_ptr=task_ptr,
        pair_agent=pair_agent,
        pair_task=pair_task,
        pair_rows=rows(rng, len(pair_agent), len(SPEC.pair_columns)),
        see_ptr=see_ptr,
        see_agent=see_agent,
    )


def rows(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    return rng.normal(size=(count, width)).astype(np.float32)


def shuffled_within(rng: np.random.Generator, ptr: np.ndarray) -> np.ndarray:
    """A permutation of rows that keeps every row in its segment."""
    return np.lexsort((rng.random(ptr[-1]), segment_of_row(ptr)))


def reorder(
    obs: PackedObs, agents: np.ndarray | None = None, tasks: np.ndarray | None = None
) -> tuple[PackedObs, np.ndarray]:
    """The same copies with members and tasks in another order (new row i is old row order[i]); order of the pairs."""
    agents = np.arange(len(obs.present)) if agents is None else agents
    tasks = np.arange(len(obs.task_rows)) if tasks is None else tasks
    agent_place, task_place = np.argsort(agents), np.argsort(tasks)
    pair_agent, pair_task = agent_place[obs.pair_agent], task_place[obs.pair_task]
    order = np.lexsort((pair_task, pair_agent))
    see_ptr = see_agent = None
    if obs.see_ptr is not None and obs.see_agent is not None:
        seen = [agent_place[obs.see_agent[obs.see_ptr[i] : obs.see_ptr[i + 1]]] for i in agents]
        see_ptr = pointer(np.array([len(group) for group in seen], dtype=np.int64))
        see_agent = np.concatenate([np.empty(0, dtype=np.int64), *seen])
    moved = replace(
        obs,
        agent_rows=obs.agent_rows[agents],
        present=obs.present[agents],
        carry=obs.carry[agents],
        agent_id=obs.agent_id[agents],
        task_rows=obs.task_rows[tasks],
        pair_agent=pair_agent[order],
        pair_task=pair_task[order],
        pair_rows=obs.pair_rows[order],
        see_ptr=see_ptr,
        see_agent=see_agent,
    )
    return moved, order


def without_tasks(obs: PackedObs, gone: np.ndarray) -> tuple[PackedObs, np.ndarray]:
    """The observation without the tasks marked in `gone` [X], and the pairs that are left."""
    kept = np.flatnonzero(~gone)
    pairs = np.flatnonzero(~gone[obs.pair_task])
    copy = segment_of_row(obs.task_ptr)[kept]
    place = np.cumsum(~gone) - 1
    fewer = replace(
        obs,
        task_rows=obs.task_rows[kept],
        task_ptr=pointer(np.bincount(copy, minlength=obs.num_copies)),
        pair_agent=obs.pair_agent[pairs],
        pair_task=place[obs.pair_task[pairs]],
        pair_rows=obs.pair_rows[pairs],
    )
    return fewer, pairs


def without_pairs(obs: PackedObs, gone: np.ndarray) -> PackedObs:
    """The observation without the pairs marked in `gone` [P]."""
    return replace(
        obs, pair_agent=obs.pair_agent[~gone], pair_task=obs.pair_task[~gone], pair_rows=obs.pair_rows[~gone]
    )


def sent_away(obs: PackedObs, members: np.ndarray) -> PackedObs:
    """The observation with more members (rows) away: they are not present and lose their pairs."""
    fewer = without_pairs(obs, np.isin(obs.pair_agent, members))
    present = obs.present.copy()
    present[members] = False
    return replace(fewer, present=present)


def with_column(obs: PackedObs, field: str, column: int, values: Any, only: Any = slice(None)) -> PackedObs:
    """The observation with another column of `agent_rows`, `task_rows` or `pair_rows` (in the rows `only`)."""
    changed = getattr(obs, field).copy()
    changed[only, column] = values
    return replace(obs, **{field: changed})


Module = TypeVar("Module", bound=nn.Module)


def randomise(module: Module, seed: int = 0, spread: float = 0.6) -> Module:
    """Large random float64 weights, so that nothing is almost zero."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * spread)
    return module


def network(seed: int = 0, spec: EnvSpec = SPEC, **settings: Any) -> PlatoNetwork:
    return randomise(PlatoNetwork(spec, PlatoSettings(**{"hidden": HIDDEN, **settings})), seed)


def nudged(net: PlatoNetwork, seed: int = 9) -> PlatoNetwork:
    """Other weights than the ones that acted."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return net


def memory_of(net: PlatoNetwork, obs: PackedObs, seed: int = 3) -> Tensor | None:
    """A random state for every member."""
    if net.actor.memory is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(obs.present), 2 * HIDDEN, generator=generator, dtype=torch.float64)


def carrying(obs: PackedObs, order: np.ndarray | None = None) -> PackedObs:
    """Every member comes from row i (or order[i]) of the step before."""
    return replace(obs, carry=np.arange(len(obs.present)) if order is None else order)


def tensors(obs: PackedObs, dtype: torch.dtype = torch.float64) -> TeamTensors:
    return TeamTensors.from_obs(obs, dtype)


def actor_inputs(actor: PlatoActor, obs: PackedObs) -> ActorInputs:
    return actor.features(tensors(obs, actor.scorer.key.weight.dtype))


def queries(actor: PlatoActor, inputs: ActorInputs) -> Tensor:
    table = actor.query(inputs)
    return table.expand(table.rows)


def distribution(actor: PlatoActor, obs: PackedObs, memory: Tensor | None = None) -> PointerDistribution:
    """What `act` decides on, with gradients."""
    team = tensors(obs, actor.scorer.key.weight.dtype)
    inputs = actor.features(team)
    table = actor.query(inputs)
    if actor.memory is not None:
        rows = table.expand(table.rows)
        state = carried(memory, team.carry, 2 * actor.memory.hidden, rows)
        table = RowTable(actor.memory(rows, state, team.present)[0])
    return actor.decide(inputs, table)


def values(net: PlatoNetwork, obs: PackedObs) -> Tensor:
    assert net.critic is not None
    return net.critic(net.critic.inputs(tensors(obs, net.critic.value[0].weight.dtype)))


def draws(obs: PackedObs, seed: int = 1) -> DecisionDraws:
    return DecisionDraws(np.random.default_rng(seed).integers(0, 2**63, obs.num_copies).astype(np.uint64))


def close(left: Any, right: Any, atol: float = 1e-9, rtol: float = 0.0) -> None:
    left, right = (x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in (left, right))
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol)


def equal(left: Any, right: Any) -> None:
    """Bit-equal."""
    left, right = (x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in (left, right))
    np.testing.assert_array_equal(left, right)


def gradients(module: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Gradient of every parameter; zeros where the loss does not reach it."""
    named = dict(module.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }


def same_gradients(left: dict[str, Tensor], right: dict[str, Tensor], atol: float = 1e-9) -> None:
    """Equal up to `atol`, or up to the last digits where a gradient is huge."""
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name].numpy(), right[name].numpy(), rtol=1e-3 * atol, atol=atol, err_msg=name)


SIZES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4)
BUSY = [(5, 4), (3, 0), (0, 2), (4, 3)]
SEEDS = st.integers(0, 2**32 - 1)
SEE = st.sampled_from([None, 0.0, 0.5])
several = settings(max_examples=8, deadline=None, derandomize=True)
few = settings(several, max_examples=4)
