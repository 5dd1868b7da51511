"""State of Python and torch that no model needs to change, and that breaks all code after it if it is changed."""

from __future__ import annotations

import builtins
import sys
from typing import Final

import torch

from profiler_kit.user_code.locations import is_user_code

_NEEDED: Final = frozenset({*sys.stdlib_module_names, "torch", "numpy", "profiler_kit"})


class InterpreterState:
    """The state when it is created: builtin functions, imported modules, trace functions, and torch's modes."""

    def __init__(self) -> None:
        self._functions, self._modules, self._modes = dict(vars(builtins)), dict(sys.modules), _modes()

    def restore(self) -> list[str]:
        """Restore builtin functions, and modules of Python and torch that are gone; the names of all that changed."""
        current = vars(builtins)
        replaced = [name for name, value in self._functions.items() if current.get(name) is not value and name != "_"]
        current.update({name: self._functions[name] for name in replaced})
        gone = [name for name in self._modules if name not in sys.modules and name.partition(".")[0] in _NEEDED]
        removed = [name for name in gone if not is_user_code(getattr(self._modules[name], "__file__", None) or "<")]
        sys.modules.update({name: self._modules[name] for name in removed})
        modes = [name for name, value in _modes().items() if self._modes[name] != value]
        return [*(f"builtins.{name}" for name in replaced), *removed, *modes]


def _modes() -> dict[str, object]:
    return {
        "the trace function": sys.gettrace(),
        "the profile function": sys.getprofile(),
        "torch's dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch's inference mode": torch.is_inference_mode_enabled(),
    }
