"""A damaged or foreign `state/` is told in one line and changes nothing; it never reaches a kernel."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rl_openness.algorithms.mappo.config import PLATO
from rl_openness.errors import UserError
from rl_openness.rllib.checkpoint import restore_checkpoint, save_checkpoint
from tests.rllib.test_algorithm import card, small

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(scope="module")
def algorithm() -> PLATO:
    algorithm = small().build_algo()
    algorithm.train()
    return algorithm


@pytest.fixture
def saved(algorithm: PLATO, tmp_path: Path) -> Path:
    save_checkpoint(algorithm, tmp_path / "000000000256", card(algorithm))
    return tmp_path / "000000000256"


def number_of(tree: dict, *path: str) -> str:
    """Number of the array at the end of a path of keys."""
    for name in path:
        tree = next(item for key, item in tree["dict"] if key["plain"] == name)
    return next(iter(tree.values()))


def change(folder: Path, path: tuple[str, ...], make: object) -> None:
    state = folder / "state"
    arrays = load_file(state / "arrays.safetensors")
    name = number_of(json.loads((state / "tree.json").read_text()), *path)
    arrays[name] = np.ascontiguousarray(make(arrays[name]))
    save_file(arrays, state / "arrays.safetensors")


SAMPLER = ("env_runner", "sampler")


@pytest.mark.parametrize(
    ("path", "make", "words"),
    [
        ((*SAMPLER, "env", "equipment"), lambda a: a + 10**8, "equipment' must lie in 0 to 2"),
        ((*SAMPLER, "env", "fire"), lambda a: a + 5, "fire' must lie in"),
        ((*SAMPLER, "env", "step"), lambda a: a - 10**6, "step' must lie in"),
        ((*SAMPLER, "env", "step"), lambda a: a.astype(np.float64), "step' must be int64, found float64"),
        ((*SAMPLER, "env", "suppressant"), lambda a: a * np.float32("nan"), "suppressant' must lie in"),
        ((*SAMPLER, "env", "intensity"), lambda a: a[:, :2], "intensity' must have shape"),
        ((*SAMPLER, "returns"), lambda a: a[:3], "returns must have shape"),
    ],
)
def test_wrong_arrays_are_named(algorithm: PLATO, saved: Path, path: tuple[str, ...], make: object, words: str) -> None:
    change(saved, path, make)
    with pytest.raises(UserError, match=f"does not fit this run: .*{words}"):
        restore_checkpoint(algorithm, saved)


def test_moments_that_do_not_fit_their_parameters_never_reach_the_optimizer(algorithm: PLATO, saved: Path) -> None:
    state = saved / "state"
    arrays = load_file(state / "arrays.safetensors")
    moments = [name for name, array in arrays.items() if array.shape == (16, 16)]
    save_file({**arrays, moments[-1]: np.zeros((3, 3), np.float32)}, state / "arrays.safetensors")
    with pytest.raises(UserError, match="does not fit this run"):
        restore_checkpoint(algorithm, saved)


@pytest.mark.parametrize("text", ['{"dict": []}', "[]", "null", "3", '{"plain": 3}', '{"dict": 3}', "[" * 100_000])
def test_trees_of_nonsense_are_refused(algorithm: PLATO, saved: Path, text: str) -> None:
    (saved / "state" / "tree.json").write_text(text)
    with pytest.raises(UserError, match="state cannot be read"):
        restore_checkpoint(algorithm, saved)


def test_an_older_checkpoint_is_offered_where_there_is_one(algorithm: PLATO, saved: Path) -> None:
    newer = saved.with_name("000000000512")
    save_checkpoint(algorithm, newer, card(algorithm))
    (newer / "state" / "tree.json").write_text("")
    with pytest.raises(UserError, match=r"remove .*000000000512 to go on from the checkpoint before it"):
        restore_checkpoint(algorithm, newer)
