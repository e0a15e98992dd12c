"""How learned teammates are made: the same weights from the same seed, a card, nothing kept of a stopped training."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_openness.algorithms.mappo.networks.actions import make_actor
from rl_openness.envs.registry import make_environment
from rl_openness.envs.wolfpack import WolfpackConfig
from rl_openness.envs.wolfpack.rules import DOWN, LEFT
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.errors import PartlyStoppedError, RunFailedError
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.experiments import distilled_wolfpack as distilled
from rl_openness.experiments import dqn_wolfpack as dqn
from rl_openness.experiments import strength as measuring
from rl_openness.experiments import teammates as recipes
from rl_openness.experiments.teammates import Request, read_teammate_card, train_teammate
from rl_openness.policies.base import Policy
from rl_openness.policies.wolfpack import wolfpack_rules

STEPS = {"distilled-wolfpack": 4_800, "dqn-wolfpack": 2_048}
"""The least that each recipe trains for."""


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for name in ("EPISODES", "COPIES"):
        monkeypatch.setattr(measuring, name, 3)
    monkeypatch.setattr(distilled, "HIDDEN", 8)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", STEPS)
def test_the_same_seed_makes_the_same_weights_and_card(name: str, tmp_path: Path) -> None:
    made = [
        train_teammate(name, seed=seed, env_steps=STEPS[name], out=tmp_path / str(number))
        for number, seed in enumerate((3, 3, 4))
    ]
    once, again, other = ((folder / "weights.safetensors").read_bytes() for folder in made)
    assert once == again != other
    cards = [read_teammate_card(folder) for folder in made]
    assert cards[0] == cards[1]
    kind = name.partition("-")[0]
    for world in cards[0]["strength"]:
        for column in ("return", "captures"):
            assert {kind, *wolfpack_rules()} <= world[column].keys()
    assert Policy.load(made[0]).act(make_environment("wolfpack", 2).observe()).shape == (6,)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("learn", [distilled.learn, dqn.learn])
def test_nothing_is_kept_of_a_stopped_training(learn, tmp_path: Path) -> None:
    seen = []

    def interrupt(progress) -> None:
        seen.append(progress.env_steps)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RunFailedError, match="nothing was kept"):
        learn(Request(20_000, 0, tmp_path, interrupt, lambda text: None))
    assert len(seen) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_strength_is_the_mean_over_the_same_episodes() -> None:
    env = make_environment("wolfpack", 2, {"teammates": ["greedy"]})
    rules = {name: wolfpack_rules()[name] for name in ("random", "greedy")}
    numbers = measuring.strength(env, rules, ("return", "captures"))
    for name, rule in rules.items():
        table = play_episodes(env, rule, [500_000, 500_001, 500_002])
        for column in ("return", "captures"):
            mean, error = table[column].mean(), table[column].std() / 3**0.5
            assert numbers[column][name] == {"mean": round(mean, 3), "standard_error": round(error, 3)}


def test_likeness_of_a_coin() -> None:
    """All five actions alike: ln 5 nats to say what the rule does, right in a fifth of all decisions."""
    torch.manual_seed(0)
    actor = make_actor(wolfpack_spec(WolfpackConfig()), {"hidden": 4})
    for parameter in actor.network.head[2].parameters():
        torch.nn.init.zeros_(parameter)
    numbers = distilled.likeness(actor)
    assert numbers["cross_entropy"] == numbers["entropy"] == round(np.log(5), 3)
    assert numbers["agreement"]["sampled"] == 0.2
    assert 0.1 < numbers["agreement"]["best_action"] < 0.5 < numbers["agreement"]["most"] < 1.0
    assert 0.0 < numbers["least_cross_entropy"] < 0.5


def test_labels_by_hand() -> None:
    """Prey at (5, 5) and (0, 0); who stands right of the first pushes left; who is above its cell goes down to it."""
    env = make_environment("wolfpack", 1, {"teammates": ["random"], "start_size": 2})
    obs = env.observe()
    obs.agent_rows[:, :2] = [[5, 6], [2, 5]]
    obs.task_rows[:, :2] = [[5, 5], [0, 0]]
    shares = distilled.rule_shares(obs, env.draws())
    np.testing.assert_array_equal(shares, np.eye(5)[[LEFT, DOWN]])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40))
def test_labels_are_what_the_rule_does_where_it_is_sure(seed: int, steps: int) -> None:
    env = make_environment("wolfpack", 3, {"teammates": ["teammate_aware"], "team_size": 5})
    env.reset([seed, seed + 1, seed + 2])
    rule = wolfpack_rules()["teammate_aware"]
    for _ in range(steps):
        env.step(rule.act(env.observe(), env.draws()))
    obs, draws = env.observe(), env.draws()
    shares = distilled.rule_shares(obs, draws)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert ((shares == 1.0).any(axis=1) | ((shares > 0).sum(axis=1) > 2)).all()  # sure, or any of the five
    labels = env.step(rule.act(obs, draws)).labels
    sure = shares.max(axis=1) == 1.0
    np.testing.assert_array_equal(labels[sure], shares[sure].argmax(axis=1))
    np.testing.assert_array_equal(distilled.rule_choices(obs, draws), labels)


def test_every_round_is_an_episode_of_everybody() -> None:
    actor = make_actor(wolfpack_spec(WolfpackConfig()), {"hidden": 4})
    school = distilled.School(actor, seed=1)
    assert school.env_steps == 200 * 8 * 3
    data = school.round()
    assert len(data.inputs) == len(data.actions) > 2 * school.env_steps
    assert set(data.actions.tolist()) == set(range(5))
    assert all(world.teammates.names[-1] == "student" for world in school.worlds)
    batches = list(distilled.minibatches(data, np.random.default_rng(0)))
    counts = torch.cat([batch.actions for batch in batches]).bincount()
    assert counts.tolist() == (distilled.EPOCHS * data.actions.bincount()).tolist()


def test_weights_are_saved_before_they_are_measured_and_stay_if_that_is_stopped(tmp_path: Path, monkeypatch) -> None:
    out, seen = tmp_path / "mine", []

    def learn(request: Request) -> Path:
        (request.folder / "made").mkdir()
        (request.folder / "made/weights.safetensors").write_bytes(b"weights")
        return request.folder / "made"

    def measure(folder: Path, say) -> dict:
        seen.append(sorted(path.name for path in folder.iterdir()))
        say("one player")
        raise KeyboardInterrupt

    calls = {"learn": learn, "measure": measure}
    monkeypatch.setattr(recipes, "_call", lambda target, *args: calls[target.rpartition(":")[2]](*args))
    said: list[str] = []
    with pytest.raises(PartlyStoppedError, match=f"the weights are in {out}, their strength was not measured"):
        train_teammate("dqn-wolfpack", out=out, say=said.append)
    assert seen == [["card.json", "weights.safetensors"]]
    assert any(f"saved in {out}" in line for line in said)
    assert said[-1] == "one player"
    assert (out / "weights.safetensors").read_bytes() == b"weights"
    assert "strength" not in read_teammate_card(out)


def test_measuring_says_what_it_has_measured() -> None:
    said: list[str] = []
    env = make_environment("wolfpack", 2, {"teammates": ["greedy"], "max_steps": 3})
    measuring.strength(env, {"greedy": wolfpack_rules()["greedy"]}, say=said.append)
    assert len(said) == 1
    assert "greedy in wolfpack: return " in said[0]
