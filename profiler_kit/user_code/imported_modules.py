"""The modules of user code that earlier loads imported, so that a later load imports edited files again."""

from __future__ import annotations

import sys
from pathlib import Path

from profiler_kit.foreign import module_places
from profiler_kit.user_code.locations import is_user_code

# A load from a folder with files of the same names removes them first, so that two folders may both contain a `layers.py`.
_imported_modules: set[str] = set()


def drop_earlier_imports(folders: tuple[Path, ...], keep: frozenset[str]) -> None:
    """Remove the modules of earlier loads that `folders` contain from ``sys.modules``, except those in `keep`."""
    for name in sorted(_imported_modules - keep):
        top = name.split(".")[0]
        if any((folder / f"{top}.py").exists() or (folder / top).is_dir() for folder in folders):
            sys.modules.pop(name, None)
            _imported_modules.discard(name)


def record_imports(before: set[str], folders: tuple[Path, ...]) -> frozenset[str]:
    """Names of the modules in `folders` that were imported since `before`. A later load may remove them."""
    names = set()
    for name, module in list(sys.modules.items()):
        places = () if name in before else filter(is_user_code, module_places(module))
        if any(Path(place).resolve().is_relative_to(folder) for place in places for folder in folders):
            names.add(name)
    _imported_modules.update(names)
    return frozenset(names)


def remember_imports(names: set[str]) -> None:
    """Let a later load remove the modules `names`."""
    _imported_modules.update(names)
