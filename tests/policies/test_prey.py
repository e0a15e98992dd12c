"""Trained prey of Wolfpack: what they see, what they remember, how they are named, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_openness.envs.base import NO_OP
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.envs.wolfpack import PreyView, WolfpackConfig, WolfpackEnv, make_wolfpack
from rl_openness.envs.wolfpack.prey import AHEAD, ASIDE, VIEWS
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.errors import UserError
from rl_openness.experiments.teammates import read_teammate_card, shipped_folder
from rl_openness.policies.base import Policy
from rl_openness.policies.card import PREY, PolicyCard
from rl_openness.policies.checkpoint import save_policy
from rl_openness.policies.prey import check_prey, make_wolfpack_with_prey, prey_names
from rl_openness.policies.prey_network import LearnedPrey, PreyNetwork
from rl_openness.policies.prey_sight import BORDERS, CODES, NOTHING, see
from rl_openness.policies.teammates import check_teammate, learned_names
from tests.envs.wolfpack.recorded import Json, files, load

CELLS = (AHEAD + 1) * (2 * ASIDE + 1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained prey that turns and moves a lot."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("prey") / "mine"
    card = PolicyCard(PREY, {"hidden": 16}, wolfpack_spec(WolfpackConfig()), "wolfpack", {}, 0, 3)
    save_policy(folder, card, PreyNetwork(16))
    return folder


def shown(state: Json, step: int) -> PreyView:
    """A recorded state as a prey policy is shown it."""
    predators, prey = np.array(state["pred"]), np.array(state["prey"])
    row, col = (np.concatenate([predators[:, axis], [0]])[None] for axis in range(2))  # one more slot than is used
    return PreyView(
        size=10,
        step=np.array([step]),
        predators=np.array([len(predators)]),
        row=row,
        col=col,
        prey_row=prey[None, :, 0].copy(),
        prey_col=prey[None, :, 1].copy(),
        facing=np.array([state["face"]]),
        alive=np.array([state["alive"]]),
    )


def drawn(seen: np.ndarray) -> list[str]:
    """The crop that the numbers of one view say."""
    crop = np.full((AHEAD + 1, 2 * ASIDE + 1), ".")
    for i, free in enumerate(seen[:BORDERS]):
        if free != NOTHING:
            free = free - 2 * CELLS - i * AHEAD
            if i == 0:
                crop[: AHEAD - free] = "#"
            elif i == 1:
                crop[:, ASIDE + 1 + free :] = "#"
            else:
                crop[:, : ASIDE - free] = "#"
    for code in seen[BORDERS:]:
        if code != NOTHING:
            ahead, column = divmod(code % CELLS, 2 * ASIDE + 1)
            crop[AHEAD - ahead, column] = "Pr"[code // CELLS]
    return ["".join(line) for line in crop]


@pytest.mark.parametrize("name", files("trace"))
def test_it_sees_exactly_the_recorded_crops(name: str) -> None:
    compared = 0
    for episode in load(name)["episodes"]:
        state = episode["start"]
        for step, record in enumerate(episode["steps"]):
            view = shown(state, step)
            memory = np.full((1, 2, VIEWS, BORDERS + view.row.shape[1] + 2), NOTHING, dtype=np.int16)
            see(view, memory)
            for k, crop in enumerate(record.get("prey_view", ())):
                assert drawn(memory[0, k, 0]) == list(crop)
                compared += 1
            state = record["next"]
    assert compared >= 32


def test_five_views_are_kept_through_death_and_forgotten_at_a_reset() -> None:
    prey = LearnedPrey(PreyNetwork(4), 1, 2, 3)
    state = {"pred": [[2, 2], [3, 3]], "prey": [[5, 5], [6, 6]], "face": [0, 1], "alive": [True, True]}
    prey.act(shown(state, 3), np.zeros(1, dtype=np.uint64))
    first = prey.memory[:, :, 0].copy()
    prey.act(shown({**state, "alive": [False, True]}, 4), np.zeros(1, dtype=np.uint64))
    np.testing.assert_array_equal(prey.memory[:, :, 1], first)
    centre = CELLS + ASIDE
    assert centre in prey.memory[0, 0, 1]
    assert centre not in prey.memory[0, 0, 0]  # a dead prey is not even in the centre of its own view
    for step in range(5, 9):
        prey.act(shown(state, step), np.zeros(1, dtype=np.uint64))
    assert centre not in prey.memory[0, 0, VIEWS - 1]
    prey.act(shown(state, 0), np.zeros(1, dtype=np.uint64))
    np.testing.assert_array_equal(prey.memory[:, :, 0], first)
    assert (prey.memory[:, :, 1:] == NOTHING).all()


def test_it_takes_the_action_that_the_network_values_most() -> None:
    torch.manual_seed(0)
    network = PreyNetwork(32)
    prey = LearnedPrey(network, 50, 2, 3)
    env = make_environment("wolfpack", 50, {"prey_policy": prey})
    env.reset(child_seeds(0, count=50))
    taken = set()
    for _ in range(20):
        state = env.get_state()
        env.step(np.full(len(env.observe().present), NO_OP))
        memory = torch.from_numpy(prey.memory.astype(np.int64)).flatten(0, 1)
        values = network(memory)
        top = values.topk(2).values
        best = values.argmax(dim=1).reshape(50, 2).numpy()
        prey.set_state({"memory": state["prey.memory"]})
        found = prey.act(env_view(env, state), np.zeros(50, dtype=np.uint64))
        clear = ((top[:, 0] - top[:, 1]) > 1e-4).reshape(50, 2).numpy()
        assert (found == best)[clear].all()
        taken |= set(best.ravel().tolist())
    assert len(taken) >= 4


def env_view(env: WolfpackEnv, state: dict[str, np.ndarray]) -> PreyView:
    names = ("step", "members", "row", "col", "prey_row", "prey_col", "facing", "alive")
    return PreyView(env.config.size, *(state[name] for name in names))


BUSY = {"leave_probability": 0.4, "join_probability": 0.5, "min_age": 2, "max_steps": 12, "team_size": 5, "num_prey": 3}


def play(env: WolfpackEnv, steps: int, copy: slice = slice(None)) -> list[np.ndarray]:
    trail = []
    for _ in range(steps):
        env.step(np.full(len(env.observe().present), NO_OP))
        state = env.get_state()
        trail += [state[name][copy] for name in ("prey_row", "prey_col", "facing", "alive", "row", "prey.memory")]
    return trail


@pytest.mark.parametrize("before", [0, 3, 12, 17])
def test_a_restored_world_goes_on_exactly(saved: Path, before: int) -> None:
    env, other = (make_environment("wolfpack", 4, {**BUSY, "prey": str(saved)}) for _ in range(2))
    env.reset(child_seeds(1, count=4))
    play(env, before)
    other.set_state(env.get_state())
    for mine, theirs in zip(play(env, 30), play(other, 30), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    state = env.get_state()
    for wrong in (CODES, NOTHING - 1):
        with pytest.raises(ValueError, match="'memory' must lie in"):
            env.set_state({**state, "prey.memory": np.full_like(state["prey.memory"], wrong)})
    with pytest.raises(ValueError, match="'memory' must have shape"):
        env.set_state({name: array for name, array in state.items() if name != "prey.memory"})


def test_a_copy_plays_alike_whatever_is_beside_it() -> None:
    seeds = child_seeds(2, count=5)
    several, alone = (make_environment("wolfpack", n, {**BUSY, "prey": "dqn"}) for n in (5, 1))
    several.reset(seeds)
    alone.reset(seeds[3:4])
    for mine, theirs in zip(play(several, 40, slice(3, 4)), play(alone, 40), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_names_and_paths(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(prey_names()) == ["evader", "random", "dqn"]
    assert [check_prey("evader"), check_prey("dqn"), check_prey(str(saved))] == [None, shipped_folder(
        "prey-wolfpack"), saved]  # fmt: skip
    monkeypatch.chdir(saved.parent)
    for prey in ("dqn", "mine", "./mine"):
        env = make_environment("wolfpack", 2, {"prey": prey, "controlled": "all", "num_prey": 1})
        assert isinstance(env, WolfpackEnv)
        assert isinstance(env.prey, LearnedPrey)
        play(env, 2)
    mine = LearnedPrey(PreyNetwork(2), 1, 2, 3)
    assert make_wolfpack_with_prey(prey="dqn", prey_policy=mine, controlled="all").prey is mine


@pytest.mark.parametrize(
    ("prey", "words"),
    [
        ("dqm", "unknown prey 'dqm'; did you mean 'dqn'"),
        ("./nowhere", "no checkpoint at 'nowhere'"),
        (str(shipped_folder("a2c-foraging")), "holds a policy of 'mappo', not a prey"),
        (3, "wolfpack field 'prey'"),
    ],
)
def test_what_is_no_prey(prey: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_environment("wolfpack", 2, {"prey": prey})


def test_built_in_worlds_know_built_in_prey_only() -> None:
    with pytest.raises(UserError, match="wolfpack has no built-in prey 'dqn'; known: evader, random"):
        make_wolfpack(1, controlled="all", prey="dqn")


def test_a_prey_is_no_policy() -> None:
    path = str(shipped_folder("prey-wolfpack"))
    assert PREY not in learned_names("wolfpack")
    for use in (Policy.load, lambda path: check_teammate("wolfpack", path)):
        with pytest.raises(UserError, match="holds a prey of wolfpack, not a policy"):
            use(path)


def test_damaged_files_are_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text((saved / "policy.json").read_text())
    weights = load_file(saved / "weights.safetensors")
    whole = (saved / "weights.safetensors").read_bytes()
    file = tmp_path / "weights.safetensors"
    for content, words in (
        (whole[:500], "cannot be used"),
        (
            {**weights, "cell_bias": weights["cell_bias"] * float("nan")},
            "'cell_bias' holds numbers that are not finite",
        ),
        ({**weights, "cells": weights["cells"][:4].clone()}, "'cells' is"),
    ):
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            save_file(content, file)
        with pytest.raises(UserError, match=words):
            make_environment("wolfpack", 1, {"prey": str(tmp_path)})
    card = (saved / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(card.replace('"hidden": 16', '"hidden": -3'))
    with pytest.raises(UserError, match="does not fit this version .* hidden must be a whole number"):
        make_environment("wolfpack", 1, {"prey": str(tmp_path)})


def test_the_shipped_one_gets_away_best() -> None:
    for captures in read_teammate_card(shipped_folder("prey-wolfpack"))["captures"].values():
        means = [captures[name]["mean"] for name in ("dqn", "evader", "random")]
        assert means == sorted(means)
        assert means[0] < 0.8 * means[1]
