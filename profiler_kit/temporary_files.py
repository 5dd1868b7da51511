"""Temporary folders and partial files. A later process removes those of a killed one.

A process locks each folder and file that it creates (flock). The system releases the locks when the process ends for any
reason, so whatever can be locked has no owner. Another process's files in use are never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "profiler_kit_"
RANDOM: Final = "[a-z0-9_]{8}"  # by which `tempfile` makes names unique
FOLDER_NAME: Final = re.compile(f"{PREFIX}[a-z]+_[0-9]+_{RANDOM}")
PARTIAL: Final = ".partial"


def folder_problem(folder: Path) -> str:
    """Why files cannot be written into `folder`, which may not exist yet; empty if they can."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        return "not a folder" if existing == folder else f"cannot create this folder: {existing} is a file"
    try:  # access rights do not tell of read-only and of virtual file systems
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        return f"cannot write into this folder: {error.strerror}"
    return ""


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder that is removed when the block is left. Its name contains `purpose`, in small letters, and the process id.

    Errors on removal are ignored, because a process that the model started may still write there.
    """
    remove_ownerless_folders(tempfile.gettempdir())
    while True:
        with tempfile.TemporaryDirectory(
            prefix=f"{PREFIX}{purpose}_{os.getpid()}_", ignore_cleanup_errors=True
        ) as folder:
            lock = _lock_new(folder)
            if lock is None:  # another process has taken the new folder for an ownerless one
                continue
            try:
                yield Path(folder)
            finally:
                os.close(lock)
            return


@functools.cache
def remove_ownerless_folders(root: str) -> None:
    """Remove the temporary folders in `root` whose process is gone; once per process."""
    with contextlib.suppress(OSError):  # not readable: there is nothing to remove
        for name in os.listdir(root):  # noqa: PTH208 a folder for temporary files may have many, and names suffice
            if FOLDER_NAME.fullmatch(name):
                _remove_ownerless(os.path.join(root, name))  # noqa: PTH118


@contextlib.contextmanager
def replacement(file: Path) -> Iterator[Path]:
    """A partial file next to `file` that replaces it at the end of the block, and is deleted if the block fails.

    The new file has the permissions of the old one. Raises OSError.
    """
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o666 & ~_umask()
    partial_name = re.compile(rf"\.{re.escape(file.name)}\.{RANDOM}{re.escape(PARTIAL)}")
    for name in os.listdir(file.parent):  # noqa: PTH208
        if partial_name.fullmatch(name):
            _remove_ownerless(str(file.with_name(name)))
    lock, partial = None, ""
    try:
        while lock is None:
            descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=PARTIAL)
            os.close(descriptor)
            lock = _lock_new(partial)
        yield Path(partial)
        Path(partial).chmod(mode)
        Path(partial).replace(file)
        partial = ""
    finally:  # also after Ctrl-C
        if partial:
            Path(partial).unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def _lock_new(path: str) -> int | None:
    """The descriptor that locks the new file or folder `path`; None if another process removes it as ownerless."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # a file system without locks, where nobody can remove it either
        return descriptor
    if os.path.lexists(path):
        return descriptor
    os.close(descriptor)
    return None


def _remove_ownerless(path: str) -> None:
    """Remove this user's file or folder `path` unless a process has locked it."""
    with contextlib.suppress(OSError):  # locked, already removed, or not ours to remove
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.getuid():
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(path, ignore_errors=True)
            else:
                Path(path).unlink()
        finally:
            os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
