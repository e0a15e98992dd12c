"""Saved policies that were damaged or edited are refused in one line."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_openness.algorithms.mappo.networks.plato import make_actor
from rl_openness.envs.wildfire import make_wildfire
from rl_openness.errors import UserError
from rl_openness.policies.base import Policy
from rl_openness.policies.card import PolicyCard, read_card
from rl_openness.policies.checkpoint import save_policy

SETTINGS = {"hidden": 8}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    env = make_wildfire(1)
    card = PolicyCard("plato", SETTINGS, env.spec, "wildfire", {"setup": "3x3/S3"}, 64, 0)
    save_policy(tmp_path / "policy", card, make_actor(env.spec, SETTINGS))
    return tmp_path / "policy"


def test_it_loads_and_acts(policy: Path) -> None:
    env = make_wildfire(2)
    assert Policy.load(policy).act(env.observe()).shape == (6,)


@pytest.mark.parametrize(
    ("key", "value"),
    [("method", None), ("method", ["plato"]), ("settings", 3), ("settings", "x"), ("environment", None),
     ("environment", {}), ("env_config", 3), ("env_config", None), ("env_spec", None), ("env_spec", [1])],
)  # fmt: skip
def test_a_card_with_values_of_another_kind(policy: Path, key: str, value: object) -> None:
    data = json.loads((policy / "policy.json").read_text())
    (policy / "policy.json").write_text(json.dumps({**data, key: value}))
    with pytest.raises(UserError, match=r"policy.json cannot be read"):
        read_card(policy)


@pytest.mark.parametrize("text", ["null", "[]", "3", "{}", "[" * 100_000, "\0"])
def test_a_card_that_is_none(policy: Path, text: str) -> None:
    (policy / "policy.json").write_text(text)
    with pytest.raises(UserError, match=r"policy.json cannot be read"):
        read_card(policy)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t: t * float("nan"), "holds numbers that are not finite"),
        (lambda t: t.to(torch.int8), "int8, not"),
        (lambda t: t[:1], "not \\("),
    ],
)
def test_wrong_weights_are_named(policy: Path, make: object, words: str) -> None:
    weights = load_file(policy / "weights.safetensors")
    name = next(name for name, tensor in weights.items() if tensor.ndim == 2)
    save_file({**weights, name: make(weights[name]).contiguous()}, policy / "weights.safetensors")
    with pytest.raises(UserError, match=f"weights.safetensors cannot be used: tensor '{name}' .*{words}"):
        Policy.load(policy)


def test_missing_and_foreign_weights_are_named(policy: Path) -> None:
    weights = load_file(policy / "weights.safetensors")
    name = next(iter(weights))
    save_file({key: tensor for key, tensor in weights.items() if key != name}, policy / "weights.safetensors")
    with pytest.raises(UserError, match=f"tensor '{name}' is missing"):
        Policy.load(policy)
    save_file({**weights, "more": torch.zeros(1)}, policy / "weights.safetensors")
    with pytest.raises(UserError, match="tensor 'more' is not part of this network"):
        Policy.load(policy)


def test_another_width_is_told_and_an_impossible_one_too(policy: Path) -> None:
    data = json.loads((policy / "policy.json").read_text())
    for hidden, words in ((16, "cannot be used: tensor"), (10**9, "does not fit this version")):
        (policy / "policy.json").write_text(json.dumps({**data, "settings": {"hidden": hidden}}))
        with pytest.raises(UserError, match=words):
            Policy.load(policy)
