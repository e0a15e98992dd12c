"""A trained network that moves Wolfpack's prey, as a `PreyPolicy`: of the last five views the best of seven actions.

It is a function of what the reference's networks are functions of: the last five crops of 9 x 17 cells, kept through
death, forgotten at a reset, no random numbers. So it has their habit, too: where the last five views are alike it does
what it did. In place of their convolution and LSTM the five crops feed one dense layer, each with weights of its own:
only a few rows of them count (`prey_sight`), which costs a hundredth of a convolution over mostly empty cells. Acting
needs no torch, and a copy's prey does not depend on the copies beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from rl_openness.envs.base import EnvSpec
from rl_openness.envs.draws import Keys
from rl_openness.envs.state import restore
from rl_openness.envs.wolfpack.prey import VIEWS, PreyView
from rl_openness.envs.wolfpack.rules import NUM_PREY_ACTIONS, Ints
from rl_openness.policies.checkpoint import load_network
from rl_openness.policies.prey_sight import BORDERS, CODES, NOTHING, decide, see

HIDDEN = 64


class PreyNetwork(nn.Module):
    """Values of a prey's actions: a dense layer over the last views, a hidden one, an output per action."""

    def __init__(self, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.cells = nn.Parameter(torch.empty(VIEWS, CODES, hidden))
        self.cell_bias = nn.Parameter(torch.zeros(hidden))
        self.hidden = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, NUM_PREY_ACTIONS)
        # Some five things are in sight, in five views: sums of that many rows are about as large as one input.
        nn.init.normal_(self.cells, std=0.2)

    def forward(self, memory: Tensor) -> Tensor:
        """Values [n, 7] from the last views int64 [n, VIEWS, things], newest first, `NOTHING` where nothing is."""
        table = self.cells.flatten(0, 1)
        number = memory + torch.arange(VIEWS).unsqueeze(-1) * CODES
        seen = memory != NOTHING
        rows = F.embedding_bag(
            torch.where(seen, number, 0).flatten(1), table, mode="sum", per_sample_weights=seen.flatten(1).to(table)
        )
        return cast(Tensor, self.output(F.relu(self.hidden(F.relu(rows + self.cell_bias)))))

    def weights(self) -> tuple[NDArray[np.float32], ...]:
        """What `prey_sight.decide` needs; further training changes some of these arrays and not others."""
        arrays = (
            self.cells,
            self.cell_bias,
            self.hidden.weight.T,
            self.hidden.bias,
            self.output.weight.T,
            self.output.bias,
        )
        return tuple(np.ascontiguousarray(tensor.detach().numpy()) for tensor in arrays)


class LearnedPrey:
    """Prey of B copies that take the action their network values most (protocol `PreyPolicy`).

    `team_size` is the greatest number of predators in the world. The network is read once: after further training call
    `refresh`.
    """

    def __init__(self, network: PreyNetwork, num_copies: int, num_prey: int, team_size: int) -> None:
        self.network = network
        self.memory = np.full((num_copies, num_prey, VIEWS, BORDERS + team_size + num_prey), NOTHING, dtype=np.int16)
        """What each prey saw last, newest first; see `prey_sight.see`."""
        self.refresh()

    def refresh(self) -> None:
        """Take over the network's present weights."""
        self._weights = self.network.weights()

    def act(self, view: PreyView, keys: Keys) -> Ints:
        """See `PreyPolicy.act`. `keys` are not used."""
        actions = np.empty(self.memory.shape[:2], dtype=np.int64)
        see(view, self.memory)
        decide(self.memory, *self._weights, actions)
        return actions

    def get_state(self) -> dict[str, NDArray[Any]]:
        """A copy of the last views."""
        return {"memory": self.memory.copy()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        restore({"memory": self.memory}, state, {"memory": (NOTHING, CODES - 1)})


def make_network(spec: EnvSpec, settings: Mapping[str, Any]) -> PreyNetwork:
    """An untrained network of the given settings. Raises ValueError for a width that is none."""
    hidden = settings.get("hidden", HIDDEN)
    if not isinstance(hidden, int) or not 1 <= hidden <= 4096:
        raise ValueError(f"hidden must be a whole number from 1 to 4096, not {hidden!r}")
    return PreyNetwork(hidden)


def load_prey(folder: Path, num_copies: int, num_prey: int, team_size: int) -> LearnedPrey:
    """The prey saved in a folder, of method `prey`. Raises UserError if it is damaged."""
    network = cast(PreyNetwork, load_network(folder, make_network))
    return LearnedPrey(network, num_copies, num_prey, team_size)
