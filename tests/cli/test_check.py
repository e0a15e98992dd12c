"""`check`: findings as sentences, and exit codes."""

import shutil
from pathlib import Path

import pytest

WORLDS = Path(__file__).parents[1] / "envs" / "conformance" / "worlds.py"
BROKEN = """
from pasture.worlds import Meadow

class Late(Meadow):
    possible_agents = ("a",)

    def __init__(self, size=1):
        super().__init__()
        self.spaces["b"] = self.spaces["a"]

number = 3

def nothing():
    pass
"""


@pytest.fixture(scope="module")
def pasture(tmp_path_factory):
    """A folder with a package of a user's."""
    folder = tmp_path_factory.mktemp("check")
    (folder / "pasture").mkdir()
    shutil.copy(WORLDS, folder / "pasture" / "worlds.py")
    (folder / "pasture" / "broken.py").write_text(BROKEN)
    return folder


def test_a_sound_environment(rlo, pasture, without_heavy):
    done = rlo("check", "pasture.worlds:Meadow", "--episodes", 3, "--seed", 7, cwd=pasture, **without_heavy)
    first, note, last = done.stdout.splitlines()
    assert first == "pasture.worlds:Meadow is checked as a PettingZoo ParallelEnv."
    assert note.startswith("note: agent 'b', step 3, seed 7: it is no longer in `agents`, and neither terminated nor ")
    assert "(3 times). If it has left for good, set its flag" in note
    assert last == "3 episodes, 15 steps, 2 agents, 3 joins, 3 leaves, 3 absences: no faults, 1 note."


def test_faults_are_exit_code_1(rlo, pasture):
    done = rlo("check", "pasture.broken:Late", cwd=pasture, code=1)
    assert "fault: agent 'b', step 2, seed 0: it was not declared: it is not in `possible_agents`" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(": 1 fault, 1 note.")
    done = rlo("check", "pasture.broken:Late", "--set", "bridge.agents=.*", "--set", "size=2", cwd=pasture)
    assert "no faults" in done.stdout


def test_of_a_configuration(rlo, pasture, place):
    done = rlo("check", "tiny.yaml", "--episodes", 1, "--steps", 20, cwd=place)
    assert done.stdout.startswith("wildfire is checked as an OpenVectorEnv of this package.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("wildfir", "unknown environment 'wildfir'; did you mean 'wildfire'?"),
        ("pasture.world:Meadow", "module 'pasture.world' cannot be imported: No module named 'pasture.world'"),
        ("pasture.worlds:Medow", "has no attribute 'Medow'; did you mean 'Meadow'?"),
        ("pasture.broken:number", "is an int: name a function or a class that makes an environment"),
        ("pasture.broken:nothing", "gives None instead of an environment: is a `return` missing?"),
        ("pasture.broken:Late --set sizes=2", "unknown option 'sizes'; did you mean 'size'?"),
        ("pasture.broken:Late --set bridge.agent=b", "bridge.agent: unknown key; did you mean 'agents'?"),
        ("pasture.broken:Late --set bridge.mapping.taskz=b", "mapping.taskz: unknown key; did you mean 'tasks'?"),
        (
            "pasture.broken:Late --set bridge.max_steps=0",
            "bridge.max_steps: input should be greater than",
        ),
        ("pasture/worlds.py:Meadow", "one of yours is named module:attribute"),
    ],
)
def test_wrong_targets_are_exit_code_2(rlo, pasture, arguments, words):
    done = rlo("check", *arguments.split(), cwd=pasture, code=2)
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
