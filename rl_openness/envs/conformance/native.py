"""An `OpenVectorEnv` under random legal choices: its data, the independence of its copies, its saved state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from rl_openness.envs.base import NO_OP, Int, OpenVectorEnv, PackedObs, StepResult
from rl_openness.envs.choices import random_choices
from rl_openness.envs.conformance.findings import Findings
from rl_openness.envs.conformance.observations import (
    Problem,
    carry_problems,
    observation_problems,
    result_problems,
)
from rl_openness.envs.conformance.values import same
from rl_openness.envs.draws import DecisionDraws, Keys
from rl_openness.errors import UserError

REPEAT_REMEDY = "Draw everything from envs.draws by (seed, episode, step), and keep nothing outside the copy's arrays."


class BrokenError(Exception):
    """Nothing more can be played; the finding is written down."""


class NativeChecker:
    """`make(num_copies)` gives an environment."""

    def __init__(self, make: Callable[[int], OpenVectorEnv], findings: Findings) -> None:
        self._make, self.findings = make, findings
        self.copies = 3

    def run(self, seeds: list[int], max_steps: int) -> None:
        """All checks; an episode of each seed, several at once."""
        findings = self.findings
        try:
            for start in range(0, len(seeds), self.copies):
                self._episodes(seeds[start : start + self.copies], max_steps)
            findings.seed, findings.step = seeds[0], None
            if not findings.any_fault():
                self._check_saved_state(seeds)
                self._check_illegal(seeds)
        except BrokenError:
            return

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except UserError:
            raise
        except Exception as error:
            told = " ".join(f"{type(error).__name__}: {error}".split())
            self.findings.fault("raised", f"{what} raised {told}", "Mend the environment.")
            raise BrokenError from error

    def _tell(self, problems: Iterable[Problem], obs: PackedObs, seeds: list[int]) -> None:
        for kind, text, remedy, row in problems:
            agent = None
            if row is not None and row < len(obs.agent_id):
                agent = int(obs.agent_id[row])
                self.findings.seed = seeds[min(int(obs.agent_copy[row]), len(seeds) - 1)]
            self.findings.fault(kind, text, remedy, agent)

    def _episodes(self, seeds: list[int], max_steps: int) -> None:
        """One episode of each seed side by side, and each once more alone."""
        findings, B = self.findings, len(seeds)
        findings.seed, findings.step = seeds[0], 0
        env = self._call("the constructor", lambda: self._make(B))
        alone = [self._call("the constructor", lambda: self._make(1)) for _ in seeds]
        self._call("reset", lambda: env.reset(seeds))
        for b, each in enumerate(alone):
            self._call("reset", partial(each.reset, [seeds[b]]))
        running, fresh = set(range(B)), set(range(B))
        before: PackedObs | None = None
        for step in range(max_steps):
            findings.seed, findings.step = seeds[0], step
            obs = self._call("observe", env.observe)
            self._tell(observation_problems(obs, env.spec, B), obs, seeds)
            if not findings.any_fault():
                self._tell(carry_problems(obs, before, fresh), obs, seeds)
            if findings.any_fault():
                raise BrokenError
            self._count(obs, before, running - fresh, running)
            choices = random_choices(obs, env.spec.num_actions, DecisionDraws(self._keys(env)))
            result = self._call("step", partial(env.step, choices))
            self._tell(result_problems(result, obs, env.spec, choices), obs, seeds)
            for b in sorted(running):
                self._compare(b, obs, choices, result, alone[b], seeds[b])
            if findings.any_fault():
                raise BrokenError
            findings.steps += len(running)
            before, fresh = obs, {int(b) for b in result.ended}
            running -= fresh
            if not running:
                break
            if env.spec.horizon is not None and step + 1 >= env.spec.horizon:
                text = f"an episode goes on after its horizon of {env.spec.horizon} steps"
                findings.fault("horizon", text, "Truncate it, or give the spec no horizon.")
        findings.episodes += B
        if running:
            text = f"the episode has not ended after {max_steps} steps"
            findings.note("endless", text, "If it never does, truncate it (or check with more --steps).")

    def _keys(self, env: OpenVectorEnv) -> Keys:
        keys: Keys = self._call("decision_keys", env.decision_keys)
        if keys.dtype != np.uint64 or keys.shape != (env.num_copies,):
            text = f"decision_keys are {keys.dtype} of shape {keys.shape}, not uint64 of {(env.num_copies,)}"
            self.findings.fault("decision-keys", text, "Return envs.draws.step_keys(seeds, episodes, steps).")
            raise BrokenError
        return keys

    def _count(self, obs: PackedObs, before: PackedObs | None, going: set[int], counted: set[int]) -> None:
        """Joins, leaves and absences since the observation before, and masks that allow nothing."""
        copy = obs.agent_copy
        inside = np.isin(copy, list(counted))
        self.findings.agents |= set(obs.agent_id[inside].tolist())
        if obs.action_mask is not None:
            deciding = obs.present if obs.controlled is None else obs.present & obs.controlled
            for row in np.flatnonzero(deciding & inside & ~obs.action_mask.any(axis=1)):
                self.findings.note(
                    "mask-empty",
                    "its action mask allows nothing: it does nothing in this step",
                    "If some action is always legal, such as doing nothing, allow it.",
                    int(obs.agent_id[row]),
                )
        if before is None:
            return
        here = np.isin(copy, list(going))
        was = np.isin(before.agent_copy, list(going))
        linked = obs.carry[here & (obs.carry >= 0)]
        gone = np.setdiff1d(np.flatnonzero(was), linked)
        self.findings.events["joins"] += int((here & (obs.carry < 0)).sum())
        self.findings.events["leaves"] += len(gone)
        rows = np.flatnonzero(here & (obs.carry >= 0))
        self.findings.events["absences"] += int((before.present[obs.carry[rows]] & ~obs.present[rows]).sum())

    def _compare(
        self, b: int, obs: PackedObs, choices: Int, result: StepResult, alone: OpenVectorEnv, seed: int
    ) -> None:
        """Copy b of the batch and the same seed played alone."""
        self.findings.seed = seed
        theirs = self._call("observe", alone.observe)
        name = observation_difference(obs.select(np.array([b])), theirs)
        start, stop = int(obs.agent_ptr[b]), int(obs.agent_ptr[b + 1])
        if name is None:
            single = self._call("step", lambda: alone.step(choices[start:stop]))
            for word in ("team_reward", "terminated", "truncated"):
                if getattr(single, word)[0] != getattr(result, word)[b]:
                    name = word
            if not same(single.agent_reward, result.agent_reward[start:stop]):
                name = "agent_reward"
        if name is not None:
            text = f"{name} of copy {b} of {obs.num_copies} differs from that of the same seed played alone"
            self.findings.fault("batch", text, REPEAT_REMEDY)

    def _check_saved_state(self, seeds: list[int]) -> None:
        """Play on from a saved state, in the same environment and in a new one."""
        seeds = (seeds * self.copies)[: self.copies]
        env = self._call("the constructor", lambda: self._make(self.copies))
        env.reset(seeds)
        for _ in range(5):
            env.step(random_choices(env.observe(), env.spec.num_actions, env.draws()))
        state = self._call("get_state", env.get_state)
        for name, array in state.items():
            if not isinstance(array, np.ndarray) or array.dtype == object:
                text = f"get_state gives {name!r} as {type(array).__name__}, not as a plain array"
                self.findings.fault("state-kind", text, "States are dicts of NumPy arrays of numbers.")
                return
        state = {name: array.copy() for name, array in state.items()}
        fresh = self._call("the constructor", lambda: self._make(self.copies))
        self._call("set_state", lambda: fresh.set_state(state))
        for step in range(5, 15):
            self.findings.step = step
            mine, theirs = env.observe(), self._call("observe", fresh.observe)
            name = observation_difference(mine, theirs, carry=True)
            if name is None and not np.array_equal(env.decision_keys(), fresh.decision_keys()):
                name = "decision_keys"
            if name is not None:
                text = f"{name} is another after get_state and set_state"
                remedy = "The state must hold everything that the next steps depend on, carry included."
                self.findings.fault("state", text, remedy)
                return
            choices = random_choices(mine, env.spec.num_actions, env.draws())
            env.step(choices)
            fresh.step(choices)

    def _check_illegal(self, seeds: list[int]) -> None:
        """A choice that is not legal raises ValueError and changes nothing."""
        env = self._call("the constructor", lambda: self._make(1))
        env.reset(seeds[:1])
        self.findings.step = 0
        obs = env.observe()
        deciding = np.flatnonzero(obs.present if obs.controlled is None else obs.present & obs.controlled)
        if not len(deciding):
            return
        choices = np.full(len(obs.present), NO_OP, dtype=np.int64)
        choices[deciding[0]] = 10**6
        agent = int(obs.agent_id[deciding[0]])
        try:
            env.step(choices)
        except ValueError:
            if observation_difference(obs, env.observe(), carry=True) is not None:
                text = "a refused choice has changed the environment"
                self.findings.fault("illegal-changes", text, "Check all choices before anything changes.", agent)
        except Exception as error:  # noqa: BLE001 - it is told
            text = f"the choice 1000000 raises {type(error).__name__} instead of ValueError"
            self.findings.fault("illegal-error", text, "Raise ValueError that names copy, agent and range.", agent)
        else:
            text = "the choice 1000000 is accepted"
            self.findings.fault("illegal-accepted", text, "Raise ValueError for choices that are not legal.", agent)


def observation_difference(one: PackedObs, other: PackedObs, *, carry: bool = False) -> str | None:
    """The first array in which two observations differ; None if there is none."""
    for each in fields(PackedObs):
        if each.name == "carry" and not carry:
            continue
        mine, theirs = getattr(one, each.name), getattr(other, each.name)
        if (mine is None) != (theirs is None) or (mine is not None and not same(mine, theirs)):
            return each.name
    return None
