"""State of Python and torch that no model needs to change, and that breaks all code after it if it is changed.

Also the modules of user code that earlier loads imported, so that a later load imports edited files again.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import resource
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import torch

from profiler_kit.foreign import module_places
from profiler_kit.user_code.locations import is_user_code

_PYTHON: Final = frozenset({*sys.stdlib_module_names, "profiler_kit"})
_NEEDED: Final = _PYTHON | {"torch", "numpy"}
_LIMITS: Final = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_VARIABLE: Final = (int, float, type(None))  # counters, flags, and what is set at its first use


class InterpreterState:
    """The state when it is created: builtin functions, imported modules, trace functions, and torch's modes.

    With `is_own_process`, also the contents of modules of Python and of this package, and limits. In a process of the user,
    what a model patches there stays.
    """

    def __init__(self, *, is_own_process: bool = False) -> None:
        self._modules, self._modes = dict(sys.modules), _modes()
        self._contents = {
            name: dict(vars(module))
            for name, module in self._modules.items()
            if name == "builtins"
            or (is_own_process and name.partition(".")[0] in _PYTHON and isinstance(module, ModuleType))
        }
        self._limits = {limit: resource.getrlimit(limit)[0] for limit in _LIMITS} if is_own_process else {}

    def restore(self) -> list[str]:
        """Restore modules, their contents and limits that are replaced or gone; the names of all that changed.

        Until builtin functions are restored, none may be called.
        """
        current = builtins.__dict__
        functions = [name for name, value in self._contents["builtins"].items() if current.get(name) is not value]
        current.update({name: self._contents["builtins"][name] for name in functions if name != "_"})
        changed = [f"builtins.{name}" for name in functions if name != "_"]
        for module_name, contents in self._contents.items():
            current = vars(self._modules[module_name])
            for name, value in contents.items():
                if current.get(name) is not value and not isinstance(value, _VARIABLE):
                    current[name] = value
                    changed.append(f"{module_name}.{name}")
        for name, module in self._modules.items():
            is_gone = name not in sys.modules or (name in self._contents and sys.modules[name] is not module)
            is_needed = is_gone and name.partition(".")[0] in _NEEDED
            if is_needed and not is_user_code(getattr(module, "__file__", None) or "<"):
                sys.modules[name] = module
                changed.append(name)
        for name in sys.stdlib_module_names & sys.modules.keys() - self._modules.keys():
            if self._limits and sys.modules[name] is None:  # its import would fail
                changed.append(name)
                del sys.modules[name]
        changed += [name for name, value in _modes().items() if self._modes[name] != value]
        return changed + (self._restore_limits() if self._limits else [])

    def _restore_limits(self) -> list[str]:
        changed = []
        for limit, soft in self._limits.items():
            now, hard = resource.getrlimit(limit)
            if now != soft:
                changed.append("a limit of the process")
                with contextlib.suppress(OSError, ValueError):  # the hard limit, too
                    resource.setrlimit(limit, (soft, hard))
        try:
            os.close(os.dup(2))
        except OSError as error:
            changed.append(f"the open files ({error.strerror})")
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # free descriptors for the result
        return changed


def _modes() -> dict[str, object]:
    return {
        "the trace function": sys.gettrace(),
        "the profile function": sys.getprofile(),
        "torch's dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch's inference mode": torch.is_inference_mode_enabled(),
    }


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
    for name in sys.modules.keys() - before:
        places = filter(is_user_code, module_places(sys.modules.get(name)))
        if any(Path(place).resolve().is_relative_to(folder) for place in places for folder in folders):
            names.add(name)
    _imported_modules.update(names)
    return frozenset(names)


def remember_imports(names: set[str]) -> None:
    """Let a later load remove the modules `names`."""
    _imported_modules.update(names)
