"""State of Python and torch that user code can change for all code after it."""

from __future__ import annotations

import builtins
import sys
from typing import Final

import torch

_NEEDED: Final = frozenset({*sys.stdlib_module_names, "torch", "numpy", "profiler_kit"})


class InterpreterState:
    """The state when it is created: builtin functions, imported modules, hooks, and torch's modes and defaults."""

    def __init__(self) -> None:
        self._functions, self._modules, self._modes = dict(vars(builtins)), dict(sys.modules), _modes()
        self._finders = list(sys.meta_path)

    def restore(self) -> list[str]:
        """Restore builtin functions, finders, and modules of Python and torch that are gone; the names of all that changed."""
        current = vars(builtins)
        replaced = [name for name, value in self._functions.items() if current.get(name) is not value and name != "_"]
        current.update({name: self._functions[name] for name in replaced})
        removed = [name for name in self._modules if name not in sys.modules and name.partition(".")[0] in _NEEDED]
        sys.modules.update({name: self._modules[name] for name in removed})
        modes = [name for name, value in _modes().items() if self._modes[name] != value]
        sys.meta_path[:] = self._finders
        return [*(f"builtins.{name}" for name in replaced), *removed, *modes]


def _modes() -> dict[str, object]:
    return {
        "the trace function": sys.gettrace(),
        "the profile function": sys.getprofile(),
        "sys.meta_path": tuple(map(id, sys.meta_path)),
        "torch's dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch's function modes": torch._C._len_torch_function_stack(),
        "torch's inference mode": torch.is_inference_mode_enabled(),
        "torch's default device": torch.get_default_device(),
        "torch's default dtype": torch.get_default_dtype(),
    }
