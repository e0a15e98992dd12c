"""What somebody else's environment may do beyond its answers: crash, hang, draw from generators that all share."""

from __future__ import annotations

import faulthandler
import os
import random
import select
import signal
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rl_openness.envs.conformance.values import same

PATIENCE = 10.0
"""Seconds that a step may take."""


def whom_it_answers(step: Callable[[], Any]) -> tuple[str | None, str | None]:
    """Calls `step` in a forked copy of this process: (first agent that its answer observes, how it crashed or hung).

    An exception is a proper answer: (None, None).
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(step, writing)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], PATIENCE)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        name = pipe.read().decode() or None
    _, status = os.waitpid(child, 0)
    if not ready:
        return None, f"takes longer than {PATIENCE:g} seconds"
    if os.WIFSIGNALED(status):
        return None, f"crashes the process ({signal.Signals(os.WTERMSIG(status)).name})"
    return name, None


def _answer(step: Callable[[], Any], writing: int) -> None:
    """The child's part; never returns."""
    try:
        faulthandler.disable()  # what a crash prints is nobody's
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        answer = step()
        if isinstance(answer, tuple) and answer and isinstance(answer[0], Mapping) and answer[0]:
            os.write(writing, str(next(iter(answer[0]))).encode())
    finally:
        os._exit(0)


def watched(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What `call` gives, and the global generators that it has drawn from or seeded; they are put back."""
    # The global generators are what is looked for. They get states of their own first: the episode that is played
    # again may have left them just as playing it again does.
    numpy_before, python_before = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(271_828)  # noqa: NPY002
    random.seed(271_828)
    now = _global_states()
    try:
        result = call()
        return result, [name for name, state in _global_states().items() if not same(state, now[name])]
    finally:
        np.random.set_state(numpy_before)  # noqa: NPY002
        random.setstate(python_before)


def _global_states() -> dict[str, Any]:
    _, keys, place, *_ = np.random.get_state()  # noqa: NPY002
    return {"numpy.random": (keys, place), "random": random.getstate()[1]}
