"""Where a program builds its models: what a later load of it can learn from."""

from __future__ import annotations

import sys
import weakref
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from profiler_kit.recording.guard import Guard
from profiler_kit.user_code.locations import is_user_code

_TORCH: Final = str(Path(torch.__file__).parent)
_MAX_FRAMES: Final = 64
_Place = tuple[str, int]


class Origins:
    """Notes the calls around the construction of each module that has parts."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._built: dict[int, tuple[weakref.ref[nn.Module], tuple[_Place, ...]]] = {}
        self._hooks = ExitStack()

    def watch_construction(self) -> None:
        """Note where modules are built from now on."""
        self._hooks.callback(register_module_module_registration_hook(self._guard.hook(self._on_part)).remove)

    def stop(self) -> None:
        """Remove the hooks."""
        self._hooks.close()

    def built_at(self, module: nn.Module) -> tuple[str, ...]:
        """The places in user code around the construction of `module`, ``/home/me/train.py:41``, the innermost first."""
        reference, places = self._built.get(id(module), (None, ()))
        if reference is None or reference() is not module:
            return ()
        lines = (f"{Path(file).resolve()}:{line}" for file, line in places if is_user_code(file))
        return tuple(dict.fromkeys(lines))

    def _on_part(self, module: nn.Module, _name: str, _part: nn.Module | None) -> None:
        known = self._built.get(id(module))
        if known is None or known[0]() is not module:
            self._built[id(module)] = weakref.ref(module), _callers(module, sys._getframe(3))


def _callers(module: nn.Module, frame: FrameType | None) -> tuple[_Place, ...]:
    """The lines, outside torch, that are running around the outermost method of `module` itself; the innermost first."""
    places: list[_Place] = []
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if code.co_argcount and frame.f_locals.get(code.co_varnames[0]) is module:
            places.clear()
        elif not code.co_filename.startswith(_TORCH):
            places.append((code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(places)
