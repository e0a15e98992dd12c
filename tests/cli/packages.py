"""Installed packages as `importlib.metadata` sees them: a folder on the path with modules and their entry points."""

WORLD = '''
"""A world of another package."""
from pasture.worlds import Meadow

class Herd(Meadow):
    """Sheep that come and go."""
    bridge_options = {"max_steps": 4}

    def __init__(self, length=5):
        super().__init__()
        self.length = length

def from_config(config):
    """RLlib passes options as one dict."""
    herd = Herd()
    herd.length = config["length"]
    return herd

def many(num_copies, length=5):
    """Copies that the package makes itself."""
    from rl_openness.envs.adapters.bridge import bridge
    return bridge(lambda: Herd(length), num_copies)

def not_many(num_copies):
    return Herd()
'''
POLICIES = '''
"""Policies of another package."""
import numpy as np
from rl_openness.policies.base import Policy

class Still(Policy):
    """Stands still."""
    name = "still"

    def act(self, obs, draws=None):
        return np.full(len(obs.present), -1)
'''
METHODS = '''
"""A method of another package."""
from dataclasses import replace
from rl_openness.algorithms.registry import find_method

METHOD = replace(find_method("mappo"), name="herding", summary="MAPPO for sheep", defaults={"hidden": 8})
WRONG = 3
'''
ENTRY_POINTS = """
[rl_openness.environments]
herd = pasture.world:Herd
lost = pasture.gone:World

[rl_openness.policies]
herd.still = pasture.policies:Still
wildfire.still = pasture.policies:Still
foraging.still = pasture.policies:Still

[rl_openness.algorithms]
herding = pasture.methods:METHOD
wrong = pasture.methods:WRONG
"""


def install(folder, worlds):
    """The package `pasture` 0.3 in a folder; `worlds` is the file with `Meadow`. Returns the folder as text."""
    package, metadata = folder / "pasture", folder / "pasture-0.3.dist-info"
    for each in (package, metadata):
        each.mkdir(parents=True)
    for name, text in (("world", WORLD), ("policies", POLICIES), ("methods", METHODS)):
        (package / f"{name}.py").write_text(text)
    (package / "worlds.py").write_text(worlds.read_text())
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pasture\nVersion: 0.3\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return str(folder)
