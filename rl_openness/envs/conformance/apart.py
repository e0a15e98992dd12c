"""A step of somebody else's environment in a process of its own, for where it may crash or hang."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
from collections.abc import Callable, Mapping
from typing import Any

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
