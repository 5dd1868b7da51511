"""The measured figures of the case study: plain records, saved as one JSON file, from which every verdict follows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from profiler_kit.errors import ReportError, UsageError
from profiler_kit.records.configs import Environment
from profiler_kit.records.counts import Phase, StaticCount
from profiler_kit.records.families import algorithm
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, LayerTiming, PhaseTiming
from profiler_kit.records.samples import Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json

Clock = Literal["stopwatch", "event", "kernel"]


def reading(phase: PhaseTiming, clock: Clock) -> int | None:
    """What `clock` read for `phase`, in ns."""
    match clock:
        case "stopwatch":
            return phase.stopwatch_ns
        case "event":
            return phase.event_ns
        case "kernel":
            return phase.kernel_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFigures:
    """Static facts of one model at one input: forward MACs of the whole batch, and the layer that has most of them."""

    model: str
    size: int
    batch: int
    params: int
    macs: int
    saved_bytes: int
    dominant_path: str
    dominant_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What one configuration of one model gave in one fresh process (`process` counts the repetitions from 1).

    `dominant_*` speak of the forward of the layer with most MACs; `workspace_path` is where the largest workspace was.
    """

    model: str
    config: str
    process: int = 1
    repeat_of: str | None = None
    failure: str | None = None
    steps: int = 0
    first_step_ns: int | None = None
    tuning_ns: int | None = None
    step_ns: Interval | None = None
    phases: tuple[PhaseTiming, ...] = ()
    clock: Literal["kernel", "operator"] | None = None
    first_step_peak_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    workspace_bytes: int | None = None
    workspace_path: str | None = None
    repeatable_outputs: bool | None = None
    repeatable_gradients: bool | None = None
    output_digest: str | None = None
    gradient_digest: str | None = None
    max_relative_error: float | None = None
    dominant_path: str | None = None
    dominant_family: str | None = None
    dominant_ns: int | None = None

    def share(self, phase: Phase, clock: Clock) -> float | None:
        """The share of `phase` in the sum of all phases by `clock`; None where that clock was not read."""
        read = {p.phase: reading(p, clock) for p in self.phases}
        total_ns = sum(ns for ns in read.values() if ns is not None)
        own_ns = read.get(phase)
        return None if own_ns is None or total_ns == 0 else own_ns / total_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLoop:
    """Training steps over `sizes`, one after the other, `cycles_ns` per round; then one smaller batch (`tail_ns`)."""

    benchmark: bool
    batch: int
    sizes: tuple[int, ...]
    cycles_ns: tuple[int, ...]
    tail_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveLoop:
    """One loop, read in several ways; ns per step.

    `cold_ns`: from the first step on, no synchronisation. `warm_ns`: after that, still none. `true_ns`: waiting for the
    device before and after the loop. `flipped_ns`: the same after the benchmark flag was flipped in this process.
    `early`, `late`: host time around each phase in the first and the last steps of a longer loop without synchronisation.
    """

    model: str
    mode: Literal["forward", "train"]
    benchmark: bool
    steps: int
    cold_ns: int
    warm_ns: int
    true_ns: int
    flipped_ns: int
    early: tuple[PhaseTiming, ...] = ()
    late: tuple[PhaseTiming, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Saved, kind="case_study"):
    """Everything measured. `cuda` says whether a CUDA device was there; without one some claims can't be judged."""

    cuda: bool = False
    size: int = 256
    batch: int = 8
    budget_s: float = 0.0
    claims: tuple[str, ...] = ()
    environment: Environment | None = None
    counts: tuple[CountFigures, ...] = ()
    runs: tuple[RunFigures, ...] = ()
    shapes: tuple[ShapeLoop, ...] = ()
    naive: tuple[NaiveLoop, ...] = ()
    problems: tuple[str, ...] = ()

    def run(self, model: str, config: str, process: int = 1) -> RunFigures | None:
        """The first run with samples of `model` under `config` in repetition `process`."""
        found = (r for r in self.runs if (r.model, r.config, r.process) == (model, config, process))
        return next((r for r in found if r.failure is None), None)

    def models(self) -> tuple[str, ...]:
        """The models that were run, in order."""
        return tuple(dict.fromkeys(r.model for r in self.runs))

    def count(self, model: str) -> CountFigures | None:
        """The static facts of `model` at the size of the runs (else the first size counted)."""
        of_model = [c for c in self.counts if c.model == model]
        return next((c for c in of_model if c.size == self.size), of_model[0] if of_model else None)


def count_figures(model: str, size: int, batch: int, static: StaticCount) -> CountFigures:
    """The case study's share of a static count."""
    dominant = max(static.modules, key=lambda node: node.forward.macs)
    return CountFigures(
        model=model,
        size=size,
        batch=batch,
        params=static.params,
        macs=static.forward.macs,
        saved_bytes=static.saved_bytes,
        dominant_path=dominant.path,
        dominant_share=dominant.forward.macs / max(1, static.forward.macs),
    )


def run_figures(model: str, report: Report, process: int = 1) -> tuple[RunFigures, ...]:
    """The case study's share of each run of `report`, the repeated baseline included."""
    dominant = None
    if report.static is not None and report.static.modules:
        dominant = max(report.static.modules, key=lambda node: node.forward.macs).path
    return tuple(_run(model, run, dominant, process) for run in report.runs)


def _run(model: str, run: ConfigRun, dominant: str | None, process: int) -> RunFigures:
    if run.failure is not None:
        said = f"{run.failure.kind}: {run.failure.message}"
        return RunFigures(model=model, config=run.config.name, process=process, failure=said)
    family, dominant_ns = _dominant(run.modules, dominant)
    workspace = run.memory.ops[0] if run.memory is not None and run.memory.ops else None
    return RunFigures(
        model=model,
        config=run.config.name,
        process=process,
        repeat_of=run.config.repeat_of,
        steps=len(run.steps_ns),
        first_step_ns=run.first_step_ns,
        tuning_ns=run.tuning_ns,
        step_ns=run.step_ns,
        phases=run.phases,
        clock=run.clock,
        first_step_peak_bytes=run.first_step_peak_bytes,
        peak_allocated_bytes=run.peak_allocated_bytes,
        workspace_bytes=run.workspace_bytes,
        workspace_path=workspace.path if workspace is not None else None,
        repeatable_outputs=run.repeatable_outputs,
        repeatable_gradients=run.repeatable_gradients,
        output_digest=run.output_digest,
        gradient_digest=run.gradient_digest,
        max_relative_error=run.max_relative_error,
        dominant_path=dominant,
        dominant_family=family,
        dominant_ns=dominant_ns,
    )


def _dominant(layers: Iterable[LayerTiming], path: str | None) -> tuple[str | None, int | None]:
    """The kernel family that the forward of the layer at `path` amounts to, and that forward's time."""
    forward = [layer for layer in layers if layer.path == path and layer.phase == "forward"]
    if not forward:
        return None, None
    chosen = algorithm(kernel for layer in forward for kernel in layer.kernels)
    return chosen.family if chosen is not None else None, sum(layer.kernel_ns for layer in forward)


def merged(old: Figures, new: Figures) -> Figures:
    """`old` with what `new` measured in its place or beside it. Raises UsageError where they are not of one machine."""

    def place(figures: Figures) -> tuple[object, ...]:
        where = figures.environment
        versions = (where.device_name, where.torch, where.cudnn) if where is not None else ()
        return (figures.cuda, figures.size, figures.batch, *versions)

    if place(old) != place(new):
        raise UsageError(
            "the saved figures are of another machine, version or size",
            hint="save to another file, or measure with the same --size and --batch",
        )
    # A run measured again takes the place of the old one, so that tables keep their order.
    again = {(run.model, run.process, run.config): run for run in new.runs}
    kept = tuple(again.pop((run.model, run.process, run.config), run) for run in old.runs)
    sizes = {(count.model, count.size) for count in new.counts}
    return replace(
        new,
        claims=tuple(sorted({*old.claims, *new.claims})),
        counts=(*(c for c in old.counts if (c.model, c.size) not in sizes), *new.counts),
        runs=(*kept, *again.values()),
        shapes=new.shapes or old.shapes,
        naive=new.naive or old.naive,
        problems=tuple(dict.fromkeys((*old.problems, *new.problems))),
    )


def save(figures: Figures, path: Path) -> None:
    """Writes `figures` as JSON, its folder made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(figures))


def load(path: Path) -> Figures:
    """The figures saved at `path`. Raises ReportError."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ReportError(f"cannot be read: {error}", where=str(path), hint="give a file that --json wrote") from error
    return from_json(Figures, data, str(path))
