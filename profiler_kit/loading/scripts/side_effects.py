"""Stops side effects of user code: written files, network access, processes, reads of stdin. Weights are not downloaded:
the model keeps its random weights.

An audit hook sees every such act of the interpreter. Hooks cannot be removed, so this one has a switch.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from profiler_kit.user_code.locations import display_path, is_installed_package, is_user_code

# Their code is replaced, and not the functions: any module may hold one, under any name, and a search takes long.
_DOWNLOADS: Final = (torch.hub.load_state_dict_from_url, torch.hub.download_url_to_file)


class SkippedWeights(OrderedDict[str, Any]):
    """The state dict of a download that did not happen. Every key leads to another one, as in ``checkpoint["model"]``."""

    def __missing__(self, key: str) -> SkippedWeights:
        return SkippedWeights()


@contextlib.contextmanager
def skipped_downloads(note: Callable[[str], None]) -> Iterator[None]:
    """Replace what torch's functions that download weights do inside the block, for all code that has imported them."""
    skipped: list[str] = []

    def load(url: str) -> SkippedWeights:
        skipped.append(url)
        note(f"weights: {url.rpartition('/')[2]} not downloaded, random weights instead")
        return SkippedWeights()

    load_state_dict = nn.Module.load_state_dict

    def load_or_keep(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, SkippedWeights) or (skipped and not state_dict):
            return _IncompatibleKeys([], [])
        return load_state_dict(self, state_dict, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_patched(nn.Module, "load_state_dict", load_or_keep))
        for download in _DOWNLOADS:
            stack.enter_context(_patched(download, "__code__", _skip.__code__))
            stack.enter_context(_patched(download, "__defaults__", None))
            stack.enter_context(_patched(download, "__kwdefaults__", {"_load": load}))
        yield


def _skip(url: str, *args: object, _load: Callable[[str], SkippedWeights], **kwargs: object) -> SkippedWeights:
    """The code of both functions while downloads are skipped. Only the first one's result is read."""
    return _load(url)


_NETWORK: Final = {
    "socket.connect": "network access",
    "socket.getaddrinfo": "network access",
    "socket.gethostbyname": "network access",
    "socket.gethostbyaddr": "network access",
    "socket.sendto": "network access",
    "socket.bind": "a server",
    "urllib.Request": "network access",
    "ftplib.connect": "network access",
    "smtplib.connect": "network access",
}
_PROCESSES: Final = (
    "subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn",
    "os.startfile", "os.kill", "os.killpg",
)  # fmt: skip
_FILES: Final = (
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.utime",
    "os.setxattr", "shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.move", "shutil.rmtree",
    "shutil.make_archive", "shutil.unpack_archive", "tempfile.mkstemp", "tempfile.mkdtemp",
)  # fmt: skip
_ACTS: Final = {
    **_NETWORK,
    **dict.fromkeys(_PROCESSES, "a new process"),
    **dict.fromkeys(_FILES, "a change of files"),
    "open": "a written file",
}
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES: Final = re.compile(r"/dev/(null|zero|nvidia\S*|shm/\S*)$|/proc/self/\S+$")


class SideEffectError(PermissionError):
    """User code tried something that loading a model does not allow. A PermissionError, which libraries can handle."""


@dataclass(slots=True, eq=False)
class Guard:
    """An active guard. `exempt` are threads that ran before it and belong to the tool."""

    exempt: frozenset[int]


_guards: list[Guard] = []
_is_installed = False


def is_guarded() -> bool:
    """Whether a guard is active."""
    return bool(_guards)


@contextlib.contextmanager
def no_side_effects(note: Callable[[str], None]) -> Iterator[None]:
    """Stop side effects of the code inside the block, its new threads included. Each attempt raises SideEffectError.

    Weights that the code wants to download are replaced by an empty state dict, which `load_state_dict` accepts. Standard
    input is empty. Bytecode is not written. `note` receives a text for each replacement.
    """
    if _guards:
        yield  # everything is already in place
        return
    _install()
    current = threading.get_native_id()  # unlike `get_ident`, not reused by the next thread
    threads = {thread.native_id for thread in threading.enumerate()}
    guard = Guard(exempt=frozenset(ident for ident in threads if ident is not None and ident != current))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_patched(sys, "dont_write_bytecode", True))
        stack.enter_context(_patched(sys, "stdin", io.StringIO()))
        stack.enter_context(_patched(torch, "save", _save_in_memory(torch.save)))
        stack.enter_context(_patched(torch.jit, "save", _save_in_memory(torch.jit.save)))
        stack.enter_context(skipped_downloads(note))
        _guards.append(guard)
        try:
            yield
        finally:
            _guards.remove(guard)


@contextlib.contextmanager
def _patched(owner: Any, name: str, value: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _save_in_memory(save: Callable[..., object]) -> Callable[..., object]:
    """`save`, which writes files without an audit event, for buffers in memory only."""

    def save_to_buffer(value: object, f: object, *args: object, **kwargs: object) -> object:
        if not isinstance(f, io.BytesIO):
            raise _error("a written file", "torch.save")
        return save(value, f, *args, **kwargs)

    return save_to_buffer


def _install() -> None:
    global _is_installed
    tempfile.gettempdir()  # determined now, because it holds a lock while it tries folders, which the hook sees
    if not _is_installed:
        sys.addaudithook(_hook)
        _is_installed = True


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _guards or event not in _ACTS:
        return
    if threading.get_native_id() in _guards[-1].exempt:
        return
    if event == "open":
        if not _is_write(args) or _is_allowed_file(args[0]):
            return
        raise _error(_ACTS[event], str(args[0]))
    if event in _FILES and _is_library_temporary(args):
        return
    raise _error(_ACTS[event], event)


def _is_write(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return bool(set("wax+") & set(mode))
    return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)


def _is_allowed_file(path: object) -> bool:
    if isinstance(path, int):
        return True  # already open
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if _DEVICES.match(text):
        return True
    return _is_library_temporary((text,))


def _is_library_temporary(args: tuple[Any, ...]) -> bool:
    """Whether a library, not user code, works in the folder for temporary files."""
    path = args[0] if args else None
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    folder = tempfile.gettempdir()
    return Path(os.fsdecode(path)).absolute().is_relative_to(folder) and _user_caller() is None


def _user_caller() -> FrameType | None:
    """The frame of user code that called directly, or through the standard library; None if a library called."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_user_code(name):
            return frame
        if is_installed_package(name):
            return None
        frame = frame.f_back
    return None


def _error(act: str, detail: str) -> SideEffectError:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    where = f" at {display_path(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""
    return SideEffectError(f"loading a model does not allow {act} ({detail}){where}")
