"""The shipped worlds, and what is said about mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_openness.envs.registry import make_environment
from rl_openness.envs.wildfire import make_wildfire, setup_names, wildfire_config
from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.envs.wildfire.setups import exact_optimum, family_names, setup_data, split_name
from rl_openness.errors import UserError

PLATO = json.loads((Path(__file__).parents[2] / "golden" / "plato_setups.json").read_text())


def test_all_names() -> None:
    assert setup_names() == list(PLATO["setups"])
    assert len(setup_names()) == 20
    assert family_names() == sorted(PLATO["families"])


@pytest.mark.parametrize("name", PLATO["setups"])
def test_upstream_is_the_reconstruction(name: str) -> None:
    data = setup_data(f"upstream/{name}")
    assert data["fire"].pop("burnt_cells_recover") is False
    assert data["env"].pop("end_when_clear") is True
    assert data["env"].pop("max_steps") == PLATO["horizon"]
    reference = PLATO["setups"][name]
    assert data == {**reference, "env": {key: value for key, value in reference["env"].items() if key != "max_steps"}}


@pytest.mark.parametrize("name", PLATO["setups"])
def test_living_changes_seven_fields(name: str) -> None:
    living = wildfire_config(name).model_dump()
    upstream = wildfire_config(f"upstream/{name}").model_dump()
    changed = {
        f"{group}.{field}": value
        for group, fields in living.items()
        if isinstance(fields, dict)
        for field, value in fields.items()
        if value != upstream[group][field]
    }
    wanted = {key: value for key, value in PLATO["families"]["living"].items() if key != "meaning"}
    wanted["fire.burnt_cells_recover"] = wanted.pop("burnt_cells_recover")
    wanted["env.end_when_clear"] = wanted.pop("end_when_clear")
    assert changed == wanted
    assert wildfire_config(f"living/{name}").model_dump() == living


@pytest.mark.parametrize("name", PLATO["setups"])
def test_every_living_setup_has_its_optimum(name: str) -> None:
    optimum = exact_optimum(name)
    assert optimum is not None
    assert optimum > 0
    assert exact_optimum(f"living/{name}") == optimum
    assert exact_optimum(f"upstream/{name}") is None
    assert exact_optimum(name, changed=True) is None


def test_optima_of_the_specification() -> None:
    assert exact_optimum(None) is None
    assert [exact_optimum(name) for name in ("2x3/S0", "3x3/S3", "5x5/S1")] == [4.0, 21.0, 137.7]


def test_families() -> None:
    assert split_name("3x3/S3") == ("living", "3x3/S3")
    assert split_name("upstream/3x3-zs/S0") == ("upstream", "3x3-zs/S0")


def test_team_size_repeats_or_cuts_the_team() -> None:
    agents = wildfire_config("3x3/S3", team_size=5).agent
    assert agents.agents == [(0, 0), (1, 1), (2, 2), (0, 0), (1, 1)]
    assert agents.attack_range == [1, 1, 1, 1, 1]
    assert wildfire_config("3x3/S3", team_size=1).agent.agents == [(0, 0)]


def test_overrides_are_plain_fields_and_come_last() -> None:
    config = wildfire_config("3x3/S3", overrides={"fire.burnout_probability": 0.25, "env.max_steps": 7})
    assert (config.fire.burnout_probability, config.env.max_steps) == (0.25, 7)
    assert setup_data("3x3/S3")["env"]["max_steps"] == 100  # the shipped data are not touched


def test_an_own_world_from_a_mapping_or_a_yaml_file(tmp_path: Path) -> None:
    data = wildfire_config("2x3/S1").model_dump(mode="json")
    file = tmp_path / "world.yaml"
    file.write_text(yaml.safe_dump(data))
    assert wildfire_config(config=data) == wildfire_config(config=str(file)) == WildfireConfig(**data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wildfire field 'grid_height': Field required"),
        ("[1, 2]", "must hold keys and values, found list"),
        ("fire: {lit: [}", "not valid YAML: "),
        ("grid_height: 3", "wildfire field 'grid_width': Field required"),
    ],
)
def test_a_broken_world_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "world.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        wildfire_config(config=str(file), team_size=2)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_default_world() -> None:
    assert make_wildfire().config == wildfire_config("3x3/S3")
    assert make_environment("wildfire", 2).num_copies == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"setup": "3x3/S4"}, "unknown setup '3x3/S4'; did you mean '3x3/S"),
        ({"setup": "upstraem/3x3/S1"}, "unknown setup 'upstraem/3x3/S1'; did you mean 'upstream/3x3/S1'?"),
        ({"setup": "upstream/3x3/S9"}, "unknown setup 'upstream/3x3/S9'; did you mean '3x3/S"),
        ({"setup": "nowhere"}, "unknown setup 'nowhere'; known: 2x3/S0, 2x3/S1"),
        ({}, "either `setup`"),
        ({"setup": "3x3/S1", "config": {}}, "not both"),
        ({"config": "no/such/world.yaml"}, "'no/such/world.yaml': no such file"),
        ({"setup": "3x3/S1", "team_size": 0}, "team_size must be at least 1, not 0"),
    ],
)
def test_wrong_names(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        wildfire_config(**arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"fire.burnout_probabilty": 0.1}, "'fire.burnout_probabilty'; did you mean 'fire.burnout_probability'?"),
        ({"frie.lit": 0}, "no field 'frie'; did you mean 'fire'?"),
        ({"grid_height.cells": 1}, "'grid_height.cells': 'grid_height' is a single value, not a group of fields"),
        ({"fire": 3}, "'fire': Input should be a valid dictionary"),
        ({"fire.burnout_probability": 1.5}, "'fire.burnout_probability': Input should be less than or equal to 1"),
        ({"fire.burnout_probability": "often"}, "'fire.burnout_probability'"),
        ({"fire.burnout_probability": float("nan")}, "'fire.burnout_probability'"),
        ({"fire.num_fire_states": 3}, "'fire.num_fire_states'"),
        ({"fire.lit": [[True]]}, "fire.lit must have 3 rows of 3 cells"),
        ({"fire.fire_types": [[0, -1, 0]] * 3}, "fire.fire_types must not be negative"),
        ({"fire.ignition_temp": [[4] * 3] * 3}, "fire.ignition_temp must lie in 1..3"),
        ({"fire.ignition_temp": [[0] * 3] * 3}, "fire.ignition_temp must lie in 1..3"),
        ({"fire.max_spread_rate": 0, "stochastic.realistic_fire_spread": True}, "directional spread needs"),
        ({"agent.agents": []}, "'agent.agents'"),
        ({"agent.agents": [[0, 0], [1, 1], [3, 0]]}, "(3, 0) lies outside the 3x3 grid"),
        ({"agent.attack_range": [1]}, "agent.attack_range must have one number for each of the 3 agents"),
        ({"agent.initial_suppressant": 9}, "agent.initial_suppressant must not exceed agent.suppressant_states"),
        ({"agent.initial_equipment_state": 3}, "agent.initial_equipment_state must be below"),
        ({"agent.critical_error_probability": 0.2, "stochastic.critical_error": True, "stochastic.degrade": True}, "1"),
        ({"agent.possible_capacities": [1.0]}, "must have equal length"),
        ({"agent.possible_capacities": [0.5, 2, 3]}, "agent.possible_capacities must be at least 1"),
        ({"agent.capacity_probabilities": [0.5, 0.4, 0]}, "agent.capacity_probabilities must add up to 1, not 0.9"),
        ({"stochastic.critical_error": True}, "stochastic.critical_error needs stochastic.degrade"),
        (
            {"stochastic.realistic_fire_spread": True, "stochastic.fire_spread": False},
            "stochastic.realistic_fire_spread needs stochastic.fire_spread",
        ),
        ({"reward.burnout_penalty": -1}, "reward.burnout_penalty_scaled needs reward.burnout_penalty = 0"),
        ({"env.show_bad_actions": True}, "env.show_bad_actions needs env.presence = always"),
        ({"env.max_steps": None}, "env.end_when_clear = false needs env.max_steps"),
        ({"env.max_steps": 0}, "'env.max_steps'"),
    ],
)
def test_wrong_fields(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        wildfire_config("3x3/S3", overrides=overrides)
    assert message in str(error.value)
    assert str(error.value).startswith("wildfire")
    assert "\n" not in str(error.value)


def test_unknown_environments_and_options() -> None:
    with pytest.raises(UserError, match="unknown environment 'wildfir'; did you mean 'wildfire'"):
        make_environment("wildfir", 1)
    with pytest.raises(UserError, match=r"environment 'wildfire': .*'setpu'"):
        make_environment("wildfire", 1, {"setpu": "3x3/S3"})
