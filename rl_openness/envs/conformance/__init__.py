"""Does an environment keep the rules that training relies on? Random legal actions, and what went wrong as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_openness.envs.adapters.foreign import convention_of, made
from rl_openness.envs.adapters.options import BridgeOptions
from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.conformance.findings import Finding, Findings, Report
from rl_openness.envs.conformance.foreign import ForeignChecker
from rl_openness.envs.conformance.native import NativeChecker
from rl_openness.envs.registry import make_environment, user_target
from rl_openness.errors import UserError

__all__ = ["Finding", "Report", "check_environment", "check_foreign", "check_native"]

EPISODES, STEPS = 5, 200
"""As many episodes, each of another seed, and at most so many steps in each."""


def check_environment(
    name: str, options: Mapping[str, Any] | None = None, *, episodes: int = EPISODES, seed: int = 0, steps: int = STEPS
) -> Report:
    """Check an environment by its name or `module:attribute`; episodes have the seeds `seed`, `seed` + 1 and so on.

    One foreign environment is checked against the rules of its own library, then bridged and checked like a native
    one. Raises UserError if there is no such environment or an option is wrong.
    """
    options = options or {}
    target = user_target(name)
    if target is None or target.many:
        return check_native(lambda n: make_environment(name, n, options), episodes=episodes, seed=seed, steps=steps)
    bridge = target.bridge(options)
    return check_foreign(target.single(options), bridge, episodes=episodes, seed=seed, steps=steps, name=name)


def check_native(
    make: Callable[[int], OpenVectorEnv], *, episodes: int = EPISODES, seed: int = 0, steps: int = STEPS
) -> Report:
    """Check what `make(num_copies)` gives."""
    findings = Findings()
    NativeChecker(make, findings).run(list(range(seed, seed + episodes)), steps)
    return findings.report("native")


def check_foreign(
    make: Callable[[], Any],
    bridge: BridgeOptions | None = None,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    steps: int = STEPS,
    name: str | None = None,
) -> Report:
    """Check the PettingZoo `ParallelEnv` or RLlib `MultiAgentEnv` that `make()` gives.

    Raises UserError if it is neither and `bridge.convention` does not say which it is like.
    """
    options, findings = bridge or BridgeOptions(), Findings()
    if options.convention == "auto":
        convention_of(made(make))
    checker = ForeignChecker(make, options.convention, findings, agents=options.agents, mask=options.mapping.mask)
    limit = min(steps, options.max_steps or steps)
    starts = {}
    checker.check_new_each_time()
    for each in range(seed, seed + episodes):
        trajectory = checker.episode(each, limit, cut=limit == options.max_steps)
        if trajectory:
            starts[each] = trajectory[0][1]
        if len(starts) <= 2 and trajectory:  # two seeds tell
            checker.check_repeats(each, trajectory)
    checker.check_seeds_differ(starts)
    checker.check_illegal_action(seed)
    checker.close()
    if not findings.any_fault():
        _check_bridged(make, options, findings, seed, limit, name or "environment")
    return findings.report(checker.convention)


def _check_bridged(
    make: Callable[[], Any], options: BridgeOptions, findings: Findings, seed: int, steps: int, name: str
) -> None:
    """The environment as training sees it; faults that are left are told as faults of the bridge."""
    bridged = Findings()
    findings.seed, findings.step = seed, None
    try:
        checker = NativeChecker(lambda n: options.bridged(make, n, name), bridged)
        checker.run([seed, seed + 1], min(steps, 50))
    except UserError as error:
        remedy = "Say what the observations mean: option bridge.mapping (own, shared, tasks, pairs, mask)."
        findings.fault("bridge", f"it cannot be bridged: {error}", remedy)
    for each in bridged.report("native").faults:
        findings.seed, findings.step = each.seed, each.step
        findings.fault(f"bridged-{each.kind}", f"once bridged, {each.text}", each.remedy, each.agent)
