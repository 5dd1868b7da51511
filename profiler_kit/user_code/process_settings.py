"""Settings of the process and context variables that a pass may change, and modes of the caller that must not see it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import contextvars
import ctypes
import functools
import gc
import locale
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, Final

import torch
from torch.overrides import _pop_mode, _push_mode
from torch.utils._device import DeviceContext

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]  # how to read and to write it

BACKEND_FLAGS: Final = (
    "cudnn.enabled", "cudnn.benchmark", "cudnn.benchmark_limit", "cudnn.deterministic", "cudnn.allow_tf32",
    "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision",  # since torch 2.9
    "cuda.matmul.allow_tf32", "cuda.matmul.fp32_precision",
)  # fmt: skip
_UNREADABLE: Final = object()  # the value of a setting that this torch lacks, or that cannot be read now
# signal.getsignal searches for a member of an enum, which takes most of its time.
_handler_of: Final = _signal.getsignal


class SavedSettings:
    """The values of all `SETTINGS`, or of those in `names`, when it is created."""

    def __init__(self, *names: str) -> None:
        self._values = {name: _value(name) for name in names or SETTINGS}

    def restore(self) -> dict[str, Any]:
        """Write back the values that have changed; the changed values by name."""
        changed = {}
        for name, before in self._values.items():
            now = _value(name)
            if before is not _UNREADABLE and now is not before and now != before:
                changed[name] = now
                with contextlib.suppress(Exception):  # as for a signal handler, in another thread than the main one
                    SETTINGS[name][1](before)
        return changed


@contextlib.contextmanager
def settings_restored(*names: str) -> Iterator[None]:
    """Restore all `SETTINGS`, or those in `names`, after the block."""
    saved = SavedSettings(*names)
    try:
        yield
    finally:
        saved.restore()


class CopiedContext:
    """A copy of the context variables, in which the thread runs until `leave`."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        ctypes.pythonapi.PyContext_Enter(ctypes.py_object(self._context))

    def leave(self) -> None:
        """Return to the variables of the caller."""
        ctypes.pythonapi.PyContext_Exit(ctypes.py_object(self._context))


@contextlib.contextmanager
def callers_modes_disabled() -> Iterator[None]:
    """Hide the block from the modes that are active: dispatch, functions, inference, no_grad. The default device stays."""
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())][::-1]
    hidden = [mode for mode in modes if not isinstance(mode, DeviceContext)]
    for mode in modes:
        if isinstance(mode, DeviceContext):
            _push_mode(mode)
    try:
        with torch.inference_mode(False), torch.enable_grad(), contextlib.ExitStack() as stack:
            if torch._C._len_torch_dispatch_stack():
                from torch.utils._python_dispatch import _disable_current_modes

                stack.enter_context(_disable_current_modes())  # imports a part of the compiler
            yield
    finally:
        for mode in hidden:
            _push_mode(mode)


def _value(name: str) -> Any:
    try:
        return SETTINGS[name][0]()
    except (AttributeError, KeyError, OSError, RuntimeError):  # the last: flags of torch that contradict each other
        return _UNREADABLE


def _attribute(owner: Any, path: str) -> Setting:
    """The attribute of `owner` at `path`."""
    *parents, name = path.split(".")
    return partial(attrgetter(path), owner), lambda value: setattr(
        functools.reduce(getattr, parents, owner), name, value
    )


def _list(owner: Any, name: str) -> Setting:
    """The list `name` of `owner`. The same list gets its items back."""

    def write(saved: tuple[list[Any], list[Any]]) -> None:
        setattr(owner, name, saved[0])
        saved[0][:] = saved[1]
        if owner is warnings:  # what it has remembered about earlier warnings is no longer valid
            warnings.filterwarnings("default", append=True)
            saved[0].pop()

    return lambda: (getattr(owner, name), list(getattr(owner, name))), write


def _by_device(read: Callable[[str], Any], write: Callable[[str, Any], None], device: str) -> Setting:
    return partial(read, device), partial(write, device)


def _default_device() -> torch.device | None:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _set_environment(saved: dict[bytes, bytes]) -> None:
    for name in os.environb.keys() - saved.keys():
        del os.environb[name]
    os.environb.update(saved)


def _set_signal_handlers(saved: dict[int, Any]) -> None:
    for number, handler in saved.items():
        if handler is not None and _handler_of(number) != handler:  # None: the handler is not a function of Python
            signal.signal(number, handler)


def _numpy(read: str, write: str) -> Setting:
    return lambda: getattr(sys.modules["numpy"], read)(), lambda saved: getattr(sys.modules["numpy"], write)(**saved)


_SIGNALS: Final = tuple(map(int, signal.valid_signals()))
_CUDA: Final[Any] = torch.backends.cuda
_PRINT_OPTIONS: Final = vars(torch._tensor_str.PRINT_OPTS)
_FLAGS: Final = ("fp32_precision", "cudnn.fp32_precision", "mkldnn.fp32_precision", *BACKEND_FLAGS)
_SDP: Final = ("flash", "mem_efficient", "math", "cudnn")
_AUTOCAST: Final = ("cpu", "cuda")
# They are written back in this order: a setting that also writes others comes before them.
SETTINGS: Final[dict[str, Setting]] = {
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default_device": (_default_device, torch.set_default_device),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "gradients": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "anomaly": (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "warn_always": (torch.is_warn_always_enabled, torch.set_warn_always),
    "print_options": (_PRINT_OPTIONS.copy, _PRINT_OPTIONS.update),
    "float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    **{name: _attribute(torch.backends, name) for name in _FLAGS},
    **{f"{name}_sdp": (getattr(_CUDA, f"{name}_sdp_enabled"), getattr(_CUDA, f"enable_{name}_sdp")) for name in _SDP},
    **{f"autocast.{d}": _by_device(torch.is_autocast_enabled, torch.set_autocast_enabled, d) for d in _AUTOCAST},
    **{f"autocast_dtype.{d}": _by_device(torch.get_autocast_dtype, torch.set_autocast_dtype, d) for d in _AUTOCAST},
    "numpy.errors": _numpy("geterr", "seterr"),
    "numpy.print_options": _numpy("get_printoptions", "set_printoptions"),
    "warnings": _list(warnings, "filters"),
    "logging.handlers": _list(logging.root, "handlers"),
    "logging.level": (lambda: logging.root.level, logging.root.setLevel),
    "logging.disabled": (lambda: logging.root.manager.disable, logging.disable),
    "os.environ": (vars(os.environ)["_data"].copy, _set_environment),
    "working_directory": (os.getcwd, os.chdir),
    "signal_handlers": (lambda: {number: _handler_of(number) for number in _SIGNALS}, _set_signal_handlers),
    "locale": (lambda: locale.setlocale(locale.LC_ALL), lambda saved: locale.setlocale(locale.LC_ALL, saved)),
    "recursion_limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "switch_interval": (sys.getswitchinterval, sys.setswitchinterval),
    "garbage_collection": (gc.isenabled, lambda saved: gc.enable() if saved else gc.disable()),
    "sys.path": _list(sys, "path"),
    "sys.argv": _list(sys, "argv"),
    **{f"sys.{name}": _attribute(sys, name) for name in ("stdin", "stdout", "stderr", "excepthook", "displayhook")},
}
