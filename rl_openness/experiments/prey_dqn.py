"""Double DQN for Wolfpack's prey (van Hasselt, Guez and Silver 2016): exploration, replay, updates; plain torch.

All prey of all copies share one network and learn from each other's transitions. A life is an episode: its last step
pays -1 (caught), all others 0, so a value is minus the discounted chance to be caught.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from rl_openness.envs.draws import Keys
from rl_openness.envs.wolfpack.prey import VIEWS, PreyView
from rl_openness.envs.wolfpack.rules import NUM_PREY_ACTIONS, Ints
from rl_openness.errors import RunFailedError
from rl_openness.policies.prey_network import LearnedPrey, PreyNetwork
from rl_openness.policies.prey_sight import NOTHING


class Batch(NamedTuple):
    """Transitions, one per row."""

    before: Tensor
    """int64 [n, VIEWS, things]"""
    action: Tensor
    """int64 [n]"""
    caught: Tensor
    """float32 [n] 1 = the life ended"""
    after: Tensor
    counts: Tensor
    """float32 [n] 0 = no transition: the prey was dead, or the step was the last of its episode"""


class Replay:
    """The last `length` steps of B copies with K prey; of every step the newest view only, older ones lie before it."""

    def __init__(self, length: int, memory_shape: tuple[int, ...]) -> None:
        copies, prey, _, things = memory_shape
        self._seen = np.empty((length, copies, prey, things), dtype=np.int16)
        self._step = np.empty((length, copies), dtype=np.int64)
        self._alive = np.empty((length, copies, prey), dtype=np.bool_)
        self._action = np.empty((length, copies, prey), dtype=np.int8)
        self.steps = 0
        """That were ever added."""

    def add(self, seen: NDArray[np.int16], view: PreyView, actions: Ints) -> None:
        """Of one step: the newest views [B, K, things], the world, and what the prey do [B, K]."""
        here = self.steps % len(self._step)
        self._seen[here], self._step[here] = seen, view.step
        self._alive[here], self._action[here] = view.alive, actions
        self.steps += 1

    def sample(self, size: int, generator: np.random.Generator) -> Batch:
        """`size` uniform draws; at least two steps must have been added."""
        length, copies, prey = self._alive.shape
        oldest = max(0, self.steps - length + VIEWS - 1) if self.steps > length else 0
        t = generator.integers(oldest, self.steps - 1, size=size)
        b, k = generator.integers(copies, size=size), generator.integers(prey, size=size)
        now, then = t % length, (t + 1) % length
        counts = self._alive[now, b, k] & (self._step[then, b] > 0)
        return Batch(
            before=self._views(t, b, k),
            action=torch.from_numpy(self._action[now, b, k].astype(np.int64)),
            caught=torch.from_numpy((~self._alive[then, b, k]).astype(np.float32)),
            after=self._views(t + 1, b, k),
            counts=torch.from_numpy(counts.astype(np.float32)),
        )

    def _views(self, t: Ints, b: Ints, k: Ints) -> Tensor:
        age = np.arange(VIEWS)
        rows = (t[:, None] - age) % len(self._step)
        seen = self._seen[rows, b[:, None], k[:, None]].astype(np.int64)
        of_episode = age <= self._step[t % len(self._step), b][:, None]
        return torch.from_numpy(np.where(of_episode[..., None], seen, NOTHING))


class ExploringPrey(LearnedPrey):
    """Learned prey that now and then draw an action, and remember every step in a `Replay`."""

    epsilon = 1.0

    def __init__(
        self, network: PreyNetwork, num_copies: int, num_prey: int, team_size: int, generator: np.random.Generator
    ) -> None:
        super().__init__(network, num_copies, num_prey, team_size)
        self._generator = generator
        self.replay: Replay | None = None

    def act(self, view: PreyView, keys: Keys) -> Ints:
        """See `PreyPolicy.act`."""
        best = super().act(view, keys)
        drawn = self._generator.integers(NUM_PREY_ACTIONS, size=best.shape)
        actions = np.where(self._generator.random(best.shape) < self.epsilon, drawn, best)
        if self.replay is not None:
            self.replay.add(self.memory[:, :, 0], view, actions)
        return actions


class DoubleDQN:
    """Learns a network's values from batches; its target follows slowly."""

    def __init__(self, network: PreyNetwork, *, lr: float, gamma: float, tau: float, max_grad_norm: float) -> None:
        self.network, self.gamma, self.tau, self.max_grad_norm = network, gamma, tau, max_grad_norm
        self.target = PreyNetwork(len(network.cell_bias))
        self.target.load_state_dict(network.state_dict())
        self._optimiser = torch.optim.Adam(network.parameters(), lr=lr)

    def set_lr(self, lr: float) -> None:
        """Of all further updates."""
        for group in self._optimiser.param_groups:
            group["lr"] = lr

    def update(self, batch: Batch) -> float:
        """One step of Adam on the Huber loss, which is returned. Raises RunFailedError if it is not finite."""
        with torch.no_grad():
            best = self.network(batch.after).argmax(dim=1, keepdim=True)
            later = self.target(batch.after).gather(1, best).squeeze(1)
            wanted = -batch.caught + (1 - batch.caught) * self.gamma * later
        value = self.network(batch.before).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        loss = (F.smooth_l1_loss(value, wanted, reduction="none") * batch.counts).sum() / batch.counts.sum().clamp(1)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
        if not (loss.isfinite() and norm.isfinite()):
            raise RunFailedError("the prey's loss is not finite, so nothing is learnt; nothing was kept")
        self._optimiser.step()
        with torch.no_grad():
            for mine, theirs in zip(self.target.parameters(), self.network.parameters(), strict=True):
                mine.lerp_(theirs, self.tau)
        return float(loss.detach())
