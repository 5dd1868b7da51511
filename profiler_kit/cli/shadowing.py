"""A file in the working directory that a library imported in place of the module it wanted: ``random.py``, ``cuda.py``."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

_OURS = Path(__file__).resolve().parent.parent


def hiding_file(error: BaseException) -> Path | None:
    """The file here whose name hides a module that Python or a library imports, where that is behind `error`; else None."""
    here = Path.cwd()
    for name in sys.stdlib_module_names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).resolve().parent == here:
            return Path(file)
    importer = _OURS
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith("<"):
            continue
        file = Path(frame.f_code.co_filename).resolve()
        wanted_by_library = importer != _OURS and not importer.is_relative_to(_OURS) and importer.parent != here
        if file.parent == here and frame.f_code.co_name == "<module>" and wanted_by_library:
            return file
        importer = file
    return None
