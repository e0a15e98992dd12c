"""What a YAML file may say, how files build on each other, and how mistakes are told. Nothing here needs Ray."""

from pathlib import Path

import pytest
import yaml

from rl_openness.algorithms.mappo.settings import PLATO_VARIANTS
from rl_openness.errors import UserError
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.yaml_files import dump_experiment, load_experiment

SHIPPED = sorted((Path(__file__).parents[2] / "tune_configs").glob("*.yaml"))


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
def small(write):
    return write("small.yaml", "name: small\nsettings:\n  lr: 1e-3\nrun: {env_steps: 1e6, seed: 7}\n")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_are_valid_and_named_after_themselves(path):
    settings = load_experiment(path)
    assert settings.name == path.stem
    assert settings.settings.get("deduplicate", True) is True  # PLATO's alone


def test_shipped_base_spells_out_every_key_and_changes_no_default():
    (base,) = [path for path in SHIPPED if path.stem == "plato_wildfire"]
    full = ExperimentSettings(name="plato_wildfire", settings={"deduplicate": True})
    assert load_experiment(base) == full
    written = yaml.safe_load(base.read_text())
    for group, keys in full.model_dump().items():
        if isinstance(keys, dict) and group != "environment":
            of_the_variant = PLATO_VARIANTS["plato-strict"] if group == "settings" else {}
            assert set(written[group]) == set(keys) - set(of_the_variant), group
            assert all(f"# {key}: " in base.read_text() for key in of_the_variant)


def test_shipped_strict_form_differs_by_its_variant_alone():
    names = ("plato_strict_3x3_s3", "plato_wildfire_3x3_s3")
    strict, plain = (load_experiment(path) for path in SHIPPED if path.stem in names)
    assert strict.settings == {**plain.settings, **PLATO_VARIANTS["plato-strict"]}


def test_defaults_are_spelt_out(small):
    settings = load_experiment(small)
    assert settings.run.env_steps == 1_000_000
    assert settings.run.seed == 7
    assert settings.settings["lr"] == 1e-3
    assert settings.settings["minibatch_size"] == 256
    assert settings.environment.options == {"setup": "3x3/S3"}
    assert settings.evaluation.rules == ["noop", "random", "weakest", "strongest", "solo", "coalition"]


def test_variant_gives_defaults_and_settings_go_before_them(small):
    changes = ["algorithm=plato-strict", "settings.frame=relative"]
    settings = load_experiment(small, changes).settings
    assert (settings["query_include_self"], settings["frame"]) == (False, "relative")


def test_written_and_read_again_it_is_the_same(small, tmp_path):
    changes = [
        "environment.options.overrides.fire.burnout_probability=0.4",
        "environment.options.team_size=5",
        "settings.adam_epsilon=1e-7",
        "evaluation.setups=[4x4/S3]",
    ]
    settings = load_experiment(small, changes)
    (tmp_path / "again.yaml").write_text(dump_experiment(settings))
    assert load_experiment(tmp_path / "again.yaml") == settings


def test_own_world_is_read_into_the_experiment(small, write):
    from rl_openness.envs.wildfire.setups import setup_data, wildfire_config

    world = write("world.txt", yaml.safe_dump(setup_data("2x3/S1")))
    settings = load_experiment(small, [f"environment.options.config={world}"])
    assert wildfire_config(**settings.environment.options) == wildfire_config("2x3/S1")
    assert isinstance(settings.environment.options["config"], dict)


def test_extends_puts_keys_over_the_other_file_group_by_group(small, write):
    (small.parent / "sub").mkdir()
    middle = write("sub/middle.yaml", "extends: ../small.yaml\nsettings: {num_epochs: 3}\nrun:\n  # nothing\n")
    last = write("last.yaml", "extends: sub/middle.yaml\nname: last\nrun.seed: 9\n")
    settings = load_experiment(last, ["settings.num_epochs=4"])
    assert settings.name == "last"
    assert (settings.settings["lr"], settings.settings["num_epochs"]) == (1e-3, 4)
    assert (settings.run.env_steps, settings.run.seed) == (1_000_000, 9)
    assert load_experiment(middle).settings["num_epochs"] == 3


def test_dotted_and_nested_overrides_mix_and_the_last_one_counts(write):
    write(
        "base.yaml",
        """
        name: base
        environment.options.overrides:
          fire.burnout_probability: 0.1
          fire: {base_spread_rate: 0.2}
        """,
    )
    top = write("top.yaml", "extends: base.yaml\nenvironment.options.overrides: {fire: {burnout_probability: 0.3}}\n")
    for changes, expected in (([], 0.3), (["environment.options.overrides.fire.burnout_probability=0"], 0)):
        overrides = load_experiment(top, changes).environment.options["overrides"]
        assert overrides == {"fire.burnout_probability": expected, "fire.base_spread_rate": 0.2}


def test_circle_and_missing_base_are_told(write):
    write("a.yaml", "extends: b.yaml\nname: a\n")
    b = write("b.yaml", "extends: a.yaml\n")
    with pytest.raises(UserError, match=r"b\.yaml: extends goes in a circle: b.yaml -> a.yaml -> b.yaml"):
        load_experiment(b)
    lost = write("lost.yaml", "extends: aa.yaml\n")
    with pytest.raises(UserError, match=r"lost.yaml: extends: no file '.*aa.yaml'; did you mean '.*a.yaml'\?"):
        load_experiment(lost)


def test_error_names_the_file_that_gave_the_key(small, write):
    top = write("top.yaml", "extends: small.yaml\nname: top\n")
    small.write_text("settings: {learning_rate: 1}\nrun: {env_stepz: 3}\n")
    with pytest.raises(UserError, match=r"small\.yaml: run\.env_stepz: unknown key; did you mean 'env_steps'\?"):
        load_experiment(top)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", r"line 1: not valid YAML"),
        ("- a\n", "must hold keys and values, found list"),
        ("", "name: this key is missing"),
        ("name: a\nname: b\n", "line 2: not valid YAML: key 'name' is given twice"),
        ("name: a\nextends: [b]\n", "extends: must be the name of a file"),
        ("name: ../a\n", "name: must begin with a letter or digit"),
        ("name: a\nrun: 5\n", "run: must be a group of keys, not 5"),
    ],
)
def test_wrong_files(write, text, words):
    with pytest.raises(UserError, match=words):
        load_experiment(write("wrong.yaml", text))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("settings.lrr=1", r"--set: settings.lrr: unknown key; did you mean 'lr'\?"),
        ("settings.lr=fast", "settings.lr: must be a number .* not 'fast'"),
        ("settings.lr=-1", "settings.lr: must be a number .* not -1"),
        ("settings.stats=[mean, maen]", r"settings.stats.1: input should be 'mean'.* not 'maen'"),
        ("run.env_steps=1.5", "run.env_steps: .*not 1.5"),
        ("run.seed=true", "run.seed: must be a number, not True"),
        ("runs.seed=1", r"runs: unknown key; did you mean 'run'\?"),
        ("algorithm=plata", r"algorithm: unknown algorithm 'plata'; did you mean 'plato'\?"),
        ("environment.name=wildfires", r"environment.name: unknown environment .* mean 'wildfire'\?"),
        ("environment.options.setup=3x3/S33", r"environment.options.setup: .* mean '3x3/S3'\?"),
        ("environment.options.teamsize=3", r"environment.options.teamsize: unknown key; did you mean 'team_size'\?"),
        ("environment.options.team_size=0", "environment.options.team_size: team_size must be at least 1"),
        ("environment.options.config=lost.yaml", "environment.options.config: .*no such file"),
        (
            "environment.options.overrides.fire.bonus=1",
            "--set: environment.options.overrides.fire.bonus: wildfire has no",
        ),
        (
            "environment.options.overrides.env.show_bad_actions=true",
            "env.show_bad_actions: .*presence = always",
        ),
        ("evaluation.rules=[nop]", r"evaluation.rules: unknown rule 'nop'; did you mean 'noop'\?"),
        ("evaluation.setups=[3x3/S5]", "evaluation.setups: unknown setup"),
        ("settings.minibatch_size=2048", "settings: minibatch_size .2048. must not exceed"),
        ("settings.absent_state=hold", "settings: absent_state = hold needs encoder = lstm"),
        ("no_value", "--set no_value: must have the form path.of.key=value"),
        ("name=[", "--set name=.: the value is not valid YAML"),
    ],
)
def test_wrong_keys_and_values(small, change, words):
    with pytest.raises(UserError, match=words) as caught:
        load_experiment(small, [change])
    assert "\n" not in str(caught.value)


def test_overrides_that_are_right_only_together(small):
    changes = [f"environment.options.overrides.env.{key}" for key in ("show_bad_actions=true", "presence=always")]
    assert len(load_experiment(small, changes).environment.options["overrides"]) == 2


@pytest.mark.parametrize(
    ("copies", "batch", "runners", "learners"),
    [(64, 1024, 0, 0), (60, 1024, 0, 0), (64, 1024, 3, 0), (64, 1024, 4, 2), (64, 1024, 0, 3), (96, 1024, 1, 3)],
)
def test_sizes_are_refused_exactly_where_rllib_would(small, copies, batch, runners, learners):
    from rl_openness.algorithms.mappo.config import PLATOConfig

    config = PLATOConfig().environment("wildfire", env_config={"setup": "3x3/S3"})
    config.env_runners(num_env_runners=runners).learners(num_learners=learners)
    config.training(num_envs_per_env_runner=copies, train_batch_size_per_learner=batch)
    changes = [
        f"settings.num_envs_per_env_runner={copies}",
        f"settings.train_batch_size_per_learner={batch}",
        f"run.num_env_runners={runners}",
        f"run.num_learners={learners}",
    ]
    try:
        config.validate()
    except ValueError:
        with pytest.raises(UserError, match="must be a multiple of"):
            load_experiment(small, changes)
    else:
        load_experiment(small, changes)


def test_evaluations_are_as_usual_for_the_environment() -> None:
    def evaluated(name: str, **evaluation: int) -> tuple[int, int]:
        algorithm = "plato" if name == "wildfire" else "gpl"
        data = {"name": "x", "algorithm": algorithm, "environment": {"name": name}, "evaluation": evaluation}
        found = ExperimentSettings.model_validate(data).evaluation
        return found.first_seed, found.episodes

    assert evaluated("wildfire") == (200, 50)
    assert evaluated("foraging") == (2500, 80)
    assert evaluated("wolfpack", episodes=3) == (2500, 3)
