"""Imports all files of a drop-in folder, in name order.

A drop-in family (op formulas, rules, renderers) is a package whose members are found by being there: a newcomer
adds one file and edits none.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from types import ModuleType


def members(package: ModuleType) -> list[ModuleType]:
    """The modules of `package`, imported, in name order; names that begin with ``_`` are not members."""
    return list(_members(package.__name__, tuple(package.__path__)))


@functools.cache
def _members(package: str, folders: tuple[str, ...]) -> tuple[ModuleType, ...]:
    for folder in folders:
        os.scandir(folder).close()  # raises OSError for a folder that `pkgutil` would take for an empty one
    names = sorted(info.name for info in pkgutil.iter_modules(folders))
    return tuple(importlib.import_module(f"{package}.{name}") for name in names if not name.startswith("_"))
