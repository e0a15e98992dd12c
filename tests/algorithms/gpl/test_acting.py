"""Choices, exploration, and memory that follows the members of a team."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_openness.algorithms.gpl.network import GplNetwork, make_actor
from rl_openness.algorithms.gpl.settings import GplSettings
from rl_openness.envs.base import NO_OP
from rl_openness.envs.draws import DecisionDraws
from tests.algorithms.gpl import reference
from tests.algorithms.gpl.builders import ACTIONS, SMALL, SPEC, Film, draws, network, observation
from tests.nn.builders import close, equal

TEAMS = ["Lab|f", "L|", "abL|fgh", "cLad|gf"]


def test_greedy_is_the_best_of_the_learners_values() -> None:
    for graph in ("complete", "star"):
        net, obs = network(graph=graph), observation(TEAMS)
        decision = net.act(obs, None, explore=False)
        rows = torch.from_numpy(net.inputs(obs)).double()
        learner = [team.index("L") for team in TEAMS]
        nothing = rows.new_zeros(len(rows), net.memory_width)
        teams = reference.teams(net, rows, nothing, np.diff(obs.agent_ptr), learner)
        best = [int(team.learner_q().argmax()) for team in teams]
        assert decision.choices[obs.controlled].tolist() == best
        assert (decision.choices[~obs.controlled] == NO_OP).all()
        assert decision.choices.dtype == np.int64
        assert decision.log_probs.shape == decision.choices.shape
        assert len(set(best)) > 1


def test_everybody_controlled_sees_itself_as_the_learner() -> None:
    net = network()
    alone = {}
    for letter in "Lab":
        obs = observation(["Lab|f", "La|"], controlled=letter)
        alone[letter] = net.act(obs.select(np.array([0])), None, explore=False).choices
    together = net.act(observation(["Lab|f", "La|"], controlled=None), None, explore=False)
    assert together.choices[:3].tolist() == [alone["L"][0], alone["a"][1], alone["b"][2]]
    assert (together.choices >= 0).all()
    some = net.act(observation(["Lab|f", "La|"], controlled="Lb"), None, explore=False)
    assert some.choices.tolist()[:4:2] == together.choices.tolist()[:4:2]
    assert some.choices[[1, 4]].tolist() == [NO_OP, NO_OP]


def test_nobody_controlled() -> None:
    net, obs = network(), observation(["ab|f", "c|"])
    decision = net.act(obs, draws(2), explore=True)
    assert (decision.choices == NO_OP).all()
    assert decision.memory.any()


def many(copies: int) -> list[str]:
    return ["Lab", "aL"] * (copies // 2)


def test_epsilon() -> None:
    net, obs = network(), observation(many(4000))
    greedy = net.act(obs, None, explore=False).choices[obs.controlled]
    first = np.bincount(greedy, minlength=ACTIONS) / 4000
    for epsilon in (0.0, 0.3, 1.0):
        net.epsilon = epsilon
        chosen = net.act(obs, draws(4000), explore=True).choices
        assert (chosen[~obs.controlled] == NO_OP).all()
        mine = chosen[obs.controlled]
        shares = np.bincount(mine, minlength=ACTIONS) / 4000
        close(shares, (1 - epsilon) * first + epsilon / ACTIONS, atol=0.025)
        assert np.mean(mine == greedy) == pytest.approx(1 - epsilon * (1 - 1 / ACTIONS), abs=0.03)
        equal(chosen, net.act(obs, draws(4000), explore=True, epsilon=epsilon).choices)
        equal(net.act(obs, draws(4000), explore=False).choices[obs.controlled], greedy)


def test_random_actions_do_not_depend_on_the_batch() -> None:
    net, obs, keys = network(), observation(TEAMS * 5), draws(20)
    whole = net.act(obs, keys, explore=True, epsilon=0.5).choices
    for b in range(20):
        part = net.act(obs.select(np.array([b])), DecisionDraws(keys.keys[[b]]), explore=True, epsilon=0.5).choices
        equal(part, whole[obs.agent_ptr[b] : obs.agent_ptr[b + 1]])
    other = net.act(obs, draws(20, seed=2), explore=True, epsilon=0.5).choices
    assert (other != whole).any()
    assert net.act(obs, None, explore=True, epsilon=1.0).choices.max() < ACTIONS


def test_memory_of_the_specifications_example() -> None:
    """Team [L, a, b, c]; a leaves, d and e join: rows h_L, h_b, h_c, 0, 0."""
    net = network()
    memory = torch.arange(1.0, 5.0, dtype=torch.float64)[:, None].expand(4, net.memory_width)
    decision = net.act(observation(["Lbcde"], ["Labc"]), None, memory, explore=False)
    assert decision.memory_in[:, 0].tolist() == [1, 3, 4, 0, 0]
    assert (decision.memory_in == decision.memory_in[:, :1]).all()
    assert decision.memory.shape == (5, net.memory_width)


@pytest.mark.parametrize("seq_model", ["lstm", "gru"])
def test_memory_is_each_agents_own_through_joins_leaves_and_ends(seq_model: str) -> None:
    net = network(seq_model=seq_model)
    steps = [["Lab|f", "Lc"], ["Lb|fg", "dLc|f"], ["bLx|", "dL"], ["Lx|g", "Ld"], ["xLa|g", "Le"]]
    film = Film(steps, ends=[(2, 1)])
    memory, states = None, {}
    for t, teams in enumerate(steps):
        obs = film.obs(t)
        decision = net.act(obs, None, memory, explore=False)
        memory = decision.memory
        before = states
        states, row = {}, 0
        for b, team in enumerate(teams):
            for letter in team.partition("|")[0]:
                fresh = (t - 1, b) in film.ends or (b, letter) not in before
                old = reference.state_of(net) if fresh else before[b, letter]
                assert fresh == (obs.carry[row] < 0)
                x = torch.from_numpy(net.inputs(obs))[row].double()
                _, states[b, letter] = reference.infer(net, x, old)
                expected = torch.stack([torch.stack(branch) for branch in states[b, letter]], dim=1)
                close(memory[row], expected.flatten())
                row += 1
    assert row == len(memory)


def test_who_is_away_has_no_part_and_no_memory() -> None:
    net = network()
    old = torch.rand(4, net.memory_width, dtype=torch.float64)
    here = net.act(observation(["Lab|f", "L"], ["Lab", "L"]), None, old, explore=False)
    away = net.act(observation(["Lab|f", "L"], ["Lab", "L"], away="a"), None, old, explore=False)
    without = net.act(observation(["Lb|f", "L"], ["Lab", "L"]), None, old, explore=False)
    assert away.choices[1] == NO_OP
    equal(away.choices[[0, 2, 3]], without.choices)
    assert not away.memory[1].any()
    close(away.memory[[0, 2, 3]], without.memory)
    close(away.memory[[0, 2, 3]], here.memory[[0, 2, 3]])
    back = net.act(observation(["Lab|f", "L"], ["Lab", "L"], time=1), None, away.memory, explore=False)
    assert back.memory_in.any(1).tolist() == [True, False, True, True]
    nobody = net.act(observation(["Lab|f", "L"], away="L"), None, explore=False)
    assert (nobody.choices == NO_OP).all()


def test_choices_of_float32_and_of_a_saved_policy() -> None:
    net = make_actor(SPEC, GplSettings(**SMALL).model_dump())
    other = make_actor(SPEC, {**SMALL, "epsilon": 0.2})
    assert (net.epsilon, other.epsilon, GplNetwork(SPEC, net.settings).epsilon) == (0.05, 0.2, 1.0)
    other.load_state_dict(net.state_dict())
    obs = observation(TEAMS)
    for _ in range(2):
        mine, theirs = (each.act(obs, None, explore=False) for each in (net, other))
        equal(mine.choices, theirs.choices)
        assert mine.memory.dtype == mine.memory_in.dtype == torch.float32


def test_unscaled_memory_of_another_batch_size_is_followed() -> None:
    """Copies may be selected: `carry` goes on naming rows of the full batch."""
    net = network()
    before, now = observation(TEAMS), observation(TEAMS, TEAMS, time=1)
    memory = net.act(before, None, explore=False).memory
    whole = net.act(now, None, memory, explore=False)
    part = net.act(now.select(np.array([2, 3])), None, memory, explore=False)
    rows = slice(now.agent_ptr[2], None)
    close(part.memory, whole.memory[rows])
    equal(part.choices, whole.choices[rows])
    fresh = net.act(replace(now, carry=np.full_like(now.carry, -1)), None, memory, explore=False)
    assert not fresh.memory_in.any()
