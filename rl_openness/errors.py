"""Mistakes of a user, told in one line: what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can mend; the command line prints it without a traceback and exits with code 2."""


class RunFailedError(RuntimeError):
    """A run cannot go on; the command line prints it without a traceback and exits with code 1."""


class StoppedError(RunFailedError):
    """A user's signal stopped something that leaves nothing behind; the command line exits with code 130."""


class PartlyStoppedError(StoppedError):
    """A user's signal stopped something of which a part is kept; its text says which, as a sentence."""


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean 'x'?' for the closest known name, else the known names, ready to append to a message."""
    options = sorted(known)
    moved = [option for option in options if option.rpartition(".")[2] == name]  # the right name in another group
    close = moved[:1] or difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(options)}" if options else ""
