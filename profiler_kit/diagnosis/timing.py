"""Times and shares read off one run; None or empty where the run does not have the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from profiler_kit.records.counts import ModuleNode, Phase, StaticCount
from profiler_kit.records.families import LAYOUT, Algorithm, algorithm, is_convolution
from profiler_kit.records.runs import ConfigRun, KernelStat, LayerTiming


def node_of(static: StaticCount | None, path: str) -> ModuleNode | None:
    """The counted module at `path`; None without a count."""
    return next((node for node in static.modules if node.path == path), None) if static is not None else None


def is_product(family: str) -> bool:
    """Whether kernels of `family` multiply, as convolutions and matrix products do; layout conversions do not."""
    return family.startswith(("conv", "gemm")) and family != LAYOUT


def layer_algorithm(run: ConfigRun, path: str, phase: Phase) -> Algorithm | None:
    """What the run computes one owner's phase by; None where nothing of it is known."""
    timing = layer_timing(run, path, phase)
    return algorithm(timing.kernels) if timing is not None else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part` over `whole`; None where either is unknown or there is no whole."""
    return part / whole if part is not None and whole is not None and whole > 0 else None


def device_share(run: ConfigRun) -> float | None:
    """Device (or operator) time over step time, both per step."""
    return ratio(run.device_ns, run.step_ns.median if run.step_ns else None)


def phase_shares(run: ConfigRun, clock: Literal["stopwatch", "event", "kernel"]) -> dict[Phase, float]:
    """Each phase's share by `clock`; empty where the clock read nothing. Recomputation counts as backward, where it runs."""
    times: Counter[Phase] = Counter()
    for timing in run.phases:
        value = {"stopwatch": timing.stopwatch_ns, "event": timing.event_ns, "kernel": timing.kernel_ns}[clock]
        if value is not None:
            times["backward" if timing.phase == "recompute" else timing.phase] += value
    whole = sum(times.values())
    return {phase: value / whole for phase, value in times.items()} if whole > 0 else {}


def layer_timing(run: ConfigRun, path: str, phase: Phase) -> LayerTiming | None:
    """The run's figures for one owner in one phase."""
    return next((item for item in run.modules if item.path == path and item.phase == phase), None)


def time_by_path(run: ConfigRun) -> Counter[str]:
    """Device time per owner, ns per step, over all phases."""
    times: Counter[str] = Counter()
    for item in run.modules:
        times[item.path] += item.kernel_ns
    return times


def time_by_family(run: ConfigRun) -> Counter[str]:
    """Device time per kernel family, ns per step."""
    times: Counter[str] = Counter()
    for kernel in kernels(run):
        times[kernel.family] += kernel.kernel_ns
    return times


def kernels(run: ConfigRun) -> tuple[KernelStat, ...]:
    """All kernels of the run; where the run lists none of its own, those its layers list."""
    return run.kernels or tuple(kernel for item in run.modules for kernel in item.kernels)


def tf32_convolution_ns(run: ConfigRun) -> int:
    """Device time of convolution kernels of TF32 arithmetic, ns per step."""
    return sum(k.kernel_ns for k in kernels(run) if k.math == "tf32" and is_convolution(k.family))


def median_kernel_ns(run: ConfigRun) -> float | None:
    """The duration that half of the launched kernels stay below, from each kernel's mean duration and its calls."""
    return median_length((k.kernel_ns / k.calls, k.calls) for k in kernels(run) if k.calls > 0)


def median_length(lengths: Iterable[tuple[float, int]]) -> float | None:
    """The length that half of all calls stay below, from (length, calls); None without any."""
    ordered = sorted(lengths)
    total = sum(calls for _, calls in ordered)
    seen = 0
    for length, calls in ordered:
        seen += calls
        if 2 * seen >= total:
            return length
    return None
