"""The changes that `tune` tries on a device, how they combine, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from profiler_kit.configurations.naming import axes_by_name, change_of
from profiler_kit.records.configs import Backend
from profiler_kit.records.families import is_convolution
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import Mode
from profiler_kit.records.tuning import Goal
from profiler_kit.statistics.trials import MIN_USEFUL_GAIN_PERCENT
from profiler_kit.units import percent

# Cheap and often useful changes first: a search that runs out of time has then tried most of what matters.
_CUDA: Final = (
    "cuda_graph=step", "cuda_graph", "benchmark", "channels_last", "fused_optimizer", "no_item", "amp_bf16", "amp_fp16",
    "matmul_tf32", "compile",
)  # fmt: skip
_CPU: Final = ("amp_bf16", "threads=half", "channels_last", "no_onednn", "fused_optimizer", "compile")
_METAL: Final = ("amp_fp16", "amp_bf16", "channels_last", "fused_optimizer", "compile")
_BY_BACKEND: Final[Mapping[Backend, tuple[str, ...]]] = {
    "cudnn": _CUDA, "miopen": _CUDA, "native": _CUDA, "cpu": _CPU, "mps": _METAL,
}  # fmt: skip
_CASTS: Final = ("dtype=bfloat16", "dtype=float16")  # in inference; in training, weights would lose their small updates
_LOADER: Final = ("loader_workers=2", "pin_memory")
LARGER_BATCH: Final = "batch=2x"
_BATCH_LIMIT: Final = 64
_WORKERS_LIMIT: Final = 16
# Changes that are alternatives: a new one replaces the accepted one.
_ALTERNATIVES: Final = (
    frozenset({"amp_bf16", "amp_fp16", "dtype"}),
    frozenset({"compile", "cuda_graph"}),
    frozenset({"amp_fp16", "cuda_graph=step"}),  # a gradient scaler decides on the host whether a step counts
)
# Changes that are usually used together, and are tried at once first: each alone may gain little beside what the others leave.
_TOGETHER: Final = frozenset(
    {"cuda_graph", "cuda_graph=step", "benchmark", "channels_last", "fused_optimizer", "no_item"}
)
# Changes that are only tried after another one was accepted, with the devices that have them.
_REFINEMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "benchmark": ("benchmark_limit=0",),
    "compile": ("compile=reduce-overhead", "compile=max-autotune-no-cudagraphs"),
    "cuda_graph": ("compile=reduce-overhead",),
    "cuda_graph=step": ("compile=reduce-overhead",),
    "threads=half": ("threads=1",),
}
# Changes whose effect depends on another one: a loss alone may be a gain beside it.
_PARTNERS: Final[Mapping[str, frozenset[str]]] = {
    "channels_last": frozenset({"amp_bf16", "amp_fp16", "dtype=bfloat16", "dtype=float16", "compile"}),
    "pin_memory": frozenset({"loader_workers=2", "loader_workers=4"}),
    "cuda_graph": frozenset({"amp_bf16", "amp_fp16", "fused_optimizer", "benchmark"}),
    "cuda_graph=step": frozenset({"amp_bf16", "amp_fp16", "fused_optimizer", "benchmark"}),
    "compile": frozenset({"amp_bf16", "amp_fp16"}),
    "fused_optimizer": frozenset({"amp_bf16", "amp_fp16", "cuda_graph", "compile"}),
}


def first_changes(
    backend: Backend, goal: Goal, mode: Mode, checkpoints: Sequence[str] = (), *, has_loader: bool = False
) -> tuple[str, ...]:
    """The changes worth trying on `backend` for `goal`, in order. Some may have no effect on the target.

    `checkpoints`: the paths of modules whose saved tensors may be recomputed, for the goal ``memory``. `has_loader`: the target
    has a data loader.
    """
    changes = _BY_BACKEND[backend]
    if has_loader and goal != "memory":
        changes = (*(_LOADER if changes is _CUDA else _LOADER[:1]), *changes)
    if mode == "infer":
        changes = (*changes[:-1], *_CASTS, *changes[-1:])
    if goal == "throughput":
        changes = (LARGER_BATCH, *changes)
    if goal == "memory":
        changes = (*(f"checkpoint={path}" for path in checkpoints if mode == "train"), *changes)
    return changes


def used_together(changes: Sequence[str]) -> list[str]:
    """Those of `changes` that are usually used together, in the same order."""
    return [change for change in changes if change in _TOGETHER]


def runs_fresh(change: str) -> bool:
    """Whether `change` needs a process of its own: it is not a setting that steps of one process can switch."""
    axis = axes_by_name().get(change.partition("=")[0])
    return axis is not None and axis.fresh


def is_slow_to_start(change: str) -> bool:
    """Whether the first step of `change` may take minutes."""
    return change.partition("=")[0] == "compile"


def reduces_precision(change: str) -> bool:
    """Whether `change` computes with fewer bits."""
    effects = change_of(change)
    return effects is not None and effects.reduced


def negligible(change: str, run: ConfigRun) -> str | None:
    """Why `change` cannot matter in the step of `run`, the baseline; None if it may, or if nothing is known."""
    part = _PARTS.get(change.partition("=")[0])
    share = part[1](run) if part is not None else None
    if part is None or share is None or share >= MIN_USEFUL_GAIN_PERCENT / 100:
        return None
    return f"{part[0]} {percent(share)} of the step"


def _phase_share(run: ConfigRun, phase: str) -> float | None:
    """The share of the timed step that `phase` takes, on the host or on the device, whichever is longer."""
    timings = [timing for timing in run.phases if timing.phase == phase]
    if run.step_ns is None or not timings:
        return None
    longest = max(max(timing.stopwatch_ns or 0, timing.event_ns or 0, timing.kernel_ns or 0) for timing in timings)
    return longest / run.step_ns.median


def _idle_share(run: ConfigRun) -> float | None:
    """The share of the step in which no kernel runs; None without the times of kernels."""
    if run.clock != "kernel" or run.device_ns is None or run.step_ns is None:
        return None
    return max(0.0, 1.0 - run.device_ns / run.step_ns.median)


def _convolution_share(run: ConfigRun) -> float | None:
    """The share of the step that convolutions take; None without the times of kernels."""
    if run.clock != "kernel" or run.step_ns is None or not run.kernels:
        return None
    return sum(kernel.kernel_ns for kernel in run.kernels if is_convolution(kernel.family)) / run.step_ns.median


# The part of a step that a change can shorten, in words and as a share.
_PARTS: Final[Mapping[str, tuple[str, Callable[[ConfigRun], float | None]]]] = {
    "cuda_graph": ("the device is idle for", _idle_share),
    "no_item": ("the device is idle for", _idle_share),
    "benchmark": ("convolutions take", _convolution_share),
    "channels_last": ("convolutions take", _convolution_share),
    "fused_optimizer": ("the optimizer takes", lambda run: _phase_share(run, "optimizer")),
    "loader_workers": ("the loader takes", lambda run: _phase_share(run, "data")),
    "pin_memory": ("copies to the device take", lambda run: _phase_share(run, "transfer")),
}


def are_alternatives(change: str, accepted: str) -> bool:
    """Whether `change` would replace `accepted`."""
    return accepted not in with_change((accepted,), change)


def refinements(change: str) -> tuple[str, ...]:
    """The changes to try once `change` was accepted."""
    axis, _, value = change.partition("=")
    if axis == "batch" and value.endswith("x") and value[:-1].isdecimal() and int(value[:-1]) * 2 <= _BATCH_LIMIT:
        return (f"batch={int(value[:-1]) * 2}x",)
    if axis == "loader_workers" and int(value) * 2 <= _WORKERS_LIMIT:
        return (f"loader_workers={int(value) * 2}",)
    return _REFINEMENTS.get(change, ())


def are_partners(change: str, accepted: str) -> bool:
    """Whether `change` deserves another try because `accepted` was accepted."""
    return accepted in _PARTNERS.get(change, frozenset())


def with_change(accepted: Sequence[str], change: str) -> tuple[str, ...]:
    """`accepted` and `change`, without those that `change` replaces."""
    axis = change.partition("=")[0]
    axes = axes_by_name()
    several = axis in axes and axes[axis].several
    replaced = {axis} if not several else set()
    for alternatives in _ALTERNATIVES:
        if {axis, change} & alternatives:
            replaced |= alternatives
    if axis in axes:
        replaced |= axes[axis].excludes
    return (*(word for word in accepted if not {word, word.partition("=")[0]} & replaced), change)


def with_changes(accepted: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    """`accepted` and each of `changes`, without those that are replaced."""
    for change in changes:
        accepted = with_change(accepted, change)
    return tuple(accepted)


def without_change(accepted: Sequence[str], change: str) -> tuple[str, ...]:
    """`accepted` without `change` and the changes that only refine it."""
    removed = {change}
    if change == "benchmark":
        removed |= {word for word in accepted if word.startswith("benchmark_limit")}
    return tuple(word for word in accepted if word not in removed)


def configuration_name(changes: Sequence[str]) -> str:
    """The name of the configuration that applies `changes`."""
    return "+".join(changes) or "default"
