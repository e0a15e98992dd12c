"""The foraging teammates H1 to H8: worked decisions, and the reference's recorded choices."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.foraging import ForagingConfig
from rl_openness.envs.foraging.rules import EAST, LOAD, NONE, NORTH, SLOT, SOUTH, WEST
from rl_openness.envs.foraging.view import pack
from rl_openness.policies.foraging import ForagingRule, foraging_rules
from tests.envs.foraging.golden import Json, config_of, files, load, recorded_state, transitions

NAMES = [f"H{kind + 1}" for kind in range(8)]
SAMPLE = 400  # calls behind a recorded share


def scene(
    players: Sequence[tuple[int, int, int]], foods: Sequence[tuple[int, int, int]], slots: Sequence[int] | None = None
) -> PackedObs:
    """One copy with players (row, column, level) in listing order; slots are 0, 1, 2, ... unless given."""
    order = list(slots or range(len(players)))
    size = max(order) + 1
    config = ForagingConfig(slots=max(size, 3), max_food=max(len(foods), 1))
    seats: list[list[int | None] | None] = [None] * config.slots
    for slot, player in zip(order, players, strict=True):
        seats[slot] = [*player, None]
    record = {"t": 0, "span": [0] * config.slots, "order": order, "foods": sorted(foods), "players": seats}
    return pack(config, recorded_state(config, [record]), np.array([0]))


def shares(name: str, obs: PackedObs, member: int, calls: int = 600) -> dict[int, float]:
    """How often one member of a one-copy scene takes each action that it ever takes."""
    many = obs.select(np.zeros(calls, dtype=np.int64))
    choices = foraging_rules()[name].act(many, DecisionDraws(np.arange(calls, dtype=np.uint64)))
    actions, counts = np.unique(choices.reshape(calls, -1)[:, member], return_counts=True)
    return {int(action): count / calls for action, count in zip(actions, counts, strict=True)}


def only(
    name: str, players: Sequence[tuple[int, int, int]], foods: Sequence[tuple[int, int, int]], **where: int
) -> int:
    """The one action that player 0 ever takes."""
    found = shares(name, scene(players, foods), where.get("member", 0), calls=200)
    assert len(found) == 1, found
    return next(iter(found))


def test_walking_north_south_east_west_then_load() -> None:
    assert only("H1", [(5, 5, 1), (0, 0, 1)], [(3, 3, 1)]) == NORTH  # also to the west, but rows come first
    assert only("H1", [(2, 5, 1), (0, 0, 1)], [(4, 3, 1)]) == SOUTH
    assert only("H1", [(3, 1, 1), (0, 0, 1)], [(3, 3, 1)]) == EAST
    assert only("H1", [(3, 5, 1), (0, 0, 1)], [(3, 3, 1)]) == WEST
    assert only("H1", [(3, 4, 1), (0, 0, 1)], [(3, 3, 1)]) == LOAD


def test_food_in_the_way_is_walked_around_or_waited_out() -> None:
    # H5 heads for (5, 3) straight through the food at (3, 3): to the south there is food, no column to mend.
    blocked = scene([(2, 3, 1), (2, 4, 1)], [(3, 3, 1), (6, 3, 1)])
    assert shares("H5", blocked, 0).keys() == {NONE, NORTH, WEST, EAST, LOAD}
    assert only("H5", [(2, 3, 1), (2, 4, 1)], [(3, 3, 1), (6, 4, 1)]) == EAST
    assert only("H1", [(1, 3, 1), (2, 3, 1)], [(3, 3, 1)]) == SOUTH  # a player in the way is no obstacle


def test_nearest_and_farthest_take_the_first_of_equals() -> None:
    players = [(3, 3, 1), (7, 7, 1)]
    assert only("H1", players, [(1, 3, 1), (3, 5, 1), (5, 3, 1)]) == NORTH
    assert only("H5", players, [(3, 1, 1), (5, 3, 1)]) == WEST
    assert only("H5", players, [(1, 3, 1), (6, 3, 1)]) == SOUTH
    # Squared Euclid, not Manhattan: (1, 3) is 4 steps and 10 away, (2, 6) 4 steps and 8 (from (4, 4)).
    assert only("H1", [(4, 4, 1), (7, 7, 1)], [(1, 3, 1), (2, 6, 1)]) == NORTH
    assert only("H1", [(3, 4, 1), (7, 7, 1)], [(3, 1, 1), (5, 6, 1)]) == SOUTH


def test_h2_rounds_the_centre_half_to_even() -> None:
    # Mean column 2.5 rounds to 2: the foods at columns 1 and 4 are 1 and 2 away (down would tie less: 3 gives 2 and 1).
    assert only("H2", [(3, 4, 1), (3, 1, 1)], [(3, 0, 1), (3, 5, 1)]) == WEST
    assert only("H2", [(3, 6, 1), (3, 1, 1)], [(1, 4, 1), (5, 3, 1)]) == NORTH  # mean column 3.5 rounds to 4


def test_h3_and_h4_know_what_can_be_lifted() -> None:
    foods = [(3, 3, 3), (6, 3, 2)]
    assert only("H3", [(2, 2, 2), (0, 7, 1)], foods) == SOUTH
    assert only("H1", [(2, 3, 2), (0, 7, 1)], foods) == LOAD
    assert only("H4", [(2, 3, 2), (0, 3, 1)], foods) == LOAD
    assert only("H4", [(5, 2, 1), (5, 3, 1)], foods) == SOUTH
    anything = shares("H3", scene([(2, 3, 1), (0, 7, 1)], foods), 0, calls=3000)
    assert anything == pytest.approx(dict.fromkeys((NONE, NORTH, WEST, EAST, LOAD), 0.2), abs=0.03)


def test_h6_takes_the_best_it_can_lift_or_else_the_best() -> None:
    foods = [(1, 1, 1), (1, 5, 2), (5, 1, 3), (5, 5, 2)]
    assert only("H6", [(3, 5, 2), (7, 7, 1)], foods) == NORTH
    assert only("H6", [(3, 3, 1), (7, 7, 1)], foods) == NORTH
    assert only("H6", [(3, 3, 1), (7, 7, 1)], [(1, 1, 2), (5, 1, 3), (5, 5, 3)]) == SOUTH


def test_h7_goes_away_from_the_farthest_player() -> None:
    assert only("H7", [(3, 3, 1), (7, 7, 1), (2, 3, 1)], [(1, 3, 1), (6, 3, 1)]) == NORTH
    tie = scene([(3, 3, 1), (0, 3, 1), (6, 3, 1)], [(1, 4, 1), (5, 4, 1)])
    assert shares("H7", tie, 0, calls=3000) == pytest.approx({NORTH: 0.5, SOUTH: 0.5}, abs=0.04)
    assert only("H7", [(3, 3, 1)], [(2, 3, 1), (6, 3, 1)]) == SOUTH  # alone, it is the farthest itself


def test_h8_follows_a_stronger_player_else_the_farthest() -> None:
    foods = [(1, 3, 1), (5, 3, 3)]
    assert only("H8", [(3, 3, 1), (3, 4, 3), (3, 5, 2)], foods) == SOUTH
    assert only("H8", [(3, 3, 1), (3, 4, 2), (7, 7, 1)], foods) == NORTH
    assert only("H8", [(3, 3, 3), (3, 4, 1)], foods) == NORTH  # nobody is stronger: the farthest has level 1


def test_h8_reads_the_last_level_on_the_leaders_cell() -> None:
    foods = [(1, 3, 1), (5, 3, 3)]
    shared = [(3, 3, 1), (3, 5, 3), (3, 5, 2)]
    assert shares("H8", scene(shared, foods), 0).keys() == {NORTH}  # slot 2, of level 2, stands there too
    assert shares("H8", scene(shared, foods, slots=[0, 2, 1]), 0).keys() == {SOUTH}  # the leader has the last slot
    # It reads its own level only if nobody else is on the leader's cell: here the leader stands on its own.
    assert shares("H8", scene([(3, 3, 1), (3, 3, 3)], foods), 0).keys() == {SOUTH}


def test_members_without_a_kind_are_left_alone() -> None:
    obs = scene([(3, 3, 1), (3, 4, 1), (5, 5, 1)], [(1, 3, 1)])
    draws = DecisionDraws(np.array([3], dtype=np.uint64))
    choices = ForagingRule.decide(obs, np.array([-1, 0, 4]), draws)
    assert choices.tolist() == [NO_OP, NORTH, NORTH]


def test_rules_by_name() -> None:
    assert list(foraging_rules()) == NAMES
    assert [rule.kind for rule in foraging_rules().values()] == list(range(8))


def decide_often(states: list[Json], config: ForagingConfig, kind: int, calls: int) -> tuple[PackedObs, np.ndarray]:
    """The packed states and how often [members, 6] each member takes each action, had it that kind."""
    obs = pack(config, recorded_state(config, states), np.arange(len(states)))
    keys = np.random.default_rng(kind).integers(0, 2**63, (calls, len(states))).astype(np.uint64)
    kinds = np.full(len(obs.present), kind)
    counts = np.zeros((len(kinds), 6), dtype=np.int64)
    rows = np.arange(len(kinds))
    for call in range(calls):
        counts[rows, ForagingRule.decide(obs, kinds, DecisionDraws(keys[call]))] += 1
    return obs, counts


@pytest.mark.parametrize("file", files("lbf_teammates*.json.gz"), ids=lambda file: file.name.removesuffix(".json.gz"))
def test_choices_are_the_recorded_ones(file: Path) -> None:
    """The same single action where it never varied; else shares within four standard errors of the two samples."""
    data = load(file)
    config, states, calls = config_of(data), data["states"], 2000
    checked = 0
    for kind, name in enumerate(NAMES):
        obs, counts = decide_often(states, config, kind, calls)
        for b, state in enumerate(states):
            for slot, recorded in state["choice"].items():
                m = obs.agent_ptr[b] + state["order"].index(int(slot))
                assert obs.agent_rows[m, SLOT] == int(slot)
                expected = np.zeros(6)
                for action, share in recorded[name]:
                    expected[action] = share
                found = counts[m] / calls
                if 1 in expected:
                    assert found.tolist() == expected.tolist()
                    continue
                pooled = (found * calls + expected * SAMPLE) / (calls + SAMPLE)
                error = np.sqrt(pooled * (1 - pooled) * (1 / calls + 1 / SAMPLE))
                assert (np.abs(found - expected) <= 4 * error).all()
                checked += 1
    assert checked > 50


TRACES = [*files("lbf_trace_*.json.gz"), *files("lbf_draws_*.json.gz")]


@pytest.mark.parametrize("file", TRACES, ids=[file.name.removesuffix(".json.gz") for file in TRACES])
def test_recorded_teammates_do_what_their_type_may_do(file: Path) -> None:
    data = load(file)
    config, records = config_of(data), list(transitions(data))
    supports = [decide_often([before for before, _ in records], config, kind, 150) for kind in range(8)]
    agent_ptr = supports[0][0].agent_ptr
    for b, (before, step) in enumerate(records):
        for k, slot in enumerate(before["order"]):
            kind = before["players"][slot][3]
            if kind in NAMES:
                assert supports[NAMES.index(kind)][1][agent_ptr[b] + k, step["raw"][slot]] > 0
