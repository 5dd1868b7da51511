"""Which files are meant: paths as given, folders as the traces in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from profiler_kit.errors import UsageError

SUFFIXES: Final = (".json", ".json.gz")
# What torch.profiler.tensorboard_trace_handler writes, into the log folder or a folder per run below it.
HANDLER_SUFFIXES: Final = (".pt.trace.json", ".pt.trace.json.gz")
# What this tool writes beside traces, and is none.
NO_TRACES: Final = frozenset({"report.json"})
NAMED: Final = 3  # files that a note names


class TraceFiles(NamedTuple):
    """Files that are meant, and `notes` on what folders hold besides."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def trace_files(given: Iterable[str | Path]) -> TraceFiles:
    """The trace files that `given` means, in that order, each once.

    A file is taken as it is, whatever its name and contents. A folder stands for what `folder_files` finds in it.

    Raises UsageError where one is not there, or a folder holds no trace.
    """
    found: dict[Path, Path] = {}  # by where it really is: two names of one file are one trace
    notes: list[str] = []
    for one in given:
        path = Path(one)
        if not path.exists():
            raise UsageError(
                "no such file", where=str(path), hint="give a trace that torch.profiler wrote, or its folder"
            )
        inside = folder_files(path) if path.is_dir() else TraceFiles((path,))
        notes += inside.notes
        for file in inside.files:
            found.setdefault(file.resolve(), file)
    if not found:
        raise UsageError("no trace given", hint="give a trace that torch.profiler wrote, or a folder of traces")
    return TraceFiles(tuple(found.values()), tuple(dict.fromkeys(notes)))


def folder_files(folder: Path) -> TraceFiles:
    """The traces of a folder, by name: ``*.json`` and ``*.json.gz`` in it, else in its ``traces/``, else the handler's below it.

    Where the folder has files that the profiler's TensorBoard handler wrote, those are its traces. Of other files only those are
    that begin like one.

    Raises UsageError where there is none, or the folder can't be read.
    """
    others: list[Path] = []
    from profiler_kit.traces.recognition import seems_trace

    try:
        for place in (folder, folder / "traces"):
            here = [file for file in sorted(place.glob("*.json*"), key=_by_number) if _may_be_trace(file)]
            handlers = [file for file in here if file.name.endswith(HANDLER_SUFFIXES)]
            traces = [file for file in handlers or here if seems_trace(file)]
            others += [file for file in handlers or here if file not in set(traces)]
            if traces:
                return TraceFiles(tuple(traces), _left_out(folder, others))
        below = [file for file in folder.rglob("*.pt.trace.json*") if file.name.endswith(HANDLER_SUFFIXES)]
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(folder)) from error
    if not below:
        raise UsageError(
            f"holds no trace{f' ({_files(others)} there, none of which is one)' if others else ''}",
            where=str(folder),
            hint="traces are files called *.json or *.json.gz; name others one by one",
        )
    return TraceFiles(tuple(sorted(below, key=_by_number)), _left_out(folder, others))


def _may_be_trace(file: Path) -> bool:
    return (
        file.is_file() and file.name.endswith(SUFFIXES) and not file.name.startswith(".") and file.name not in NO_TRACES
    )


def _left_out(folder: Path, others: Sequence[Path]) -> tuple[str, ...]:
    if not others:
        return ()
    names = ", ".join(file.name for file in others[:NAMED])
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    are = "is no trace and is" if len(others) == 1 else "are no traces and are"
    return (f"{_files(others)} in {folder} {are} left out: {names}{more}.",)


def _files(files: Sequence[Path]) -> str:
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}"


def _by_number(file: Path) -> list[tuple[int, str]]:
    """A key that puts rank 9 before rank 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", str(file))]
