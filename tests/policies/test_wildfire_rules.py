"""The hand-written rules: worked decisions, fair ties, and their mean returns against the specification's table."""

import sys
import time
from typing import Any

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import pointer
from rl_openness.envs.wildfire import make_wildfire
from rl_openness.envs.wildfire.view import AGENT_COLUMNS, PAIR_COLUMNS, TASK_COLUMNS
from rl_openness.errors import UserError
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.policies.wildfire import make_rule, wildfire_rules

NAMES = ("noop", "random", "weakest", "strongest", "solo", "coalition")


def scene(
    fires: list[tuple[int, int]], options: list[list[int]], power: list[float] | None = None, copies: int = 1
) -> PackedObs:
    """The same scene in every copy: fires as (size, intensity) in row-major order, and each agent's options among them.

    An agent without options is away.
    """
    agents, tasks = len(options), len(fires)
    agent_rows = np.zeros((agents, len(AGENT_COLUMNS)), dtype=np.float32)
    agent_rows[:, AGENT_COLUMNS.index("power")] = power or 1.0
    task_rows = np.zeros((tasks, len(TASK_COLUMNS)), dtype=np.float32)
    task_rows[:, TASK_COLUMNS.index("size")] = [size for size, _ in fires]
    task_rows[:, TASK_COLUMNS.index("intensity")] = [intensity for _, intensity in fires]
    pairs = np.array([(i, x) for i, own in enumerate(options) for x in own], dtype=np.int64).reshape(-1, 2)
    shift = np.repeat(np.arange(copies), len(pairs))
    return PackedObs(
        agent_rows=np.tile(agent_rows, (copies, 1)),
        present=np.tile([bool(own) for own in options], copies),
        carry=np.full(copies * agents, -1),
        agent_id=np.tile(np.arange(agents), copies),
        agent_ptr=pointer(np.full(copies, agents)),
        task_rows=np.tile(task_rows, (copies, 1)),
        task_ptr=pointer(np.full(copies, tasks)),
        pair_agent=np.tile(pairs[:, 0], copies) + shift * agents,
        pair_task=np.tile(pairs[:, 1], copies) + shift * tasks,
        pair_rows=np.zeros((copies * len(pairs), len(PAIR_COLUMNS)), dtype=np.float32),
    )


def decide(name: str, *args: Any, copies: int = 1, **kwargs: Any) -> np.ndarray:
    """Choices [copies, agents] of a rule in a scene."""
    obs = scene(*args, copies=copies, **kwargs)
    draws = DecisionDraws(np.arange(copies, dtype=np.uint64) * np.uint64(7919))
    return make_rule(name).act(obs, draws).reshape(copies, -1)


def shares(choices: np.ndarray) -> dict[int, float]:
    values, counts = np.unique(choices, return_counts=True)
    return {int(value): count / choices.size for value, count in zip(values, counts, strict=True)}


FIRES = [(2, 3), (1, 1), (1, 2), (2, 1)]  # (size, intensity)


def test_noop_never_fights() -> None:
    assert decide("noop", FIRES, [[0, 1, 2], [], [3]]).tolist() == [[NO_OP] * 3]


@pytest.mark.parametrize(
    ("name", "choices"),
    [("weakest", [1, NO_OP, 0, 1]), ("strongest", [0, NO_OP, 0, 0]), ("solo", [1, NO_OP, NO_OP, 0])],
)
def test_clear_decisions(name: str, choices: list[int]) -> None:
    """Choices count an agent's own options: the third agent's only one is the fourth fire."""
    options = [[0, 1], [], [3], [2, 3]]
    assert decide(name, FIRES, options, copies=50).tolist() == [choices] * 50


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_do(name: str) -> None:
    assert decide(name, [], [[], [], []]).tolist() == [[NO_OP] * 3]
    assert decide(name, FIRES, [[], []], copies=2).tolist() == [[NO_OP] * 2] * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("random", {NO_OP: 0.2, 0: 0.2, 1: 0.2, 2: 0.2, 3: 0.2}),
        ("weakest", {1: 0.5, 3: 0.5}),
        ("strongest", {0: 1.0}),
        ("solo", {1: 0.5, 2: 0.5}),
    ],
)
def test_ties_are_fair_and_independent(name: str, expected: dict[int, float]) -> None:
    copies = 40_000
    choices = decide(name, FIRES, [[0, 1, 2, 3], [0, 1, 2, 3]], copies=copies)
    for column in choices.T:
        assert shares(column) == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(copies))
    if len(expected) > 1:
        assert abs(np.corrcoef(choices.T)[0, 1]) < 5 / np.sqrt(copies)


@pytest.mark.parametrize(
    ("fires", "options", "choices"),
    [
        (
            [(2, 3), (1, 2)],
            [[0], [0, 1], [1]],
            [NO_OP, 1, NO_OP],
        ),  # the weak fire first; it leaves too few for the other
        ([(2, 1), (1, 2)], [[0], [0, 1], [1]], [0, 0, 0]),  # the weakest first, then the next
        ([(1, 2), (1, 2), (1, 2)], [[0, 1, 2], [0, 1, 2], [0, 1, 2]], [0, 1, 2]),  # ties: row-major, by agent index
        ([(2, 1), (3, 2)], [[0, 1], [0, 1], [1]], [0, 0, NO_OP]),  # the rest cannot match the other fire
        ([(3, 1)], [[0], [0], []], [NO_OP, NO_OP, NO_OP]),  # who is away does not count
        ([(1, 1)], [[0], [0], [0]], [0, NO_OP, NO_OP]),  # no more than needed
        ([(2, 1)], [[], [0], [0]], [NO_OP, 0, 0]),
        ([(1, 1)] * 4, [[0], [1], [2], [3]], [0, 0, 0, NO_OP]),  # three coalitions at most
    ],
)
def test_coalitions(fires: list[tuple[int, int]], options: list[list[int]], choices: list[int]) -> None:
    assert decide("coalition", fires, options, copies=2).tolist() == [choices] * 2


def test_coalitions_add_up_powers() -> None:
    assert decide("coalition", [(2, 1)], [[0], [0], [0]], [0.5, 1.5, 1.0]).tolist() == [[0, 0, NO_OP]]
    assert decide("coalition", [(2, 1)], [[0], [0], [0]], [0.5, 0.5, 0.5]).tolist() == [[NO_OP] * 3]
    assert decide("coalition", [(2, 1)], [[0], [0], [0]], [2.0, 1.0, 1.0]).tolist() == [[0, NO_OP, NO_OP]]


@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_legal_and_depend_on_the_copy_alone(name: str) -> None:
    rule = make_rule(name)
    env = make_wildfire(7, setup="4x4/S3", team_size=5)
    for _ in range(40):
        obs, draws = env.observe(), env.draws()
        choices = rule.act(obs, draws)
        assert choices.dtype == np.int64
        assert (choices[~obs.present] == NO_OP).all()
        some = np.array([4, 1])
        alone = rule.act(obs.select(some), DecisionDraws(draws.keys[some]))
        np.testing.assert_array_equal(alone, choices.reshape(7, 5)[some].ravel())
        env.step(choices)  # raises on an illegal choice


@pytest.mark.parametrize("name", NAMES)
def test_rules_act_without_given_draws(name: str) -> None:
    obs = make_wildfire(3).observe()
    assert make_rule(name).act(obs).shape == obs.present.shape


def test_names() -> None:
    assert tuple(wildfire_rules()) == NAMES
    assert [make_rule(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(UserError, match="unknown rule 'weekest'; did you mean 'weakest'"):
        make_rule("weekest")


# Specification part 13: means over 4,000 episodes of an independent model, rules in the order of NAMES.
TABLE = {
    "2x3/S0": (-4.0, 3.96, 4.0, 4.0, 4.0, 4.0),
    "2x3/S1": (-46.8, 48.9, 47.7, 25.7, 35.2, 42.4),
    "2x3/S2": (-49.0, 66.8, 119.6, 109.1, 109.6, 170.0),
    "3x3/S0": (-16.0, -5.2, 10.2, 11.3, -16.0, 11.8),
    "3x3/S1": (-116.8, -76.5, 7.3, -51.0, -32.0, 31.1),
    "3x3/S3": (-128.2, -90.2, -32.9, -65.6, -58.6, -1.3),
    "4x4/S0": (-24.0, -6.3, 11.4, 6.9, -16.0, 15.9),
    "4x4/S1": (-75.1, -51.2, 24.3, -32.9, -67.1, 40.3),
    "4x4/S3": (-152.2, -102.4, -12.0, -77.0, -16.9, 60.0),
    "5x5/S1": (-100.6, -35.4, 33.6, -44.2, 15.6, 50.1),
}
EPISODES, TABLE_EPISODES, ROUNDING = 3000, 4000, 0.05


@pytest.mark.parametrize("setup", TABLE)
def test_mean_returns(setup: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Within 4 standard errors of the difference between two samples (about 1.2 s of CPU time per setup)."""
    started = time.process_time()
    env = make_wildfire(1500, setup=setup)
    lines = []
    for name, expected in zip(NAMES, TABLE[setup], strict=True):
        returns = play_episodes(env, make_rule(name), range(EPISODES))["return"]
        error = returns.std() * np.sqrt(1 / EPISODES + 1 / TABLE_EPISODES)
        lines.append(f"{name} {returns.mean():.2f} ({expected})")
        assert abs(returns.mean() - expected) <= 4 * error + ROUNDING, lines[-1]
    with capsys.disabled():
        sys.stdout.write(f"\n  {setup}, {time.process_time() - started:.1f} s of CPU time: {', '.join(lines)}")
