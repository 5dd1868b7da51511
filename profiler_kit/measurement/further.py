"""What is measured beyond the configurations, where it is asked for: a cap on memory, changing shapes, executed operations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profiler_kit.measurement.bench import Bench, measure_more
from profiler_kit.records.laboratory import ConvolutionTiming, LaboratoryQuestions, ShapeSchedule
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo
from profiler_kit.units import text


def measure_under_cap(bench: Bench, limit_bytes: int | None, folder: Path) -> None:
    """Runs again, under a cap on memory, every configuration that took more: a note says which fit anyway."""
    from profiler_kit.measurement.plan import capped

    if limit_bytes is None or bench.interrupted:
        return
    limit = text(limit_bytes, "bytes")
    known = [
        (run, held) for run in bench.runs if (held := _held_bytes(run)) is not None and run.config.repeat_of is None
    ]
    if not bench.device.startswith("cuda"):
        bench.notes.append(f"Nothing was run under a limit of {limit}: only a CUDA device's memory can be capped.")
        return
    if not known:
        bench.notes.append(f"Nothing was run under a limit of {limit}: no configuration was measured without one.")
        return
    fits = [run.config.name for run, held in known if held <= limit_bytes]
    if fits:
        bench.notes.append(f"Not run again under a limit of {limit}, as they take less anyway: {', '.join(fits)}.")
    over = [capped(run.config, limit_bytes) for run, held in known if held > limit_bytes]
    if over:
        measure_more(bench, over, folder)


def check(asked: LaboratoryQuestions, info: TargetInfo) -> None:
    """Raises UsageError for a schedule of shapes that makes no sense for the target: before anything is measured."""
    if asked.shapes is not None and info.inputs:
        from profiler_kit.configurations import shapes

        shapes.schedule(asked.shapes, info.inputs)


def schedules(bench: Bench, shapes: str | None) -> tuple[ShapeSchedule, ...]:
    """Runs over changing shapes, under the baseline and its twin with benchmark, where they are asked for."""
    if shapes is None or bench.interrupted:
        return ()
    from profiler_kit.configurations.naming import named
    from profiler_kit.measurement.schedule import run_schedule

    base = next((run.config for run in bench.runs if run.failure is None and run.config.repeat_of is None), None)
    if base is None:
        return ()
    configs = [base]
    if base.benchmark is False and base.enabled:
        configs.append(named(replace(base, benchmark=True)))
    found: list[ShapeSchedule] = []
    try:
        for config in configs:
            found.append(
                run_schedule(
                    bench.spec,
                    config,
                    device=bench.device,
                    text=shapes,
                    timeout_s=bench.timeout_s,
                    say=lambda said, config=config: bench.say(f"changing shapes, {config.name}: {said}"),  # type: ignore[misc]
                )
            )
    except KeyboardInterrupt:
        bench.interrupted = True
        bench.notes.append(f'Interrupted while shapes changed, under "{configs[len(found)].name}".')
    return tuple(found)


def count_operations(bench: Bench, asked: bool) -> None:
    """Adds what hardware counters say to the runs whose convolutions are done differently from those counted before."""
    if not asked or bench.interrupted:
        return
    if not any(run.convolutions for run in bench.runs):
        lacking = "no run has convolutions whose kernels are known"
        of_device = f"{bench.device} has none that this tool knows, only NVIDIA's devices"
        why = lacking if bench.device.startswith("cuda") else of_device
        bench.notes.append(f"Hardware counters were not read: {why}.")
        return
    from profiler_kit.measurement import counters

    seen: dict[tuple[tuple[str, str, str], ...], tuple[ConvolutionTiming, ...]] = {}
    try:
        for at, run in enumerate(bench.runs):
            kernels = tuple((one.path, one.part, one.kernel) for one in run.convolutions)
            if not kernels or run.failure is not None:
                continue
            if kernels not in seen:
                counted, notes = counters.count(
                    bench.spec,
                    run.config,
                    device=bench.device,
                    timeout_s=bench.timeout_s,
                    say=lambda said, run=run: bench.say(f"counting operations, {run.config.name}: {said}"),  # type: ignore[misc]
                )
                if counted is not None:
                    notes = (*notes, *counters.otherwise_done(run.convolutions, counted))
                bench.notes.extend(note for note in notes if note not in bench.notes)
                if counted is None:
                    return
                seen[kernels] = counters.with_counters(run.convolutions, counted)
            known = {(one.path, one.part): one for one in seen[kernels]}
            bench.runs[at] = replace(
                run,
                convolutions=tuple(_counted_as(one, known[one.path, one.part]) for one in run.convolutions),
            )
    except KeyboardInterrupt:
        bench.interrupted = True
        bench.notes.append("Interrupted while hardware counters were read.")


def _counted_as(one: ConvolutionTiming, other: ConvolutionTiming) -> ConvolutionTiming:
    """`one` with the counters of `other`, which runs by the same kernels."""
    return replace(one, counters=other.counters, counted_kernels=other.counted_kernels)


def _held_bytes(run: ConfigRun) -> int | None:
    """The most memory that a run took from the device; None where that was not measured."""
    held = [size for size in (run.first_step_peak_bytes, run.peak_reserved_bytes) if size is not None]
    return max(held, default=None)
