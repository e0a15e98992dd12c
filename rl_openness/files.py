"""Writing files so that a reader, or a process killed half-way, never sees half of one."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` (replacing an older one) when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tag = uuid.uuid4().hex[:8]
    work, old = path.with_name(f".{path.name}.{tag}.new"), path.with_name(f".{path.name}.{tag}.old")
    work.mkdir()
    try:
        yield work
        if path.exists():
            path.rename(old)
        work.rename(path)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file's text at once."""
    work = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.new")
    work.write_text(text)
    os.replace(work, path)
