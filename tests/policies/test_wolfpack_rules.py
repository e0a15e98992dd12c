"""The hand-written Wolfpack rules: worked decisions, and the recorded choices of the reference's teammates."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_openness.envs.base import NO_OP, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import pointer
from rl_openness.envs.wolfpack.view import AGENT_COLUMNS, TASK_COLUMNS
from rl_openness.errors import UserError
from rl_openness.policies.wolfpack import HEURISTICS, KINDS, WolfpackRule, make_wolfpack_rule, wolfpack_rules
from rl_openness.policies.wolfpack_search import first_move
from tests.envs.wolfpack.recorded import TYPES, Json, files, load

Cells = list[list[int]]
UP, RIGHT, DOWN, LEFT, STAY = range(5)


def scene(
    pred: Cells,
    prey: Cells,
    alive: list[bool] | None = None,
    *,
    traits: list[tuple[int, int]] | None = None,
    size: int = 10,
    copies: int = 1,
) -> PackedObs:
    """The same scene in every copy; `traits` are radius and threshold of each predator."""
    agents, tasks = np.zeros((len(pred), len(AGENT_COLUMNS))), np.zeros((len(prey), len(TASK_COLUMNS)))
    agents[:, :2], tasks[:, :2] = pred, np.reshape(prey, (-1, 2))
    agents[:, 3:5] = traits or (2, 1)
    agents[:, AGENT_COLUMNS.index("size")] = size
    tasks[:, 2] = 1.0
    tasks[:, TASK_COLUMNS.index("alive")] = True if alive is None else alive
    members = copies * len(pred)
    return PackedObs(
        agent_rows=np.tile(agents, (copies, 1)).astype(np.float32),
        present=np.ones(members, dtype=np.bool_),
        carry=np.full(members, -1),
        agent_id=np.tile(np.arange(len(pred)), copies),
        agent_ptr=pointer(np.full(copies, len(pred))),
        task_rows=np.tile(tasks, (copies, 1)).astype(np.float32),
        task_ptr=pointer(np.full(copies, len(prey))),
        pair_agent=np.empty(0, dtype=np.int64),
        pair_task=np.empty(0, dtype=np.int64),
        pair_rows=np.empty((0, 0), dtype=np.float32),
    )


def decide(name: str, pred: Cells, prey: Cells, *args: Any, copies: int = 60, **kwargs: Any) -> np.ndarray:
    """Choices [copies, predators] of a rule in a scene; the draws of a copy are the same for every rule."""
    obs = scene(pred, prey, *args, copies=copies, **kwargs)
    draws = DecisionDraws(np.arange(copies, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return make_wolfpack_rule(name).act(obs, draws).reshape(copies, -1)


def shares(choices: np.ndarray) -> dict[int, float]:
    values, counts = np.unique(choices, return_counts=True)
    return {int(value): count / choices.size for value, count in zip(values, counts, strict=True)}


def always(name: str, *args: Any, **kwargs: Any) -> int:
    """The first predator's choice, which nothing random may change."""
    (choice,) = shares(decide(name, *args, **kwargs)[:, 0])
    return choice


def test_random_is_uniform() -> None:
    found = shares(decide("random", [[0, 0], [5, 5]], [[3, 3]], copies=40_000))
    assert found == pytest.approx(dict.fromkeys(range(5), 0.2), abs=0.006)


@pytest.mark.parametrize(
    ("pred", "prey", "choice"),
    [
        ([5, 5], [[5, 4]], LEFT),  # beside a prey: push
        ([5, 5], [[4, 5]], UP),
        ([5, 5], [[5, 6], [4, 5]], RIGHT),  # the first prey
        ([5, 5], [[2, 5]], UP),
        ([5, 5], [[7, 5]], DOWN),
        ([5, 5], [[9, 9]], DOWN),  # of the two nearest cells the left one, (9, 8): farther down than across
        ([5, 5], [[8, 8]], DOWN),  # (8, 7)
        ([5, 5], [[8, 9]], RIGHT),  # (8, 8): a tie goes sideways
        ([5, 5], [[0, 5], [5, 9]], RIGHT),  # the nearest prey
        ([5, 5], [[5, 9], [1, 5]], RIGHT),  # the first of two
        ([0, 5], [[0, 9]], RIGHT),
    ],
)
def test_greedy(pred: list[int], prey: Cells, choice: int) -> None:
    assert always("greedy", [pred], prey) == choice
    assert always("greedy", [pred], [[pred[0], pred[1] + 1], *prey], [False] + [True] * len(prey)) == choice  # dead
    assert always("greedy", [pred, [9, 0], [0, 0]], prey) == choice  # the others do not matter


def test_greedy_without_live_prey_is_random() -> None:
    for name in ("greedy", "greedy_probabilistic", "greedy_waiting"):
        found = shares(decide(name, [[5, 5]], [[5, 6]], [False], copies=20_000))
        assert found == pytest.approx(dict.fromkeys(range(5), 0.2), abs=0.012)


def test_greedy_probabilistic() -> None:
    """An axis and a side of it by softmax at temperature 2.5; a step off the grid costs 5."""
    found = shares(decide("greedy_probabilistic", [[3, 2]], [[9, 2]], copies=40_000))  # to (8, 2): 5 down
    upright, gain = 1 / (1 + np.exp(-5 / 2.5)), 1 / (1 + np.exp(-2 / 2.5))
    across = (1 - upright) * np.array([gain, 1 - gain])  # with no offset across, right counts as the way there
    expected = [upright * (1 - gain), across[0], upright * gain, across[1]]
    assert found == pytest.approx(dict(enumerate(expected)), abs=0.01)
    edge = shares(decide("greedy_probabilistic", [[0, 0]], [[9, 0]], copies=40_000))  # up and left are off the grid
    gain = 1 / (1 + np.exp(-7 / 2.5))
    upright = 1 / (1 + np.exp(-8 / 2.5))
    expected = [upright * (1 - gain), (1 - upright) * gain, upright * gain, (1 - upright) * (1 - gain)]
    assert edge == pytest.approx(dict(enumerate(expected)), abs=0.01)


@pytest.mark.parametrize("name", ["teammate_aware", "teammate_aware_shortest"])
def test_teammate_aware_shares_the_sides_out(name: str) -> None:
    """Who is farther away chooses first and takes the near side, though the other stands there already."""
    prey = [[5, 6]]
    assert always(name, [[5, 5]], prey) == RIGHT  # on its own cell: push
    both = decide(name, [[5, 4], [5, 5]], prey, copies=400)
    assert len(shares(both[:, 0])) == 5  # (5, 5) is its cell, but taken: no way there
    assert set(both[:, 1].tolist()) == {UP}  # round the prey to (5, 7), the first in the list of equals
    assert always(name, [[5, 5]], prey, [False]) == RIGHT  # dead prey are still prey to it
    assert always(name, [[5, 5]], [[5, 7], [4, 6]]) == RIGHT  # (5, 6) is beside both, but the first prey's


def test_teammate_aware_searches_in_the_published_order() -> None:
    """The smallest cell first: to the left it climbs to the top row before anything else; A* goes straight."""
    assert always("teammate_aware", [[5, 5]], [[5, 1]]) == UP
    assert always("teammate_aware_shortest", [[5, 5]], [[5, 1]]) == LEFT
    for name in ("teammate_aware", "teammate_aware_shortest"):
        assert always(name, [[5, 5]], [[5, 9]]) == RIGHT


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.data())
def test_searches_find_a_way_if_there_is_one(size: int, data: st.DataObject) -> None:
    """The exact search's first move is on a shortest way; the published one's leads on to the end."""
    cells = st.integers(0, size * size - 1)
    blocked = np.zeros(size * size, dtype=np.bool_)
    blocked[data.draw(st.lists(cells, max_size=size * size // 2))] = True
    begin, end = data.draw(st.lists(cells, min_size=2, max_size=2, unique=True))
    scratch = np.zeros((2, size * size), dtype=np.int64)
    steps = steps_to(end, size, blocked)

    def first(exact: bool) -> int:
        way = first_move(size, begin, end, blocked, exact, scratch[0], scratch[1], np.zeros(size * size, np.bool_))
        return -1 if way < 0 else begin + (-size, 1, size, -1)[way]

    reach = steps[[cell for cell in neighbours(begin, size) if not blocked[cell]]].min(initial=size * size)
    if blocked[end] or reach == size * size:
        assert first(True) == first(False) == -1
    else:
        assert steps[first(True)] == reach
        assert first(False) in neighbours(begin, size)
        assert steps[first(False)] < size * size


def neighbours(cell: int, size: int) -> list[int]:
    row, col = divmod(cell, size)
    near = ((row - 1, col), (row, col + 1), (row + 1, col), (row, col - 1))
    return [y * size + x for y, x in near if min(y, x) >= 0 and max(y, x) < size]


def steps_to(end: int, size: int, blocked: np.ndarray) -> np.ndarray:
    """Length of the shortest way from every cell to `end`; size * size if there is none."""
    steps = np.full(size * size, size * size)
    steps[end] = 0
    queue = [end]
    for cell in queue:
        for near in neighbours(cell, size):
            if not blocked[near] and steps[near] == size * size:
                steps[near] = steps[cell] + 1
                queue.append(near)
    return steps


def test_teammate_aware_without_a_way_is_random() -> None:
    """A cell that is taken has no way to it; nor does anyone without a cell of its own get one."""
    walled = [[0, 0], [0, 1], [1, 0]]
    for name in ("teammate_aware", "teammate_aware_shortest"):
        first = decide(name, walled, [[5, 5]], copies=20_000)[:, 0]
        assert shares(first) == pytest.approx(dict.fromkeys(range(5), 0.2), abs=0.012)
        crowd = [[9, 9], [9, 8], [8, 9], [9, 7], [7, 9], [0, 2], [2, 0]]
        spare = decide(name, crowd, [[0, 0]], copies=20_000)  # only two cells beside the prey
        assert len(shares(spare[:, 5])) == 5


def test_waiting_steps_back_from_a_prey_without_help() -> None:
    pred, prey = [[5, 4], [0, 0]], [[5, 6]]
    assert always("greedy_waiting", pred, prey, traits=[(2, 1)] * 2) == LEFT
    assert always("greedy", pred, prey) == RIGHT
    helped = [[5, 4], [4, 6]]
    assert always("greedy_waiting", helped, prey, traits=[(2, 1)] * 2) == RIGHT
    assert always("greedy_waiting", helped, prey, traits=[(2, 2)] * 2) == LEFT  # two helpers wanted
    assert always("greedy_waiting", [[5, 3], [0, 0]], prey, traits=[(2, 1)] * 2) == RIGHT  # not yet near
    assert always("greedy_waiting", [[5, 0], [0, 0]], [[5, 1]], traits=[(2, 1)] * 2) == DOWN  # the wall is behind it


def test_who_has_no_kind_does_nothing() -> None:
    obs = scene([[0, 0], [1, 1], [2, 2]], [[5, 5]])
    choices = WolfpackRule.decide(obs, np.array([-1, 1, -1]), DecisionDraws.fresh(1))
    assert choices.tolist() == [NO_OP, DOWN, NO_OP]


def test_names() -> None:
    assert tuple(wolfpack_rules()) == KINDS
    assert KINDS[:7] == HEURISTICS
    assert [rule.name for rule in wolfpack_rules().values()] == list(KINDS)
    with pytest.raises(UserError, match="unknown rule 'gredy'; did you mean 'greedy'"):
        make_wolfpack_rule("gredy")


# --- the recorded choices -------------------------------------------------------------------------------------------

CALLS = {"GreedyPredatorAgent": (25, 300), "GreedyProbabilisticAgent": (40, 1500), "TeammateAwarePredator": (12, 80)}
STATES = [(name, number) for name in files("teammates") for number in range(len(load(name)["states"]))]


def check_shares(recorded: list[list[float]], ours: np.ndarray, calls: tuple[int, int]) -> None:
    """The same action always, or the same shares within 4 standard errors of both samples."""
    found, theirs = shares(ours), {int(action): share for action, share in recorded}
    few, many = calls
    if len(theirs) == 1:
        (action,) = theirs
        assert found.get(action, 0.0) ** few > 1e-4
        return
    for action in range(5):
        p, q = theirs.get(action, 0.0), found.get(action, 0.0)
        pooled = (p * many + q * len(ours)) / (many + len(ours))
        assert abs(p - q) <= 4 * np.sqrt(pooled * (1 - pooled) * (1 / many + 1 / len(ours))) + 1e-4


@pytest.mark.parametrize("name", files("teammates"))
def test_recorded_choices(name: str) -> None:
    for state in load(name)["states"]:
        where = (state["pred"], state["prey"], state["alive"])
        for kind, calls in CALLS.items():
            ours = decide(TYPES[kind], *where, copies=4000 if kind == "GreedyProbabilisticAgent" else 400)
            for index, recorded in state["choice"].items():
                check_shares(recorded[kind], ours[:, int(index)], calls)


@pytest.mark.parametrize("name", files("teammates"))
def test_recorded_waiting(name: str) -> None:
    """What the Waiting types do: a step away, or exactly what their base type does with the same draws."""
    checked = 0
    for state in load(name)["states"]:
        where = (state["pred"], state["prey"], state["alive"])
        for kind in ("GreedyWaitingAgent", "GreedyProbabilisticWaitingAgent", "TeammateAwareWaitingAgent"):
            rule = TYPES[kind]
            base = decide(rule.removesuffix("_waiting"), *where)
            for radius in (2, 3, 4):
                for threshold in (1, 2):
                    ours = decide(rule, *where, traits=[(radius, threshold)] * len(state["pred"]))
                    for index, recorded in state["choice"].items():
                        waits = recorded[f"{kind}:{radius}:{threshold}"]
                        own = ours[:, int(index)]
                        if waits == [[-1, 1]]:
                            np.testing.assert_array_equal(own, base[:, int(index)])
                        else:
                            check_shares(waits, own, (12, 80))
                        checked += 1
    assert checked > 1000


def support(kind: str, traits: list[int], state: Json, index: int) -> set[int]:
    """Actions that the rule of a recorded teammate may take."""
    own = (traits[0], traits[1]) if traits else (2, 1)
    choices = decide(TYPES[kind], state["pred"], state["prey"], state["alive"], traits=[own] * len(state["pred"]))
    found = {*choices[:, index].tolist()}
    return found if len(found) == 1 or "probabilistic" not in TYPES[kind] else {UP, RIGHT, DOWN, LEFT, *found}


@pytest.mark.parametrize("name", [*files("trace"), *files("draws")])
def test_recorded_actions_are_possible(name: str) -> None:
    """Every action of a rule's teammate in the recorded episodes lies in the rule's support at that state."""
    checked = 0
    for episode in load(name)["episodes"]:
        state = episode["start"]
        for record in episode["steps"]:
            for index, (kind, *traits) in enumerate(state["team"], start=1):
                if TYPES[kind] not in ("", "random"):
                    assert record["acts"][index] in support(kind, traits, state, index)
                    checked += 1
            state = record["next"]
    assert checked > 100
