"""The measured figures of the case study, saved as one JSON file. Every verdict is computed from these records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from profiler_kit.errors import ReportError, UsageError
from profiler_kit.records.configs import Environment
from profiler_kit.records.counts import Phase, StaticCount
from profiler_kit.records.families import main_algorithm
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.records.traces import PhaseTime, TraceModule

Clock = Literal["stopwatch", "event", "kernel"]

ROOT: Final = Path(__file__).resolve().parents[2]
MEASURING_CODE: Final = ("models", "profiler_kit/loading", "profiler_kit/configurations", "profiler_kit/worker")


def reading(phase: PhaseTime, clock: Clock) -> int | None:
    """Return the reading of `clock` for `phase` in ns; None if that clock was not read."""
    match clock:
        case "stopwatch":
            return phase.stopwatch_ns
        case "event":
            return phase.event_ns
        case "kernel":
            return phase.kernel_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFigures:
    """Static count of one model at one input size.

    Counts: `macs` are those of forward for the whole batch. `dominant_*` describe the layer with most MACs.
    """

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
    """Measurements of one configuration of one model in one fresh process. `process` numbers the repeats from 1.

    `repeats` are the median steps of further processes. `dominant_*` describe forward of the layer with most MACs.
    `workspace_path` is the layer with the largest workspace.
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
    repeats: tuple[Interval, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
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
        """Return the share of `phase` in the sum of all phases by `clock`; None if that clock was not read."""
        readings = {p.phase: reading(p, clock) for p in self.phases}
        total_ns = sum(ns for ns in readings.values() if ns is not None)
        phase_ns = readings.get(phase)
        return None if phase_ns is None or total_ns == 0 else phase_ns / total_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLoop:
    """Training steps over varying shapes: `cycles_ns` per round over all `sizes`, `tail_ns` for one smaller last batch."""

    benchmark: bool
    batch: int
    sizes: tuple[int, ...]
    cycles_ns: tuple[int, ...]
    tail_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveLoop:
    """One loop, timed in several ways. All times are ns per step.

    `cold_ns`: from the first step, without synchronization. `warm_ns`: the same loop repeated, without synchronization.
    `true_ns`: with synchronization before and after the loop. `flipped_ns`: like `true_ns`, after the benchmark flag was
    flipped in this process. `early`, `late`: host time around each phase in the first and the last steps of a longer
    loop without synchronization.
    """

    model: str
    mode: Literal["forward", "train"]
    benchmark: bool
    steps: int
    cold_ns: int
    warm_ns: int
    true_ns: int
    flipped_ns: int
    early: tuple[PhaseTime, ...] = ()
    late: tuple[PhaseTime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Saved, kind="case_study"):
    """All measurements. `cuda` is True if they come from a CUDA device; some claims cannot be judged without one.

    `code`: the start of a digest of the code that loads, runs and measures a model. Digests of two versions do not compare.
    """

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
    code: str = ""

    def run(self, model: str, config: str, process: int = 1) -> RunFigures | None:
        """Return the first successful run of `model` under `config` in repeat `process`, or None."""
        matches = (r for r in self.runs if (r.model, r.config, r.process) == (model, config, process))
        return next((r for r in matches if r.failure is None), None)

    def models(self) -> tuple[str, ...]:
        """Return the names of the measured models, in order."""
        return tuple(dict.fromkeys(r.model for r in self.runs))

    def count(self, model: str) -> CountFigures | None:
        """Return the static count of `model` at the size of the runs, else at the first counted size."""
        counts = [c for c in self.counts if c.model == model]
        return next((c for c in counts if c.size == self.size), counts[0] if counts else None)


def count_figures(model: str, size: int, batch: int, static: StaticCount) -> CountFigures:
    """Extract the case study's figures from a static count."""
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
    """Extract the case study's figures from every run of `report`, the repeated default included."""
    dominant = None
    if report.static is not None and report.static.modules:
        dominant = max(report.static.modules, key=lambda node: node.forward.macs).path
    return tuple(_figures_of_run(model, run, dominant, process) for run in report.runs)


def _figures_of_run(model: str, run: ConfigRun, dominant: str | None, process: int) -> RunFigures:
    if run.failure is not None:
        failure = f"{run.failure.kind}: {run.failure.message}"
        return RunFigures(model=model, config=run.config.name, process=process, failure=failure)
    family, dominant_ns = _forward_kernels(run.modules, dominant)
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
        repeats=tuple(repeat.step_ns for repeat in run.repeats if repeat.step_ns is not None),
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


def _forward_kernels(layers: Iterable[TraceModule], path: str | None) -> tuple[str | None, int | None]:
    """Return the algorithm's kernel family and the kernel time in forward of the layer at `path`."""
    forward = [layer for layer in layers if layer.path == path and layer.phase == "forward"]
    if not forward:
        return None, None
    kernel_stat = main_algorithm(kernel for layer in forward for kernel in layer.kernels)
    return kernel_stat.family if kernel_stat is not None else None, sum(layer.kernel_ns for layer in forward)


def merge(old: Figures, new: Figures) -> Figures:
    """Add `new` to `old`; new measurements replace old ones of the same case.

    Raises: UsageError if machine, version, code, size or batch differ.
    """

    def conditions(figures: Figures) -> tuple[object, ...]:
        environment = figures.environment
        versions = (environment.device_name, environment.torch, environment.cudnn) if environment is not None else ()
        return (figures.cuda, figures.size, figures.batch, figures.code, *versions)

    if conditions(old) != conditions(new):
        raise UsageError(
            "the saved figures are from another machine, version, code, size or batch",
            hint="save to another file, or measure all claims again, without --add",
        )
    # A new run replaces the old one at the same position, so that tables keep their order.
    new_runs = {(run.model, run.process, run.config): run for run in new.runs}
    updated_runs = tuple(new_runs.pop((run.model, run.process, run.config), run) for run in old.runs)
    sizes = {(count.model, count.size) for count in new.counts}
    return replace(
        new,
        claims=tuple(sorted({*old.claims, *new.claims})),
        counts=(*(c for c in old.counts if (c.model, c.size) not in sizes), *new.counts),
        runs=(*updated_runs, *new_runs.values()),
        shapes=new.shapes or old.shapes,
        naive=new.naive or old.naive,
        problems=tuple(dict.fromkeys((*old.problems, *new.problems))),
    )


def code_digest() -> str:
    """The start of a digest of the code that loads, runs and measures a model, and of the models."""
    digest = hashlib.sha256()
    for folder in MEASURING_CODE:
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def save(figures: Figures, path: Path) -> None:
    """Write `figures` as JSON to `path`, creating the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(figures))


def load(path: Path) -> Figures:
    """Load the figures saved at `path`.

    Raises: ReportError if the file cannot be read or has another format.
    """
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ReportError(
            f"cannot read the file: {error}", where=str(path), hint="pass a file that --json wrote"
        ) from error
    return from_json(Figures, data, str(path))
