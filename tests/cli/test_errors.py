"""A mistake is one line on stderr, exit code 2, no traceback; nothing heavy is imported to tell it."""

import re

import pytest

FORAGING = "evaluate --environment foraging --policy H1"
WOLFPACK = "evaluate --environment wolfpack --policy greedy"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train", r"nothing to train: name a configuration .* or a run with --resume"),
        ("train tini.yaml", r"no file 'tini.yaml'; did you mean 'tiny.yaml'\?"),
        ("train broken.yaml", r"broken.yaml: line \d: not valid YAML"),
        ("train tiny.yaml --set settings.lrr=1", r"--set: settings.lrr: unknown key; did you mean 'lr'\?"),
        ("train wrong.yaml", r"wrong.yaml: run.env_stepz: unknown key; did you mean 'env_steps'\?"),
        ("train tiny.yaml --set run.env_steps=many", r"run.env_steps: .* not 'many'"),
        ("train tiny.yaml --set settings.num_envs_per_env_runner=7", r"64.* must be a multiple of .*7"),
        ("train tiny.yaml --run ../x", r"--run: name: must begin with a letter or digit .* not '../x'"),
        ("train there_run", r"no file 'there_run'"),
        ("train runs/there", r"runs/there is a run: go on with it by --resume runs/there"),
        ("train tiny", r"no file 'tiny'; did you mean 'tiny.yaml'\?"),
        ("train tiny.yaml --set lr=1", r"--set: lr: unknown key; did you mean 'settings.lr'\?"),
        (
            "train tiny.yaml --set environment.options.overrides.burnout_probability=1",
            r"'burnout_probability'; did you mean 'fire.burnout_probability'\?",
        ),
        ("train tiny.yaml --set settings.minibatch_size=4096", r"--set: settings: minibatch_size .4096. must not"),
        ("train tiny.yaml --set settings.lr=[[5,1e-3]]", r"settings.lr: must be a number .* or a list of two or more"),
        ("evaluate runs/nothing", r"no checkpoint at 'runs/nothing'"),
        (
            "train tiny.yaml --run there",
            r"run 'runs.there' exists: go on with it by `rl-openness train --resume runs.there`, or .* --run NAME",
        ),
        ("train tiny.yaml --seeds 1,x", r"--seeds 1,x: must be whole numbers"),
        ("train tiny.yaml --seeds 1,2,1", r"--seeds 1,2,1: a seed is given twice"),
        ("train tiny.yaml --seeds 1 --seed 2", r"--seeds and --seed do not go together"),
        ("train tiny.yaml --seeds 5,6 --run there", r"run 'runs.there-seed6' exists"),
        ("train --resume their", r"no run 'their' in 'runs'; did you mean 'there'\?"),
        ("train --resume there --seed 3", r"--resume and --seed do not go together"),
        ("train --resume there --set run.seed=3", r"run.seed is 0 in this run and cannot become 3"),
        ("evaluate", r"nothing to evaluate: name a checkpoint, or a rule"),
        ("evaluate --policy coalitio", r"unknown rule 'coalitio'; did you mean 'coalition'\?"),
        ("evaluate --policy noop --setup 3x3/S9", r"unknown setup '3x3/S9'; did you mean '3x3/S3'\?"),
        (
            "evaluate --environment foraging --policy H1 --protocol reference --episodes 3",
            r"--protocol reference and --episodes do not go together",
        ),
        (
            "evaluate --environment foraging --policy H1 --protocol reference --first-seed 0",
            r"--protocol reference and --first-seed do not go together",
        ),
        ("evaluate runs/there --environment foraging", r"--environment goes with --policy alone"),
        ("evaluate --environment foraging --policy H1 --team-size 40", r"size 8 is too small: 40 players"),
        ("evaluate --environment foraging --policy a2d", r"unknown type of teammate 'a2d' .* did you mean 'a2c'"),
        (f"{FORAGING} --setup 3x3/S3", r"--setup names worlds of wildfire: foraging has none"),
        (f"{FORAGING} --prey dqn", r"--prey applies to wolfpack alone: foraging has no prey"),
        ("evaluate --policy noop --teammates wolfpack-all", r"--teammates applies to foraging and wolfpack alone"),
        (f"{WOLFPACK} --prey=", r"unknown prey ''; known: "),
        (f"{WOLFPACK} --prey ./nix", r"no checkpoint at 'nix'.*by name: evader, random"),
        (f"{WOLFPACK} --prey {'x' * 300}", r"^error: x{57}\.\.\.: File name too long$"),
        (f"{WOLFPACK} --policy=", r"unknown type of teammate ''"),
        (f"{WOLFPACK} --teammates popp.yaml", r"no population 'popp.yaml'; did you mean 'pop.yaml'\?"),
        (f"{WOLFPACK} --teammates pop.yaml", r"pop.yaml: train: the name of a type is empty"),
        (f"{WOLFPACK} --team-size 1", r"--team-size 1: wolfpack needs 2 or more, the learner and a teammate"),
        (f"{WOLFPACK} --team-size 999", r"--team-size 999: size 10 gives 100 cells"),
        ("check wildfir", r"^error: unknown environment 'wildfir'"),
        ("train --environment wildfir", r"^error: unknown environment 'wildfir'"),
        ("evaluate --environment= --policy noop", r"^error: unknown environment ''"),
        ("evaluate --policy noop --output table.txt", r"--output table.txt: must end with .parquet or .csv"),
    ],
)
def test_one_line_and_exit_code_2(wrong, rlo, without_heavy, command, words):
    done = rlo(*command.split(), cwd=wrong, code=2, **without_heavy)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert re.search(words, done.stderr), done.stderr
    assert done.stdout == ""


@pytest.fixture(scope="module")
def wrong(place, tmp_path_factory):
    """Files with mistakes, and a run `there` that has only its configuration."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "tiny.yaml").write_text((place / "tiny.yaml").read_text())
    (folder / "wrong.yaml").write_text("extends: tiny.yaml\nrun: {env_stepz: 3}\n")
    (folder / "pop.yaml").write_text('environment: wolfpack\ntrain: [""]\n')
    (folder / "broken.yaml").write_text("name: broken\nrun: [\n")
    for name in ("there", "there-seed6"):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "config.yaml").write_text("name: there\n")
    return folder


def test_missing_checkpoint_names_the_nearest(trained, rlo):
    place, _ = trained
    done = rlo("evaluate", "runs/tiny/checkpoints/000000002561", cwd=place, code=2)
    assert done.stderr.count("\n") == 1
    assert "did you mean 'runs/tiny/checkpoints/000000002560'?" in done.stderr
