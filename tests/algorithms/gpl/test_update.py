"""A window at once against one step after another, the target network's memory, and the target network's moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.update import evaluate, gpl_loss, prepare, soft_update
from rl_openness.rllib.chunk import RolloutChunk
from tests.algorithms.gpl import reference
from tests.algorithms.gpl.builders import Film, network, observation, settings_of
from tests.nn.builders import close, equal, gradients, same_gradients

STEPS = [
    ["Lab|f", "Lc|", "aL|fg"],
    ["Lb|fg", "dLc|f", "aLe|"],
    ["bLx|", "dL|g", "aLe|f"],
    ["Lx|g", "Ld|", "Leb|f"],
    ["xLa|g", "Le|f", "Le|"],
    ["xLa|", "L|", "Leh|g"],
    ["xL|", "Lq|f", "Lh|"],
    ["xLb|", "Lq|f", "hL|"],
    ["xLb|f", "zLq|f", "hL|g"],
]
ENDS = [(1, 1), (3, 0), (5, 2)]
COMES_BACK = {1: "e", 4: "ex", 6: "xq"}
"""Members that are away at some steps."""
VARIANTS: dict[str, dict[str, Any]] = {
    "gpl": {},
    "gru": {"seq_model": "gru", "pair_factor": "node"},
    "ciao-c": {"pair_range": "pos", "individual_range": "pos", "regularizer_weight": 0.5},
    "ciao-s": {"graph": "star", "pair_range": "pos", "individual_range": "neg", "regularizer_weight": 0.5},
}

States = dict[tuple[int, str], list[list[torch.Tensor]]]


def play(
    net: GplNetwork, film: Film, start: int, stop: int, states: States
) -> Iterator[tuple[list[reference.Team], States]]:
    """Teams of steps start to stop - 1, one after another, and their members' states; those of `start` enter it."""
    for t in range(start, stop):
        obs, row, teams, after = film.obs(t), 0, [], {}
        inputs = torch.from_numpy(net.inputs(obs)).double()
        for b, text in enumerate(film.steps[t]):
            letters = [letter for letter in text.partition("|")[0] if letter not in film.away(t)]
            types = []
            for letter in text.partition("|")[0]:
                if letter in letters:
                    fresh = (b, letter) not in states or (t > start and (t - 1, b) in film.ends)
                    old = reference.state_of(net) if fresh else states[b, letter]
                    found, after[b, letter] = reference.infer(net, inputs[row], old)
                    types.append(found)
                row += 1
            teams.append(reference.Team(net, [x[0] for x in types], [x[1] for x in types], letters.index("L")))
        yield teams, after
        states = after


def states_of(net: GplNetwork, film: Film, t: int, memory: torch.Tensor) -> States:
    """From memory rows of all members of step t."""
    names = [(b, letter) for b, text in enumerate(film.steps[t]) for letter in text.partition("|")[0]]
    return {name: reference.state_of(net, row) for name, row in zip(names, memory, strict=True)}


def best(team: reference.Team) -> float:
    return team.learner_q().max().item()


def actions_of(chunk: RolloutChunk, step: int) -> list[int]:
    rows = slice(chunk.obs.agent_ptr[step], chunk.obs.agent_ptr[step + 1])
    return chunk.choices[rows][chunk.obs.present[rows]].tolist()


def windows(net: GplNetwork, film: Film, length: int) -> list[RolloutChunk]:
    memory = film.memories(net)
    return [film.chunk(t, t + length, memory[t].numpy()) for t in range(0, len(film.steps) - 1, length)]


@pytest.mark.parametrize("away", ["", "b", COMES_BACK], ids=["here", "away", "comes-back"])
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_window_at_once_is_one_step_after_another(name: str, length: int, away: Any) -> None:
    """Values, logits, individual utilities, and the gradient through the whole window."""
    net, film = network(**VARIANTS[name]), Film(STEPS, ENDS, away=away)
    for index, chunk in enumerate(windows(net, film, length)):
        start = index * length
        batch, _ = prepare([chunk], net)
        outputs = evaluate(net, batch.passage, batch.actions)
        states = states_of(net, film, start, torch.from_numpy(chunk.memory))
        if start and any((start - 1, b) in film.ends for b in range(3)):
            assert not chunk.memory.all()
        played = [teams for teams, _ in play(net, film, start, start + length, states)]
        teams = [team for step in played for team in step]
        q = torch.stack([team.joint_q(actions_of(chunk, s)) for s, team in enumerate(teams)])
        logits = torch.stack([team.logits[j] for team in teams for j in sorted(team.logits)])
        close(outputs.joint_q, q)
        close(outputs.logits, logits)
        single = [
            utility[a]
            for s, team in enumerate(teams)
            for utility, a in zip(team.individual, actions_of(chunk, s), strict=True)
        ]
        close(outputs.individual[batch.passage.place], torch.stack(single))
        weight = torch.arange(1.0, 1 + logits.numel(), dtype=torch.float64).view_as(logits)
        left = gradients(net, (outputs.joint_q * weight.view(-1)[: len(q)]).sum() + (outputs.logits * weight).sum())
        right = gradients(net, (q * weight.view(-1)[: len(q)]).sum() + (logits * weight).sum())
        same_gradients(left, right, atol=1e-6)


@pytest.mark.parametrize("away", ["", "b", COMES_BACK], ids=["here", "away", "comes-back"])
@pytest.mark.parametrize("name", VARIANTS)
def test_targets_and_the_target_networks_memory(name: str, away: Any) -> None:
    """It begins without a memory of the first observation and then goes on from window to window."""
    net, target = network(**VARIANTS[name]), network(seed=1, **VARIANTS[name])
    film = Film(STEPS, ENDS, away=away)
    first = sum(len(text.partition("|")[0]) for text in STEPS[0])
    begin = states_of(target, film, 0, torch.zeros(first, target.memory_width, dtype=torch.float64))
    played = list(play(target, film, 1, len(STEPS), begin))
    memory = None
    for index, chunk in enumerate(windows(net, film, 4)):
        batch, after = prepare([chunk], target, None if memory is None else [memory])
        (memory,) = after
        expected = []
        for t in range(4):
            teams, states = played[4 * index + t]
            for b, team in enumerate(teams):
                over = chunk.terminated[t, b]
                expected.append(chunk.team_reward[t, b] + (0.0 if over else 0.99 * best(team)))
        close(batch.target, expected)
        assert not batch.target.requires_grad
        row = 0
        for b, text in enumerate(STEPS[4 * index + 4]):
            for letter in text.partition("|")[0]:
                if letter in film.away(4 * index + 4):
                    assert not memory[row].any()
                else:
                    mine = [torch.stack(branch) for branch in states[b, letter]]
                    close(memory[row], torch.stack(mine, dim=1).flatten())
                row += 1
        assert row == len(memory)


@pytest.mark.parametrize("transitions", ["all", "no_joins_set", "no_joins_size"])
def test_truncated_episodes_are_bootstrapped_from_their_last_observation(transitions: str) -> None:
    changes = {"horizon_as_terminal": False, "transitions": transitions}
    net, target = network(**changes), network(seed=1, **changes)
    last = {(1, 1): "dLc|gh", (3, 0): "Lxy|", (5, 2): "L|f"}
    film = Film(STEPS, ENDS, kind="truncated", last=last)
    memory = torch.zeros(len(film.obs(0).present), target.memory_width, dtype=torch.float64)
    for index, chunk in enumerate(windows(net, film, 4)):
        start = 4 * index
        states = states_of(target, film, start, memory)
        batch, (memory,) = prepare([chunk], target, [memory])
        history = {start: states}
        played = {}
        for t, (teams, after) in enumerate(play(target, film, start + 1, start + 5, states), start + 1):
            played[t], history[t] = teams, after
        for f, step in enumerate(chunk.final_step):
            t, b = start + step // 3, int(step % 3)
            obs = chunk.final.select(np.array([f]))
            inputs = torch.from_numpy(target.inputs(obs)).double()
            letters = last[t, b].partition("|")[0]
            types = [
                reference.infer(target, x, history[t].get((b, letter), reference.state_of(target)))[0]
                for x, letter in zip(inputs, letters, strict=True)
            ]
            team = reference.Team(target, [x[0] for x in types], [x[1] for x in types], letters.index("L"))
            expected = chunk.team_reward.ravel()[step] + 0.99 * best(team)
            close(batch.target[step], expected)
        if transitions == "all":
            assert batch.kept is None
        else:
            assert batch.kept.tolist() == expected_kept(film, last, start, transitions)
        over = chunk.truncated.ravel()
        plain, _ = prepare([replace(chunk, truncated=np.zeros_like(chunk.truncated), final=None)], target, None)
        if index == 0:
            close(batch.target[~over], plain.target[~over])
    assert any((chunk.final_step >= 0).any() for chunk in windows(net, film, 4))


def expected_kept(film: Film, last: dict[tuple[int, int], str], start: int, rule: str) -> list[bool]:
    """By the sets of letters; at an end the last observation's, or (None given) the next episode's by size only."""
    kept = []
    for t in range(start, start + 4):
        for b, text in enumerate(film.steps[t]):
            now = set(text.partition("|")[0])
            text = last.get((t, b), film.steps[t + 1][b])
            after = set(text.partition("|")[0])
            ended = (t, b) in film.ends and (t, b) not in last
            if rule == "no_joins_set":
                kept.append(ended or after <= now)
            else:
                kept.append(len(after) <= len(now))
    return kept


@pytest.mark.parametrize("rule", ["no_joins_set", "no_joins_size"])
def test_which_transitions_are_kept(rule: str) -> None:
    net = network(transitions=rule, regularizer_weight=0.5)
    film = Film(STEPS, ENDS)
    for index, chunk in enumerate(windows(net, film, 4)):
        batch, _ = prepare([chunk], net)
        assert batch.kept.tolist() == expected_kept(film, {}, 4 * index, rule)
        assert 0 < batch.kept.sum() < len(batch)
        outputs = evaluate(net, batch.passage, batch.actions)
        _, parts = gpl_loss(batch, outputs, net.settings)
        every, whole = gpl_loss(replace(batch, kept=None), outputs, net.settings)
        close(parts["td_loss"], (outputs.joint_q - batch.target)[batch.kept].square().mean())
        close(parts["agent_model_loss"], whole["agent_model_loss"])  # which learns from all
        assert parts["td_loss"] != whole["td_loss"]
        assert parts["regularizer"] != whole["regularizer"]
        assert every.requires_grad


def test_a_leave_and_a_join_at_once() -> None:
    film = Film([["Lab", "La"], ["Lac", "L"], ["Lac", "La"]])
    for rule, kept in (("no_joins_set", [False, True]), ("no_joins_size", [True, True])):
        batch, _ = prepare([film.chunk(0, 1, None)], network(transitions=rule))
        assert batch.kept.tolist() == kept


def test_several_runners_windows_are_one_batch() -> None:
    net, target = network(), network(seed=1)
    films = [Film(STEPS, ENDS), Film([s[::-1] for s in STEPS], seed=5), Film([s[:1] for s in STEPS], seed=6)]
    memories: list[Any] = [None] * 3
    for index in range(2):
        chunks = [windows(net, film, 4)[index] for film in films]
        alone = [prepare([chunk], target, [memory]) for chunk, memory in zip(chunks, memories, strict=True)]
        batch, after = prepare(chunks, target, memories)
        close(batch.target, torch.cat([part.target for part, _ in alone]))
        outputs = evaluate(net, batch.passage, batch.actions)
        single = [evaluate(net, part.passage, part.actions) for part, _ in alone]
        for name in ("joint_q", "logits"):
            close(getattr(outputs, name), torch.cat([getattr(part, name) for part in single]))
        for mine, (_, (theirs,)) in zip(after, alone, strict=True):
            close(mine, theirs)
        memories = after


def test_losses_add_up_with_their_weights() -> None:
    changes = {**VARIANTS["ciao-c"], "agent_model_weight": 0.3, "regularizer_weight": 0.7}
    net = network(**changes)
    batch, _ = prepare([Film(STEPS, ENDS).chunk(0, 4, None)], net)
    outputs = evaluate(net, batch.passage, batch.actions)
    loss, parts = gpl_loss(batch, outputs, net.settings)
    close(loss, parts["td_loss"] + 0.3 * parts["agent_model_loss"] + 0.7 * parts["regularizer"])
    assert not any(part.requires_grad for part in parts.values())
    plain, fewer = gpl_loss(batch, outputs, settings_of(**{**changes, "regularizer_weight": 0.0}))
    close(plain, parts["td_loss"] + 0.3 * parts["agent_model_loss"])
    assert "regularizer" not in fewer
    assert 0 <= parts["agent_model_accuracy"] <= 1


def test_where_gradients_go() -> None:
    """Q and the regulariser never reach the agent model, its cross-entropy never the utilities."""
    net = network(**VARIANTS["ciao-c"])
    batch, _ = prepare([Film(STEPS, ENDS).chunk(0, 4, None)], net)
    outputs = evaluate(net, batch.passage, batch.actions)
    utilities = {name for name, _ in net.named_parameters() if name.startswith(("individual", "pairwise"))}
    model = {name for name, _ in net.named_parameters() if name.startswith("agent_model")}
    for weight, own, other, branch in ((0.0, utilities, model, 0), (1e6, model, utilities, 1)):
        settings = settings_of(**{**VARIANTS["ciao-c"], "agent_model_weight": weight})
        loss, parts = gpl_loss(batch, outputs, settings)
        if weight:
            loss = gpl_loss(batch, outputs, settings)[0] - gpl_loss(batch, outputs, replaced(settings, 0.0))[0]
        found = gradients(net, loss)
        assert all(found[name].any() for name in own)
        assert not any(found[name].any() for name in other)
        for name, gradient in found.items():
            if name.startswith("types"):
                assert gradient[branch].any(), name
                assert not gradient[1 - branch].any(), name
        assert parts["td_loss"] > 0


def replaced(settings: Any, weight: float) -> Any:
    return settings.model_copy(update={"agent_model_weight": weight})


def test_the_regularisers_gradient_reaches_only_whom_it_moves() -> None:
    for name, moves_learner in (("ciao-s", True), ("ciao-c", False)):
        net = network(**VARIANTS[name])
        batch, _ = prepare([Film(STEPS, ENDS).chunk(0, 4, None)], net)
        outputs = evaluate(net, batch.passage, batch.actions)
        loss = gpl_loss(batch, outputs, net.settings)[0] - gpl_loss(batch, outputs, settings_of())[0]
        (gradient,) = torch.autograd.grad(loss, outputs.individual)
        graph = batch.passage.graph
        assert gradient[graph.learner].any() == moves_learner
        assert gradient[graph.mate].any() != moves_learner


def test_reward_shift_moves_targets_only() -> None:
    film, net = Film(STEPS, ENDS), network()
    chunk = film.chunk(0, 4, None)
    plain, _ = prepare([chunk], net)
    shifted, _ = prepare([chunk], network(reward_shift=2.5))
    close(shifted.target, plain.target + 2.5)


@pytest.mark.parametrize("horizon_as_terminal", [True, False])
def test_the_end_of_the_time_limit(horizon_as_terminal: bool) -> None:
    net = network(horizon_as_terminal=horizon_as_terminal)
    chunk = Film(STEPS, ENDS, kind="truncated").chunk(0, 4, None)
    batch, _ = prepare([chunk], net)
    at_end = batch.target[torch.from_numpy(chunk.truncated.ravel())]
    plain = np.allclose(at_end, chunk.team_reward[chunk.truncated])
    assert plain == horizon_as_terminal


def test_what_a_window_refuses() -> None:
    net, film = network(), Film(STEPS, ENDS)
    chunk = film.chunk(0, 4, None)
    with pytest.raises(ValueError, match="memory of 2 members"):
        prepare([chunk], net, [torch.zeros(2, net.memory_width, dtype=torch.float64)])
    with pytest.raises(ValueError, match="more than one window"):
        prepare([replace(chunk, window=2)], net)
    with pytest.raises(ValueError, match="action that it chose"):
        prepare([replace(chunk, choices=np.full_like(chunk.choices, -1))], net)
    with pytest.raises(ValueError, match="controlled"):
        prepare([Film([["ab"], ["ab"]]).chunk(0, 1, None)], net)


def test_members_that_are_all_controlled_learn_as_the_first_one() -> None:
    net = network()
    film = Film([["Lab|f", "L"], ["Lab|f", "L"]])
    chunk = film.chunk(0, 1, None)
    free = replace(chunk, obs=replace(chunk.obs, controlled=None), boot=replace(chunk.boot, controlled=None))
    left, right = (prepare([each], net)[0] for each in (chunk, free))
    equal(left.target, right.target)
    assert observation(["L"], controlled=None).controlled is None


# The target network


def test_soft_update() -> None:
    online, target = network(seed=1), network(seed=2)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    soft_update(target, online, 0.25)
    new = online.state_dict()
    for name, value in target.state_dict().items():
        mixed = before[name] + 0.25 * (new[name] - before[name])
        if name.startswith("types"):
            close(value[0], mixed[0])
            equal(value[1], new[name][1])
        elif name.startswith("agent_model"):
            equal(value, new[name])
        else:
            close(value, mixed)
    halves = target.halves()
    assert sum(p.numel() for half in halves for p in half) == sum(p.numel() for p in target.parameters())
