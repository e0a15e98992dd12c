"""Whether a `PackedObs` and a `StepResult` of an `OpenVectorEnv` are what `envs.base` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rl_openness.envs.base import EnvSpec, Int, PackedObs, StepResult
from rl_openness.envs.ragged import segment_of_row

Problem = tuple[str, str, str, int | None]
"""Kind, text, remedy, and the row of the member that it is about, if it is about one."""


def observation_problems(obs: PackedObs, spec: EnvSpec, num_copies: int) -> Iterator[Problem]:
    """What is wrong with an observation by itself; what depends on wrong pointers is then not looked at."""
    broken = False
    for name, rows in (("agent_ptr", len(obs.agent_rows)), ("task_ptr", len(obs.task_rows))):
        ptr = getattr(obs, name)
        size = f"[{num_copies + 1}] int64 from 0 to {rows}"
        if ptr.dtype != np.int64 or ptr.shape != (num_copies + 1,) or ptr[0] != 0 or ptr[-1] != rows:
            broken = True
            yield (
                "pointer",
                f"{name} is {ptr.tolist()} ({ptr.dtype}), not {size}",
                "Use envs.ragged.pointer(counts).",
                None,
            )
        elif (np.diff(ptr) < 0).any():
            broken = True
            yield "pointer", f"{name} decreases: {ptr.tolist()}", "Use envs.ragged.pointer(counts).", None
    if broken:
        return
    arrays = list(_array_problems(obs, spec))
    yield from arrays
    if any(kind == "array-shape" for kind, *_ in arrays):
        return
    yield from _pair_problems(obs)
    yield from _mask_problems(obs, spec)
    copy = obs.agent_copy
    pairs = np.stack([copy, obs.agent_id], axis=1)
    _, first, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    for row in first[counts > 1]:
        text = "its agent_id stands for two members of one copy"
        yield "agent-id", text, "Give every member of an episode its own number.", int(row)


def _array_problems(obs: PackedObs, spec: EnvSpec) -> Iterator[Problem]:
    M, X, P = len(obs.agent_rows), len(obs.task_rows), len(obs.pair_agent)
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {
        "agent_rows": ((M, len(spec.agent_columns)), np.float32),
        "task_rows": ((X, len(spec.task_columns)), np.float32),
        "pair_rows": ((P, len(spec.pair_columns)), np.float32),
        "present": ((M,), np.bool_),
        "carry": ((M,), np.int64),
        "agent_id": ((M,), np.int64),
        "pair_agent": ((P,), np.int64),
        "pair_task": ((P,), np.int64),
    }
    for name, (shape, dtype) in wanted.items():
        array = getattr(obs, name)
        if array.shape != shape or array.dtype != dtype:
            text = f"{name} is {array.dtype} of shape {array.shape}, not {np.dtype(dtype)} of {shape}"
            yield (
                "array-shape",
                text,
                "Make it of the kind and shape that PackedObs documents (columns: EnvSpec).",
                None,
            )
        elif array.dtype == np.float32 and not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            columns = getattr(spec, name.replace("rows", "columns"))
            text = f"{name}[{row}] holds {array[row, column]} in column {columns[column].name!r}"
            agent = int(row) if name == "agent_rows" else None
            yield "not-finite", text, "Write finite numbers, also into rows of away members.", agent


def _pair_problems(obs: PackedObs) -> Iterator[Problem]:
    agent, task = obs.pair_agent, obs.pair_task
    if not len(agent):
        return
    if agent.min() < 0 or agent.max() >= len(obs.agent_rows) or task.min() < 0 or task.max() >= len(obs.task_rows):
        yield "pair-range", "pairs name rows that do not exist", "pair_agent and pair_task number rows from 0.", None
        return
    order = agent * len(obs.task_rows) + task
    wrong = np.flatnonzero(np.diff(order) <= 0)
    if len(wrong):
        text = "its pairs are not sorted by agent, then by task, or one is there twice"
        yield "pair-order", text, "Sort pairs with np.lexsort((pair_task, pair_agent)).", int(agent[wrong[0] + 1])
    away = np.flatnonzero(~obs.present[agent])
    if len(away):
        yield "pair-away", "it is away and has pairs", "Give pairs to present members only.", int(agent[away[0]])
    other = np.flatnonzero(obs.agent_copy[agent] != segment_of_row(obs.task_ptr)[task])
    if len(other):
        text = "it has a pair with a task of another copy"
        yield "pair-copy", text, "Add task_ptr[b] to task numbers of copy b.", int(agent[other[0]])


def _mask_problems(obs: PackedObs, spec: EnvSpec) -> Iterator[Problem]:
    M = len(obs.agent_rows)
    mask = obs.action_mask
    if mask is not None:
        if spec.num_actions is None:
            text = "there is an action mask, but the spec has no num_actions"
            yield "mask", text, "Agents choose tasks by pairs, or set EnvSpec.num_actions.", None
        elif mask.dtype != np.bool_ or mask.shape != (M, spec.num_actions):
            text = f"action_mask is {mask.dtype} of shape {mask.shape}, not bool of {(M, spec.num_actions)}"
            yield "mask", text, "One row for each member, one column for each action.", None
    if obs.controlled is not None and (obs.controlled.dtype != np.bool_ or obs.controlled.shape != (M,)):
        text = f"controlled is {obs.controlled.dtype} of shape {obs.controlled.shape}, not bool of {(M,)}"
        yield "array-shape", text, "One entry for each member, or None.", None
    if (obs.see_ptr is None) != (obs.see_agent is None):
        yield "see", "only one of see_ptr and see_agent is there", "Give both, or None for both.", None
    elif obs.see_ptr is not None and obs.see_agent is not None:
        ptr, seen = obs.see_ptr, obs.see_agent
        if ptr.shape != (M + 1,) or ptr[0] != 0 or ptr[-1] != len(seen) or (np.diff(ptr) < 0).any():
            yield "see", "see_ptr are no offsets [members + 1] into see_agent", "Use envs.ragged.pointer(counts).", None
        elif len(seen) and (seen.min() < 0 or seen.max() >= M):
            yield "see", "see_agent names members that do not exist", "It numbers rows of agent_rows.", None
        elif (obs.agent_copy[seen] != obs.agent_copy[segment_of_row(ptr)]).any():
            yield "see", "an agent sees one of another copy", "Copies never see each other.", None


def carry_problems(obs: PackedObs, before: PackedObs | None, fresh: set[int]) -> Iterator[Problem]:
    """What is wrong with `carry`, given the observation before and the copies that began anew since."""
    copy = obs.agent_copy
    rows = 0 if before is None else len(before.present)
    remedy = "carry is the member's row in the previous observation of all copies; -1 = new in the episode."
    linked = np.flatnonzero(obs.carry != -1)
    for row in linked:
        if int(copy[row]) in fresh:
            yield "carry-fresh", f"its carry is {obs.carry[row]} although its episode has just begun", remedy, int(row)
            return
        if not 0 <= obs.carry[row] < rows:
            yield "carry-range", f"its carry {obs.carry[row]} is no row of the previous observation", remedy, int(row)
            return
        assert before is not None
        old = int(obs.carry[row])
        if before.agent_copy[old] != copy[row] or before.agent_id[old] != obs.agent_id[row]:
            yield "carry-other", f"its carry {old} is the row of somebody else", remedy, int(row)
            return
    if len(np.unique(obs.carry[linked])) != len(linked):
        yield "carry-twice", "two members carry the same row", remedy, None


def result_problems(result: StepResult, obs: PackedObs, spec: EnvSpec, choices: Int) -> Iterator[Problem]:
    """What is wrong with a step's result, `obs` being the observation that `choices` were made on."""
    B, M = obs.num_copies, len(obs.present)
    wanted = {"team_reward": (B, "f"), "agent_reward": (M, "f"), "terminated": (B, "b"), "truncated": (B, "b")}
    sound = True
    for name, (size, kind) in wanted.items():
        array = getattr(result, name)
        if array.shape != (size,) or array.dtype.kind != kind:
            sound = False
            wish = "float64" if kind == "f" else "bool"
            text = f"{name} is {array.dtype} of shape {array.shape}, not {wish} of {(size,)}"
            yield "result-shape", text, "See StepResult.", None
        elif kind == "f" and not np.isfinite(array).all():
            at = int(np.flatnonzero(~np.isfinite(array))[0])
            text = f"{name}[{at}] is {array[at]}"
            yield "reward-finite", text, "Return finite rewards.", at if name == "agent_reward" else None
    if not sound:
        return
    both = np.flatnonzero(result.terminated & result.truncated)
    if len(both):
        text = f"copy {both[0]} is terminated and truncated at once"
        yield "both-ends", text, "An episode that ended by itself is terminated, else truncated.", None
    failed = result.failed if result.failed is not None else np.empty(0, dtype=np.int64)
    ended = np.setdiff1d(np.flatnonzero(result.terminated | result.truncated), failed)
    if not np.array_equal(np.sort(result.ended), ended):
        text = f"ended is {result.ended.tolist()}, but the flags say {ended.tolist()}"
        yield "ended", text, "ended lists the copies that are terminated or truncated.", None
    finals = 0 if result.final_obs is None else result.final_obs.num_copies
    if finals != len(result.ended):
        text = f"final_obs holds {finals} copies, but {len(result.ended)} ended"
        yield "final-obs", text, "final_obs holds the last observation of each copy in `ended`, before the reset.", None
    if obs.controlled is not None and not obs.controlled.all() and result.labels is None:
        text = "labels are missing although teammates decide for some members"
        yield "labels", text, "labels [M] are the actions that all members chose.", None
    if result.labels is not None:
        yield from _label_problems(result.labels, obs, spec, choices)
    for name, count in result.events.items():
        if np.shape(count) != (B,):
            yield "events", f"event {name!r} has shape {np.shape(count)}, not {(B,)}", "One count for each copy.", None


def _label_problems(labels: Int, obs: PackedObs, spec: EnvSpec, choices: Int) -> Iterator[Problem]:
    if labels.shape != obs.present.shape or labels.dtype.kind != "i":
        text = f"labels are {labels.dtype} of shape {labels.shape}, not int64 of {obs.present.shape}"
        yield "labels", text, "One action for each member.", None
        return
    limit = spec.num_actions if spec.num_actions is not None else np.diff(obs.pair_ptr)
    wrong = np.flatnonzero(obs.present & ((labels < -1) | (labels >= limit)))
    if len(wrong):
        text = f"its label {labels[wrong[0]]} is no action"
        yield "labels", text, "labels are actions (or pairs) as choices are.", int(wrong[0])
    mine = obs.present & (np.ones_like(obs.present) if obs.controlled is None else obs.controlled) & (choices >= 0)
    other = np.flatnonzero(mine & (labels != choices))
    if len(other):
        text = f"its label is {labels[other[0]]}, but the caller chose {choices[other[0]]}"
        yield "labels", text, "labels of controlled members are the caller's choices.", int(other[0])
