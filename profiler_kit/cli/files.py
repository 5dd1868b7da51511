"""Output files: never an input, and written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from profiler_kit.cli import streams
from profiler_kit.errors import UsageError

STDIN = "-"  # as an input
ANOTHER_PATH = "use another path"


def check_outputs(outputs: Iterable[Path], inputs: Iterable[str | Path], *, hint: str = ANOTHER_PATH) -> None:
    """Raise UsageError for an output that cannot be written, is an input, is stdout's file, or occurs twice.

    Files are compared by identity, so that a link to an input counts as that input. `inputs` may also be texts that name no
    file; of a text such as ``net.py:Net`` the part before the colon counts.
    """
    from profiler_kit.temporary_files import folder_problem

    input_identities = _identities(inputs)
    stdout = _stdout_identity()
    written: dict[tuple[int, int] | Path, Path] = {}
    for file in outputs:
        try:
            status = file.stat()
        except OSError:
            status = None
        if status is not None and not stat.S_ISREG(status.st_mode):
            _check_special(file, status.st_mode, hint)
            continue
        folder = file.resolve().parent
        if not folder.exists():
            raise UsageError("no such folder", where=str(folder), hint=f"create the folder, or {hint}")
        if problem := folder_problem(folder):
            raise UsageError(problem, where=str(folder), hint=hint)
        if status is not None and not os.access(file, os.W_OK):
            raise UsageError("cannot write this file: permission denied", where=str(file), hint=hint)
        identity = (status.st_dev, status.st_ino) if status is not None else file.resolve()
        if identity in input_identities:
            raise UsageError("this file is an input, and the output would replace it", where=str(file), hint=hint)
        if identity == stdout:
            raise UsageError("stdout already goes to this file", where=str(file), hint=hint)
        if identity in written:
            raise UsageError(f"the same file as {written[identity]}", where=str(file), hint=hint)
        written[identity] = file


def _check_special(file: Path, mode: int, hint: str) -> None:
    """Raise UsageError for a path that is neither a file nor something to write into: a terminal, a pipe, /dev/null."""
    if stat.S_ISDIR(mode):
        raise UsageError("cannot write this file: it is a folder", where=str(file), hint=hint)
    if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise UsageError("cannot write this file: it is a disk or a socket", where=str(file), hint=hint)
    if not os.access(file, os.W_OK):
        raise UsageError("cannot write this file: permission denied", where=str(file), hint=hint)


def _identities(inputs: Iterable[str | Path]) -> set[tuple[int, int] | Path]:
    identities: set[tuple[int, int] | Path] = set()
    for text in map(str, inputs):
        for path in (Path(text), Path(text) / "report.json", Path(text.partition(":")[0])):
            with contextlib.suppress(OSError, ValueError):  # not a path, or no such file: the reader reports it
                status = os.fstat(0) if text == STDIN else path.stat()
                if stat.S_ISREG(status.st_mode):
                    identities.add((status.st_dev, status.st_ino))
    return identities


def _stdout_identity() -> tuple[int, int] | None:
    try:
        status = os.fstat(1 if streams.held_output is None else streams.held_output.fileno())
    except (OSError, ValueError):  # closed
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def write_file(file: Path, content: str | bytes) -> None:
    """Write `file` completely, or leave it unchanged. Raises UsageError if it cannot be written."""
    with replaced_file(file) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replaced_file(file: Path) -> Iterator[Path]:
    """A temporary file that replaces `file` on success and is deleted on failure. Raises UsageError if it cannot be written.

    A link is followed. A pipe or a device is not replaced; the content is written into it.
    """
    from profiler_kit.temporary_files import replacement, temporary_folder

    try:
        if file.exists() and not file.is_file():
            with temporary_folder("output") as folder:
                content = folder / "content"
                content.touch()
                yield content
                with content.open("rb") as source, file.open("wb") as special:
                    shutil.copyfileobj(source, special)
            return
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacement(target) as partial:
            yield partial
    except OSError as error:
        raise UsageError(f"cannot write this file: {error.strerror}", where=str(file), hint=ANOTHER_PATH) from error
