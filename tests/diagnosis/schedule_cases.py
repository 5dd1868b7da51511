"""Runs over changing shapes: V1 with batch 2 on one H100 (totals as measured, their shares made up), and simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnose_cases import MS, v1

from profiler_kit.records.experiments import NewThread, ShapeSchedule, ShapeStep
from profiler_kit.records.report import Report

KIB = 1024
SIZES = tuple(range(176, 353, 16))  # twelve
RSS = 900 * 2**20


def schedule(
    config: str,
    cycles_ms: Sequence[float],
    *,
    last_ms: Sequence[float] | None = None,
    sizes: Sequence[int] = SIZES,
    growth_kib: Sequence[float] = (),
    device: str = "cuda",
    failure: str | None = None,
) -> ShapeSchedule:
    """Cycles of so many ms over `sizes`, shared out by area, and a smaller last batch of so many ms (None: without).

    `growth_kib`: by how much host memory grew at each step, none past its end.
    """
    area = sum(size**2 for size in sizes)
    steps: list[ShapeStep] = []
    rss = float(RSS)
    for i, cycle_ms in enumerate(cycles_ms):
        cycle = [((2, 3, size, size), cycle_ms * size**2 / area, False) for size in sizes]
        if last_ms is not None:
            cycle.append(((1, 3, sizes[-1], sizes[-1]), last_ms[i], True))
        for shape, ms, last in cycle:
            rss += KIB * growth_kib[len(steps)] if len(steps) < len(growth_kib) else 0
            steps.append(
                ShapeStep(
                    cycle=i + 1, shape=shape, seen=any(s.shape == shape for s in steps), ns=round(ms * MS),
                    peak_bytes=200 * 2**20, rss_bytes=round(rss), last_batch=last,
                )
            )  # fmt: skip
    return ShapeSchedule(
        config=config,
        source="generated",
        steps=tuple(steps),
        failure=failure,
        benchmark="benchmark" in config.split("+") if device == "cuda" else None,
        device=device,
    )


def default() -> ShapeSchedule:
    return schedule("default", (464, 31, 29), last_ms=(26, 2, 2))


def benchmark() -> ShapeSchedule:
    return schedule("benchmark", (4063, 27.5, 18.5), last_ms=(303, 1.5, 1.5), growth_kib=[700] * 13)


def v1_over_shapes() -> Report:
    """V1 with both schedules, and with a new thread in each run."""
    report = v1()
    threads = {
        "default": NewThread(first_ns=30 * MS, steady_ns=2 * MS),
        "benchmark": NewThread(first_ns=3200 * MS, steady_ns=MS),
    }
    runs = tuple(replace(run, new_thread=threads.get(run.config.name)) for run in report.runs)
    return replace(report, runs=runs, schedules=(default(), benchmark()))
