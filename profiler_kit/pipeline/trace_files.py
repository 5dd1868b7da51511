"""Finding trace files: paths are taken as they are, folders are searched."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from profiler_kit.errors import UsageError

SUFFIXES: Final = (".json", ".json.gz")
# Written by torch.profiler.tensorboard_trace_handler, into the log folder or into one subfolder per run.
HANDLER_SUFFIXES: Final = (".pt.trace.json", ".pt.trace.json.gz")
# Other JSON files that profiler_kit writes next to traces.
REPORT_FILES: Final = frozenset({"report.json"})
HINT_GIVE_FILES: Final = "give a trace file of torch.profiler, or a folder of traces"
MAX_PATH_CHARS: Final = 200  # of a path in an error
LISTED_FILES: Final = 3  # in a note


class TraceFiles(NamedTuple):
    """Trace files, and `notes` about skipped files."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def trace_files(paths: Iterable[str | Path]) -> TraceFiles:
    """The trace files in `paths`, in their order and without duplicates.

    A file is taken regardless of its name and contents. A folder contributes the files that `folder_files` returns.

    Raises:
        UsageError: a path does not exist, or a folder contains no trace.
    """
    files: dict[Path, Path] = {}  # by resolved path: two names of one file are one trace
    notes: list[str] = []
    for path in map(Path, paths):
        _check_path(path)
        inside = folder_files(path) if path.is_dir() else TraceFiles((path,))
        notes += inside.notes
        for file in inside.files:
            files.setdefault(file.resolve(), file)
    if not files:
        raise UsageError("no trace given", hint=HINT_GIVE_FILES)
    return TraceFiles(tuple(files.values()), tuple(dict.fromkeys(notes)))


def _check_path(path: Path) -> None:
    """Raise UsageError for a path that is neither a file nor a folder."""
    place = str(path) if len(str(path)) <= MAX_PATH_CHARS else f"{str(path)[:MAX_PATH_CHARS]}..."
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UsageError("no such file", where=place, hint=HINT_GIVE_FILES) from None
    except (OSError, ValueError) as error:  # too long, not readable, with a null character
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"not a path of a file: {reason}", where=place, hint=HINT_GIVE_FILES) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(
            "neither a file nor a folder: a pipe or a device can be read only once",
            where=place,
            hint="write the trace to a file, or read it from standard input with - as the trace",
        )


def folder_files(folder: Path) -> TraceFiles:
    """The traces of a folder, sorted by name.

    Searches ``*.json`` and ``*.json.gz`` in the folder, then in its ``traces/``, then all subfolders for files of the
    TensorBoard trace handler. If a folder contains files of that handler, only those count. Other files must start like a
    trace.

    Raises:
        UsageError: the folder contains no trace or cannot be read.
    """
    other_files: list[Path] = []
    from profiler_kit.traces.recognition import looks_like_trace

    try:
        for subfolder in (folder, folder / "traces"):
            candidates = [file for file in sorted(subfolder.glob("*.json*"), key=_by_number) if _may_be_trace(file)]
            handler_files = [file for file in candidates if file.name.endswith(HANDLER_SUFFIXES)]
            traces = [file for file in handler_files or candidates if looks_like_trace(file)]
            other_files += [file for file in handler_files or candidates if file not in set(traces)]
            if traces:
                return TraceFiles(tuple(traces), _skipped_note(folder, other_files))
        below = [file for file in folder.rglob("*.pt.trace.json*") if file.name.endswith(HANDLER_SUFFIXES)]
    except OSError as error:
        raise UsageError(
            f"cannot read this folder: {error.strerror}", where=str(folder), hint="check its permissions"
        ) from error
    if not below:
        raise UsageError(
            "no trace in this folder" + (f" ({_files(other_files)} with other contents)" if other_files else ""),
            where=str(folder),
            hint="traces in a folder must be named *.json or *.json.gz; give other files by path",
        )
    return TraceFiles(tuple(sorted(below, key=_by_number)), _skipped_note(folder, other_files))


def _may_be_trace(file: Path) -> bool:
    return (
        file.is_file()
        and file.name.endswith(SUFFIXES)
        and not file.name.startswith(".")
        and file.name not in REPORT_FILES
    )


def _skipped_note(folder: Path, other_files: Sequence[Path]) -> tuple[str, ...]:
    if not other_files:
        return ()
    names = ", ".join(file.name for file in other_files[:LISTED_FILES])
    more = f" and {len(other_files) - LISTED_FILES} more" if len(other_files) > LISTED_FILES else ""
    return (f"Skipped {_files(other_files)} in {folder} without a trace: {names}{more}.",)


def _files(files: Sequence[Path]) -> str:
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}"


def _by_number(file: Path) -> list[tuple[int, str]]:
    """Sort key that places rank 9 before rank 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", str(file))]
