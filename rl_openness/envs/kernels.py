"""How all kernels of environments, and those that read their observations, are compiled."""

from __future__ import annotations

from typing import Any

FLAGS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
"""Keyword arguments of `numba.njit`: kept on disk, other threads may run, a division by zero gives infinity."""
