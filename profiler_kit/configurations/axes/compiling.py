"""Fewer launches from the host: torch.compile and CUDA graphs."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Final

from profiler_kit.configurations.axis import ON, Axis, StepControls
from profiler_kit.errors import TargetError
from profiler_kit.records.target import TargetInfo

_DEFAULT: Final = "default"
_WITH_GRAPHS: Final = ("reduce-overhead", "max-autotune")
_MODES: Final = (_DEFAULT, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_WITHOUT: Final = "take --also without compile"


def _read(value: str) -> str:
    if value in (ON, _DEFAULT):
        return ON  # written without a value
    if value not in _MODES:
        raise ValueError(f"{value!r} is none of {', '.join(_MODES)}")
    return value


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if value == "reduce-overhead" and device == "cpu":
        return "what it adds to compile are CUDA graphs"
    if info is not None and any(note.startswith("torch.compile: the whole model") for note in info.notes):
        return "the target is compiled already"
    return None


def _compile(value: str, runner: StepControls) -> None:
    import torch

    _require_compiler(runner.device)
    mode = None if value == ON else value
    compiled: Any = torch.compile(runner.runs, mode=mode)  # a module again, which its types don't say
    runner.run_as(compiled)
    runner.unseen = "compiled code allocates and launches without torch's dispatcher"
    runner.memory_apart = mode in _WITH_GRAPHS


def _require_compiler(device: object) -> None:
    """Raises TargetError where what torch.compile builds with is not there; said now, as one line, instead of in a step."""
    if getattr(device, "type", "") == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise TargetError(
                "torch.compile needs Triton, which is not installed or does not know this device", hint=_WITHOUT
            )
        # Triton builds its launchers in C
        if sys.platform == "linux" and not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
            raise TargetError("torch.compile needs a C compiler, and neither gcc nor clang is here", hint=_WITHOUT)
        return
    if getattr(device, "type", "") != "cpu":
        return
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise TargetError(
            "torch.compile needs a C++ compiler, and none is here", hint=f"install g++, or {_WITHOUT}"
        ) from error


def _capture(value: str, runner: StepControls) -> None:
    runner.capture_graphs()
    runner.unseen = "a CUDA graph replays without torch's dispatcher, from memory of its own"
    runner.memory_apart = True


AXES: Final = (
    Axis(
        name="compile",
        values="MODE",
        doc=f"the model under torch.compile; MODE: {', '.join(_MODES[1:])}. The first step compiles",
        devices=frozenset({"cuda", "cpu", "mps"}),
        read=_read,
        pointless=_pointless,
        runner=_compile,
    ),
    Axis(
        name="cuda_graph",
        doc="forward and backward of the model replayed as CUDA graphs; loss and optimizer as they are. The first step captures",
        devices=frozenset({"cuda"}),
        runner=_capture,
    ),
)
