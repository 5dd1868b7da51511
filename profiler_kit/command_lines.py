"""Command lines for messages. Every command in a message is built here, and can be pasted into a shell.

The tests run these commands: `tests/hint_replay.py` records each call, and the suite fails for one that no test has replayed.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

PROGRAM: Final = "profiler-kit"


def kit_command(*words: str) -> str:
    """The command line ``profiler-kit WORDS``. Where that script is not on PATH: ``PYTHON -m profiler_kit WORDS``."""
    program = (PROGRAM,) if shutil.which(PROGRAM) is not None else (sys.executable, "-m", "profiler_kit")
    return shlex.join([*program, *words])


def file_command(file: Path) -> str:
    """The command line that runs a Python `file`."""
    return shlex.join([sys.executable, str(file)])


def import_command(module: str) -> str:
    """The command line that imports a module.

    Raises ValueError for any text except the dotted name of one, such as the path of a file.
    """
    if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module!r} is not the name of a module")
    return shlex.join([sys.executable, "-c", f"import {module}"])


def git_command(*words: str) -> str:
    """The command line ``git WORDS``."""
    return shlex.join(["git", *words])


def install_command(*words: str) -> str:
    """The command line that installs packages into this environment: ``PYTHON -m pip install WORDS``."""
    return shlex.join([sys.executable, "-m", "pip", "install", *words])
