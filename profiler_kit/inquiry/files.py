"""Which files are meant: paths as given, folders as the traces in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from profiler_kit.errors import UsageError

SUFFIXES: Final = (".json", ".json.gz")
# What torch.profiler.tensorboard_trace_handler writes, into the log folder or a folder per run below it.
HANDLER_SUFFIXES: Final = (".pt.trace.json", ".pt.trace.json.gz")
# What this tool writes beside traces, and is none.
NO_TRACES: Final = frozenset({"report.json"})


def trace_files(given: Iterable[str | Path]) -> tuple[Path, ...]:
    """The trace files that `given` means, in that order, each once.

    A file is taken as it is, whatever its name. A folder stands for what `folder_files` finds in it.

    Raises UsageError where one is not there, or a folder holds no trace.
    """
    found: dict[Path, Path] = {}  # by where it really is: two names of one file are one trace
    for one in given:
        path = Path(one)
        if not path.exists():
            raise UsageError(
                "no such file", where=str(path), hint="give a trace that torch.profiler wrote, or its folder"
            )
        for file in folder_files(path) if path.is_dir() else (path,):
            found.setdefault(file.resolve(), file)
    if not found:
        raise UsageError("no trace given", hint="give a trace that torch.profiler wrote, or a folder of traces")
    return tuple(found.values())


def folder_files(folder: Path) -> tuple[Path, ...]:
    """The traces of a folder, by name: ``*.json`` and ``*.json.gz`` in it, else in its ``traces/``, else the handler's below it.

    Where the folder has files that the profiler's TensorBoard handler wrote, those are its traces and other JSON is not.

    Raises UsageError where there is none, or the folder can't be read.
    """
    try:
        for place in (folder, folder / "traces"):
            here = [
                file
                for file in sorted(place.glob("*.json*"), key=_by_number)
                if file.is_file() and file.name not in NO_TRACES
            ]
            here = [file for file in here if file.name.endswith(SUFFIXES) and not file.name.startswith(".")]
            if here:
                return tuple([file for file in here if file.name.endswith(HANDLER_SUFFIXES)] or here)
        below = [file for file in folder.rglob("*.pt.trace.json*") if file.name.endswith(HANDLER_SUFFIXES)]
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(folder)) from error
    if not below:
        raise UsageError(
            "holds no trace",
            where=str(folder),
            hint="traces are files called *.json or *.json.gz; name others one by one",
        )
    return tuple(sorted(below, key=_by_number))


def _by_number(file: Path) -> list[tuple[int, str]]:
    """A key that puts rank 9 before rank 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", str(file))]
