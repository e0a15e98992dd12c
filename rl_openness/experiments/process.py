"""What a training process needs around it: one thread, a quiet local Ray, and a way to stop after an iteration."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rl_openness.errors import UserError


def use_one_thread() -> None:
    """One thread for torch: the networks are small, and results do not depend on the number of cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported
    import torch

    torch.set_num_threads(1)


@contextmanager
def local_ray(num_actors: int) -> Iterator[None]:
    """Ray with room for `num_actors` processes, shut down afterwards; a Ray that is running already is used as it is.

    RLlib needs Ray even where it starts no process. With RAY_ADDRESS set, that cluster is used.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends nothing anywhere
    import ray

    if ray.is_initialized():
        yield
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    own = {"num_cpus": max(os.cpu_count() or 1, num_actors + 1), "include_dashboard": False}
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(**({} if address else own), log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise UserError(f"RAY_ADDRESS={address}: no Ray to connect to; unset it to train without a cluster") from None
    try:
        yield
    finally:
        ray.shutdown()


class Stop:
    """Whether the user asked to stop."""

    requested = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM or a closed terminal sets `requested` instead of interrupting; the second interrupts as usual.

    Outside the main thread, where Python knows no signals, nothing is caught.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    if before[signal.SIGHUP] == signal.SIG_IGN:  # under nohup a closed terminal means nothing
        del before[signal.SIGHUP]

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        restore()

    for number in before:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
