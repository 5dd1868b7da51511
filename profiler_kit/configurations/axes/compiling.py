"""Axes that reduce kernel launches: torch.compile and CUDA graphs."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Final

from profiler_kit.configurations.axis import CUDA, ON, SAME_PRECISION, SAME_RESULTS, Axis, Change, StepControls
from profiler_kit.errors import TargetError
from profiler_kit.records.target import TargetInfo

_DEFAULT: Final = "default"
_WITH_GRAPHS: Final = ("reduce-overhead", "max-autotune")
_MODES: Final = (_DEFAULT, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_STEP: Final = "step"
_WITHOUT_COMPILE: Final = "measure without compile"


def _read(value: str) -> str:
    if value in (ON, _DEFAULT):
        return ON  # the name without a value means the default mode
    if value not in _MODES:
        raise ValueError(f"{value!r} is not one of {', '.join(_MODES)}")
    return value


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if value == "reduce-overhead" and device == "cpu":
        return "reduce-overhead only adds CUDA graphs to compile"
    if info is not None and info.has_note("compiled_whole"):
        return "the target is already compiled"
    return None


def _compile(value: str, runner: StepControls) -> None:
    import torch

    _require_compiler(runner.device)
    mode = None if value == ON else value
    compiled: Any = torch.compile(runner.step_module, mode=mode)  # also a module, but not typed as one
    runner.replace_module(compiled)
    runner.unobservable_reason = "compiled code allocates and launches without torch's dispatcher"
    runner.has_own_memory_pool = mode in _WITH_GRAPHS


def _require_compiler(device: object) -> None:
    """Raise TargetError before the first step if torch.compile has no compiler on this machine."""
    if getattr(device, "type", "") == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise TargetError(
                "torch.compile needs Triton, which is not installed or does not support this device",
                hint=_WITHOUT_COMPILE,
            )
        # Triton compiles its launchers as C code
        if sys.platform == "linux" and not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
            raise TargetError(
                "torch.compile needs a C compiler, and neither gcc nor clang is installed", hint=_WITHOUT_COMPILE
            )
        return
    if getattr(device, "type", "") != "cpu":
        return
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise TargetError(
            "torch.compile needs a C++ compiler, and none is installed", hint=f"install g++, or {_WITHOUT_COMPILE}"
        ) from error


def _read_part(value: str) -> str:
    if value not in (ON, _STEP):
        raise ValueError(f"{value!r} is not {_STEP!r}")
    return value


def _graph_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    if value == _STEP and info is not None and info.mode == "infer":
        return "in inference, cuda_graph captures the whole step"
    return None


def _capture(value: str, runner: StepControls) -> None:
    if value == _STEP:
        runner.capture_step()
    else:
        runner.capture_graphs()
    runner.unobservable_reason = "a CUDA graph replays without torch's dispatcher, from its own memory pool"
    runner.has_own_memory_pool = True


AXES: Final = (
    Axis(
        name="compile",
        change=Change(line="model = torch.compile(model)", numerics=SAME_PRECISION),
        values="MODE",
        fresh=True,
        doc=f"the model compiled by torch.compile; MODE: {', '.join(_MODES[1:])}. The first step compiles",
        devices=frozenset({"cuda", "cpu", "mps"}),
        parse_value=_read,
        skip_reason=_pointless,
        runner=_compile,
    ),
    Axis(
        name="cuda_graph",
        change=Change(
            line="model = torch.cuda.make_graphed_callables(model, (inputs,))",
            memory="a memory pool of its own",
            numerics=SAME_RESULTS,
        ),
        values="step",
        doc="forward and backward replayed as CUDA graphs; with step, the whole step as one: forward, loss, backward, optimizer. "
        "The first step captures",
        devices=CUDA,
        parse_value=_read_part,
        skip_reason=_graph_skip_reason,
        runner=_capture,
    ),
)
