"""The training of Wolfpack's prey: what is remembered, what is learnt from it, repeatable, and how it ends."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rl_openness.envs.base import NO_OP
from rl_openness.envs.registry import make_environment
from rl_openness.errors import RunFailedError
from rl_openness.experiments import prey_wolfpack
from rl_openness.experiments.prey_dqn import Batch, DoubleDQN, ExploringPrey, Replay
from rl_openness.experiments.teammates import Request
from rl_openness.policies.prey_network import PreyNetwork
from rl_openness.policies.prey_sight import BORDERS, NOTHING

COPIES = 6


@pytest.mark.parametrize("length", [64, 500])
def test_replay_gives_back_what_was_seen_and_done(length: int) -> None:
    """Every transition is one that happened, with the five views of both its states; also after it was overwritten."""
    generator = np.random.default_rng(0)
    prey = ExploringPrey(PreyNetwork(4), COPIES, 2, 5, generator)
    prey.replay = replay = Replay(length, prey.memory.shape)
    env = make_environment("wolfpack", COPIES, {"team_size": 5, "max_steps": 30, "prey_policy": prey})
    memories, alive, steps = [], [], []
    for _ in range(100):
        state = env.get_state()
        env.step(np.full(len(env.observe().present), NO_OP))
        memories.append(prey.memory.copy())
        alive.append(state["alive"])
        steps.append(state["step"])
    happened = {}
    for t in range(100 - min(length, 100), 99):
        for b in range(COPIES):
            for k in range(2):
                counts = alive[t][b, k] and steps[t + 1][b] > 0
                key = (memories[t][b, k].tobytes(), memories[t + 1][b, k].tobytes())
                happened[key] = (counts, counts and not alive[t + 1][b, k])
    batch = replay.sample(2000, generator)
    for before, after, caught, counts in zip(batch.before, batch.after, batch.caught, batch.counts, strict=True):
        key = tuple(part.numpy().astype(np.int16).tobytes() for part in (before, after))
        if counts:
            assert happened[key] == (True, bool(caught))
    assert 0.9 < batch.counts.mean() < 1
    assert (batch.caught * batch.counts).sum() > 0
    assert set(batch.action.tolist()) == set(range(7))


def batch_of(caught: float = 0.0, counts: float = 1.0) -> Batch:
    """Two alike transitions from an empty view to one with a predator ahead."""
    before, after = (torch.full((2, 5, BORDERS + 5), NOTHING) for _ in range(2))
    after[:, 0, BORDERS] = 8
    two = torch.ones(2)
    return Batch(before, torch.tensor([2, 2]), caught * two, after, counts * two)


def dqn(**settings: Any) -> DoubleDQN:
    torch.manual_seed(1)
    return DoubleDQN(PreyNetwork(8), **{"lr": 1e-2, "gamma": 0.5, "tau": 0.0, "max_grad_norm": 10.0, **settings})


def test_one_update_follows_the_double_dqn_target() -> None:
    learner = dqn()
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter += 0.1  # so that choosing by the one and judging by the other differ
    for caught in (0.0, 1.0):
        batch = batch_of(caught)
        with torch.no_grad():
            best = int(learner.network(batch.after)[0].argmax())
            wanted = -1.0 if caught else 0.5 * float(learner.target(batch.after)[0, best])
            error = float(learner.network(batch.before)[0, 2]) - wanted
        expected = 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5
        assert learner.update(batch) == pytest.approx(expected, rel=1e-5)
    assert learner.update(batch_of(counts=0.0)) == 0.0


def test_updates_learn_and_the_target_follows() -> None:
    learner = dqn(tau=0.5)
    for _ in range(200):
        learner.update(batch_of(caught=1.0))
    assert float(learner.network(batch_of().before)[0, 2].detach()) == pytest.approx(-1.0, abs=0.02)
    assert float(learner.target(batch_of().before)[0, 2].detach()) == pytest.approx(-1.0, abs=0.02)


def test_a_loss_that_is_not_finite_ends_the_training() -> None:
    learner = dqn()
    with pytest.raises(RunFailedError, match="loss is not finite"):
        learner.update(batch_of(caught=float("nan")))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        prey_wolfpack, "SETTINGS", {**prey_wolfpack.SETTINGS, "learning_starts": 640, "batch_size": 16, "hidden": 8}
    )


def request_in(folder: Path, seed: int = 0) -> Request:
    folder.mkdir()
    return Request(2000, seed, folder, report=lambda progress: None, say=lambda text: None)


def test_a_seed_decides_everything(short: None, tmp_path: Path) -> None:
    folders = [prey_wolfpack.learn(request_in(tmp_path / name, seed)) for name, seed in (("a", 4), ("b", 4), ("c", 5))]
    first, again, other = (load_file(folder / "weights.safetensors") for folder in folders)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in ("cells", "cell_bias"))
    env = make_environment("wolfpack", 2, {"prey": str(folders[0])})
    env.step(np.full(len(env.observe().present), NO_OP))


def test_ctrl_c_ends_it_and_nothing_is_kept(short: None, tmp_path: Path) -> None:
    request = replace(request_in(tmp_path / "a"), report=lambda progress: os.kill(os.getpid(), signal.SIGINT))
    request = replace(request, env_steps=10**9)
    with pytest.raises(RunFailedError, match="stopped before the training was done; nothing was kept"):
        prey_wolfpack.learn(request)
    assert not any(request.folder.iterdir())


def test_measured_on_the_same_episodes_as_the_built_in_prey(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prey_wolfpack, "EPISODES", 3)
    said: list[str] = []
    card = prey_wolfpack.measure(prey_wolfpack.learn(request_in(tmp_path / "a")), said.append)
    assert len(card["captures"]) == 4
    assert said
    for captures in card["captures"].values():
        assert list(captures) == ["dqn", "evader", "random"]
        assert all(number["mean"] >= 0 for number in captures.values())
