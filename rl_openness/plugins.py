"""Code of users by name: `module:attribute`, found among installed modules and in the present folder."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import Any

from rl_openness.errors import UserError, nearest

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def is_plugin(name: str) -> bool:
    """Whether a name has the form `module:attribute` (or `package.module:attribute`)."""
    return _NAME.fullmatch(name) is not None


def find_plugin(name: str) -> Any:
    """The attribute that `module:attribute` names.

    Raises UserError, in one line, if there is no such module or attribute, or if importing the module fails.
    """
    if not is_plugin(name):
        raise UserError(f"{name!r} must have the form module:attribute")
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:  # last, so that no file of the folder stands in for an installed module
        sys.path.append(here)
    try:
        module = import_module(module_name)
    except Exception as error:
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise UserError(f"{name}: module {module_name!r} cannot be imported: {' '.join(reason.split())}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        known = [each for each in vars(module) if not each.startswith("_")]
        raise UserError(
            f"{name}: module {module_name!r} has no attribute {attribute!r}{nearest(attribute, known)}"
        ) from None
