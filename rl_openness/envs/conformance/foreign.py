"""A PettingZoo `ParallelEnv` or an RLlib `MultiAgentEnv` under random legal actions."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from rl_openness.envs.adapters.foreign import Convention, Foreign, Name, make_foreign
from rl_openness.envs.conformance.apart import watched, whom_it_answers
from rl_openness.envs.conformance.findings import Findings
from rl_openness.envs.conformance.rules import Episode, ParallelRules, Raw, RllibRules, Rules, difference
from rl_openness.envs.conformance.values import (
    action_outside,
    check_reward,
    mask_of,
    misfit,
    random_action,
    same,
    short,
)

Spaces = tuple[gym.Space[Any], gym.Space[Any]]
Trajectory = list[tuple[dict[Name, Any], Raw]]
"""Joint actions and answers of an episode; the reset comes first, without actions."""

SEED_REMEDY = "Draw everything from one generator that reset(seed=...) makes: self.rng = np.random.default_rng(seed)."


class BrokenError(Exception):
    """Nothing more can be played of this episode; the finding is written down."""


class ForeignChecker:
    """Plays episodes and writes down what it finds.

    `make()` gives an environment. `agents`: names or a pattern that the user's bridge accepts beside declared ones.
    `mask`: the entry of the action mask, if it is not called `action_mask`.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        convention: Convention,
        findings: Findings,
        *,
        agents: str | tuple[str, ...] | None = None,
        mask: str | None = None,
    ) -> None:
        self._make, self._wanted, self._agents, self._mask = make, convention, agents, mask
        self.findings = findings
        self._rules = self._new()
        self.convention = self._rules.foreign.convention
        self._spaces: dict[Name, Spaces] = {}
        self._bad_spaces: set[Name] = set()
        self._stepped_after_end = self._same_object = False

    def _new(self) -> Rules:
        foreign: Foreign = make_foreign(self._make(), self._wanted)
        return (RllibRules if foreign.convention == "rllib" else ParallelRules)(foreign, self.findings)

    # -- episodes ------------------------------------------------------------------------------------------------

    def episode(self, seed: int, max_steps: int, *, cut: bool = False) -> Trajectory:
        """Play an episode with random legal actions, with all checks of single steps.

        `cut`: the user knows that it is cut after `max_steps`.
        """
        findings, rules = self.findings, self._rules
        findings.seed, findings.step, findings.episodes = seed, 0, findings.episodes + 1
        rng = np.random.default_rng([seed, 20])
        episode = Episode()
        trajectory: Trajectory = []
        over = False
        try:
            raw = self._answer(rules, seed, None)
            trajectory.append(({}, copy.deepcopy(raw)))
            over = self._take_in(episode, raw, reset=True)
            while not over and findings.step < max_steps:
                joint = {name: self._action(name, raw.observations[name], rng) for name in episode.present}
                findings.step += 1
                findings.steps += 1
                before = raw
                raw = self._answer(rules, None, joint)
                self._check_aliases(before, trajectory[-1][1])
                trajectory.append((joint, copy.deepcopy(raw)))
                over = self._take_in(episode, raw, reset=False)
        except BrokenError:
            self._rules = self._new()
            return trajectory
        if over:
            self._check_after_end(rules)
        elif not cut:
            findings.note(
                "endless",
                f"the episode has not ended after {max_steps} steps",
                "If it never does, give training a limit: option bridge.max_steps (or check with more --steps).",
            )
        return trajectory

    def _take_in(self, episode: Episode, raw: Raw, *, reset: bool) -> bool:
        """Check an answer and bring `episode` up to it; returns whether the episode is over."""
        rules, findings = self._rules, self.findings
        rules.check(episode, raw, reset=reset)
        for name, observation in raw.observations.items():
            self._check_observation(name, observation)
        for name, reward in raw.rewards.items():
            check_reward(self.findings, name, reward)
        over, done, acting = rules.over(raw), raw.done(), rules.acting(raw)
        if reset and over:
            text = "the episode is over at the reset: `agents` is empty"
            findings.fault("over-at-reset", text, "List at least one agent after a reset.")
        new = [name for name in acting if name not in episode.members]
        stay = episode.members - done
        if not reset:
            findings.events["joins"] += len(new)
            findings.events["absences"] += len((set(episode.present) & stay) - set(acting)) if not over else 0
            findings.events["leaves"] += len(episode.members & done) if not over else 0
        episode.members = stay | set(acting)
        episode.finished |= done
        episode.present, episode.seen = acting, episode.seen | set(acting) | (done & raw.observations.keys())
        findings.agents |= episode.seen
        episode.listed = set(rules.foreign.env.agents) if self.convention == "parallel" else set(acting)
        return over

    def _answer(self, rules: Rules, seed: int | None, joint: dict[Name, Any] | None) -> Raw:
        """A reset with a seed, or a step. Raises BrokenError if it does not return what it must."""
        env = rules.foreign.env
        what, words = "reset", ["observations", "infos"]
        if joint is not None:
            what = "step"
            words = ["observations", "rewards", rules.terminated_word, rules.truncated_word, "infos"]
        try:
            if joint is not None:
                answer = env.step(joint)
            elif self.convention == "rllib":
                answer = env.reset(seed=seed, options=None)
            else:
                answer = env.reset(seed=seed)
        except Exception as error:
            told = " ".join(f"{type(error).__name__}: {error}".split())
            after = "" if joint is None else f" on the legal joint action {short(joint)}"
            self.findings.fault("raised", f"{what} raised {told}{after}", "Mend the environment.")
            raise BrokenError from error
        if not rules.lists_agents():
            raise BrokenError
        if not isinstance(answer, tuple) or len(answer) != len(words):
            size = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
            remedy = f"Return a tuple of {len(words)}: {', '.join(words)}."
            self.findings.fault(f"{what}-length", f"{what} returned {size} instead of {len(words)}", remedy)
            raise BrokenError
        for word, each in zip(words, answer, strict=True):
            if not isinstance(each, Mapping):
                text = f"{word}, which {what} returned, is a {type(each).__name__} instead of a dict by agent"
                self.findings.fault(f"{what}-type", text, "Return a dict with a key for each agent.")
                raise BrokenError
        return Raw(*answer[:-1])

    # -- single values -------------------------------------------------------------------------------------------

    def spaces_of(self, name: Name) -> Spaces | None:
        """Spaces of an agent, checked; None if it has none."""
        try:
            found, again = self._rules.foreign.spaces(name), self._rules.foreign.spaces(name)
        except ValueError as error:
            if name not in self._bad_spaces:
                remedy = "Give every agent that may appear an observation space and an action space."
                self.findings.fault("space-missing", f"it has no spaces: {error}", remedy, name)
                self._bad_spaces.add(name)
            return None
        if self.convention == "parallel" and any(one is not two for one, two in zip(found, again, strict=True)):
            self.findings.note(
                "space-new",
                "its spaces are new objects at every call, which PettingZoo's own test refuses",
                "Make them once: @functools.lru_cache(maxsize=None) above observation_space and action_space.",
                name,
            )
        known = self._spaces.setdefault(name, (copy.deepcopy(found[0]), copy.deepcopy(found[1])))
        if again != found or known != found:
            other = next(pair for pair in (again, known) if pair != found)
            what = "observation" if other[0] != found[0] else "action"
            number = 0 if what == "observation" else 1
            self.findings.fault(
                "space-changes",
                f"its {what} space changes: it was {other[number]} and is {found[number]}",
                "Return the same space at every call: make it once, and mark what is unused by zeros or a mask.",
                name,
            )
        return known

    def _check_observation(self, name: Name, observation: Any) -> None:
        self._check_declared(name)
        spaces = self.spaces_of(name)
        if spaces is None:
            return
        found = misfit(spaces[0], observation)
        if found is not None:
            self.findings.fault(*found, name)
        mask = mask_of(spaces[0], observation, self._mask)
        count = getattr(spaces[1], "n", None)
        if mask is None:
            return
        if count is not None and len(mask) != count:
            text = f"its action mask has {len(mask)} entries for {count} actions"
            self.findings.fault("mask-length", text, "Give the mask an entry for each action.", name)
        elif not mask.any():
            text = "its action mask allows nothing: it does nothing in this step (`without_action` counts it)"
            remedy = "If some action is always legal, such as doing nothing, allow it."
            self.findings.note("mask-empty", text, remedy, name)

    def _check_declared(self, name: Name) -> None:
        agents = self._agents
        try:
            declared = self._rules.foreign.declared()
        except ValueError as error:
            self.findings.fault("possible-agents", str(error), "Make it a list, the same at every call.")
            return
        if not declared or name in declared:
            return
        if isinstance(agents, str) and re.fullmatch(agents, str(name)):
            return
        if agents is not None and not isinstance(agents, str) and name in agents:
            return
        self.findings.fault(
            "not-declared",
            "it was not declared: it is not in `possible_agents`",
            "Name it in `possible_agents`, or accept it by a pattern: option bridge.agents, e.g. 'walker_.*'.",
            name,
        )

    def _check_aliases(self, before: Raw, copied: Raw) -> None:
        """Observations that changed after they were returned."""
        for name, observation in before.observations.items():
            if not same(observation, copied.observations[name]):
                self.findings.note(
                    "observation-changes",
                    "the observation that it was given before changed during this step: the environment writes into "
                    "an array that it has handed out; whoever kept it (RLlib's episodes do) trains on wrong numbers",
                    "Return a copy: observation.copy().",
                    name,
                )

    def _action(self, name: Name, observation: Any, rng: np.random.Generator) -> Any:
        spaces = self.spaces_of(name)
        if spaces is None:
            raise BrokenError
        return random_action(spaces[1], mask_of(spaces[0], observation, self._mask), rng)

    # -- whole episodes ------------------------------------------------------------------------------------------

    def _check_after_end(self, rules: Rules) -> None:
        """A step after the end, once: an error, or nobody's observations."""
        if self._stepped_after_end:
            return
        self._stepped_after_end = True
        name, crash = whom_it_answers(lambda: rules.foreign.env.step({}))
        remedy = "Return empty dicts after the end, or raise an error."
        if crash is not None:
            self.findings.note("after-end-crash", f"a step after the end of the episode {crash}", remedy)
        elif name is not None:
            text = "a step after the end of the episode gives it an observation, as if the episode went on"
            self.findings.note("after-end", text, remedy, name)

    def check_new_each_time(self) -> None:
        """Whether every copy will be an object of its own."""
        another = self._new()
        self._same_object = another.foreign.env is self._rules.foreign.env
        if self._same_object:
            text = "what makes the environment gave the same object twice: copies would play in one world"
            self.findings.fault("same-object", text, "Make a new environment at every call.")
        else:
            self._closed(another)

    def check_repeats(self, seed: int, trajectory: Trajectory) -> None:
        """The same seed and actions again: alone, and with another copy that plays in between."""
        if self._same_object:
            return  # told already, and there is no second environment to compare with
        alone, touched = watched(lambda: self._first_difference(seed, trajectory, other=False))
        for name in touched:
            self.findings.seed, self.findings.step = seed, None
            self.findings.fault(
                "global-random",
                f"the environment draws from the global generator of {name}, which all copies in a process share",
                SEED_REMEDY,
            )
        if alone is not None:
            step, who, what = alone
            self.findings.seed, self.findings.step = seed, step
            kind, text = "seed-ignored", f"{what} differs between two resets with the same seed"
            if step > 0:
                kind, text = "not-repeatable", f"{what} differs when the same seed and actions are played again"
            if self._new_ones_agree(seed, trajectory[: step + 1]):
                kind = "episode-leaks"
                text = f"{what} depends on episodes before: with the same seed and actions a new environment differs"
                self.findings.fault(kind, text, "Let reset put back everything that step has changed.", who)
            else:
                self.findings.fault(kind, text, SEED_REMEDY, who)
            return
        together = self._first_difference(seed, trajectory, other=True)
        if together is not None and not touched:
            self.findings.seed, self.findings.step = seed, together[0]
            who, what = together[1:]
            self.findings.fault(
                "copies-share",
                f"{what} differs when another copy of the environment is played in between: copies share something",
                "Keep everything in `self`: no attributes of the class or the module that change.",
                who,
            )

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """What is found meanwhile is nobody's."""
        kept, self.findings = self.findings, Findings()
        try:
            yield
        finally:
            self.findings = kept

    def _again(self, seed: int, trajectory: Trajectory, *, other: bool) -> Iterator[Raw]:
        """Answers of a new environment to the actions of a trajectory; `other`: with another one reset in between."""
        rules, neighbour = self._new(), self._new() if other else None
        for step, (joint, _) in enumerate(trajectory):
            if neighbour is not None:
                self._answer(neighbour, seed + 1_000_003, None)
            yield self._answer(rules, seed, None) if step == 0 else self._answer(rules, None, joint)

    def _new_ones_agree(self, seed: int, trajectory: Trajectory) -> bool:
        """Whether two new environments say the same when these actions are played."""
        with self._quietly():
            try:
                answers = [copy.deepcopy(answer) for answer in self._again(seed, trajectory, other=False)]
            except BrokenError:
                return False
        first = [(joint, answer) for (joint, _), answer in zip(trajectory, answers, strict=True)]
        return self._first_difference(seed, first, other=False) is None

    def _first_difference(
        self, seed: int, trajectory: Trajectory, *, other: bool
    ) -> tuple[int, Name | None, str] | None:
        """Step, agent and what first differs from a trajectory when it is played again in a new environment."""
        step = 0
        with self._quietly():
            try:
                for answer in self._again(seed, trajectory, other=other):
                    found = difference(trajectory[step][1], answer)
                    if found is not None:
                        return step, *found
                    step += 1
            except BrokenError:
                return step, None, "whether it raises an error"
        return None

    def check_illegal_action(self, seed: int) -> None:
        """An action outside its space: should be refused."""
        with self._quietly():
            try:
                rules = self._new()
                raw = self._answer(rules, seed, None)
                acting = rules.acting(raw)
                rng = np.random.default_rng(0)
                joint = {name: self._action(name, raw.observations[name], rng) for name in acting}
                wrong = action_outside(self._spaces[acting[0]][1]) if acting else None
                if wrong is None:
                    return
                self._answer(rules, None, joint | {acting[0]: wrong})
            except BrokenError:
                return
        self.findings.seed, self.findings.step = seed, 1
        self.findings.note(
            "illegal-accepted",
            f"the action {wrong}, which its space {self._spaces[acting[0]][1]} does not contain, is accepted",
            "Raise an error for it: a wrong mapping of actions would go unnoticed otherwise.",
            acting[0],
        )

    def check_seeds_differ(self, resets: Mapping[int, Raw]) -> None:
        """Whether any two seeds begin differently."""
        answers = list(resets.values())
        if len(answers) > 1 and all(difference(answers[0], each) is None for each in answers[1:]):
            self.findings.seed, self.findings.step = next(iter(resets)), 0
            self.findings.note(
                "same-start",
                f"all {len(answers)} seeds begin with the same observations",
                "If the start should be random, use the seed of reset.",
            )

    def close(self) -> None:
        """Release the environment."""
        self._closed(self._rules)

    def _closed(self, rules: Rules) -> None:
        try:
            rules.foreign.close()
        except Exception as error:  # noqa: BLE001 - it is told
            text = f"close raised {short(f'{type(error).__name__}: {error}')}"
            self.findings.note("close-raised", text, "Let close be called at any time, also twice.")
