"""The columns of `sweep`: one row for each model, batch size and configuration."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.sweeps import SweepResult, SweepRun
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.runs import UNSURE
from profiler_kit.units import text


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One configuration of a task; `run` is None where nothing was measured."""

    result: SweepResult
    run: SweepRun | None

    @property
    def failure(self) -> str | None:
        """Why figures are missing."""
        return (self.run.failure if self.run is not None else "") or self.result.failure or None


def _marked_ratio(row: SweepRow) -> str | None:
    if row.run is None or row.run.ratio is None:
        return None
    mark = "" if row.run.outcome in ("better", "worse") else UNSURE
    return f"{mark}{text(row.run.ratio, 'ratio')}"


def _per_step(row: SweepRow, name: str) -> int | None:
    step = row.run.step_ns if row.run is not None else None
    value: int | None = getattr(step, name) if step is not None else None
    return value


# fmt: off
# ruff: noqa: E501 - one column, one line
SWEEP_COLUMNS: tuple[Column[SweepRow], ...] = (
    Column("model", "model", "text", lambda r: r.result.task.model, "the model, as TARGET text", name=True),
    Column("batch", "batch", "count", lambda r: r.result.task.batch, "the requested batch size; none: the model's own inputs"),
    Column("config", "configuration", "text", lambda r: r.run.config if r.run is not None else None, "the configuration"),
    Column("inputs", "inputs", "text", lambda r: r.result.inputs or None, "the inputs of a step", rank=8),
    Column("params", "parameters", "count", lambda r: r.result.params, "parameters, each counted once", rank=2),
    Column("macs", "MACs", "macs", lambda r: r.result.macs, "multiply-accumulates of the forward pass over the full batch", rank=3),
    Column("forward_flops", "forward FLOPs", "flops", lambda r: r.result.forward_flops, "floating-point operations of the forward pass", place="data"),
    Column("flops", "FLOPs", "flops", lambda r: r.result.flops, "floating-point operations of the step"),
    Column("saved_bytes", "saved", "bytes", lambda r: r.result.saved_bytes, "bytes of distinct tensors saved for backward", rank=5),
    Column("predicted_bytes", "predicted peak", "bytes", lambda r: r.result.predicted_bytes, "predicted peak memory of tensors", rank=4),
    Column("predicted_kernel_ns", "predicted kernels", "ns", lambda r: r.result.kernel_ns, "predicted kernel time of the step on the device of --gpu", rank=1),
    Column("predicted_step_ns", "predicted step", "ns", lambda r: r.result.step_ns, "predicted time of the step on the device of --gpu, behind a reference host; shortest first"),
    Column("step_ns", "step", "ns", lambda r: _per_step(r, "median"), "median of the timed steps"),
    Column("step_low_ns", "low", "ns", lambda r: _per_step(r, "low"), "lower bound of the median's 95 % bootstrap interval", place="data"),
    Column("step_high_ns", "high", "ns", lambda r: _per_step(r, "high"), "upper bound of the median's 95 % bootstrap interval", place="data"),
    Column("ratio_text", "vs first", "text", _marked_ratio, "the step over that of the first configuration of the same model and batch; ~ marks a difference that is not established", place="page"),
    Column("ratio", "vs first", "ratio", lambda r: r.run.ratio if r.run is not None else None, "the step over that of the first configuration of the same model and batch", place="data"),
    Column("outcome", "outcome", "text", lambda r: r.run.outcome if r.run is not None else None, "better, worse, same or unknown: whether the difference to the first configuration is established", place="data"),
    Column("processes", "processes", "count", lambda r: (r.run.processes or None) if r.run is not None else None, "number of fresh processes behind the step", place="data"),
    Column("examples_per_s", "examples/s", "count", lambda r: r.run.examples_per_s if r.run is not None else None, "examples per second", rank=1),
    Column("flops_per_s", "FLOP/s", "flops/s", lambda r: r.run.flops_per_s if r.run is not None else None, "counted FLOPs of the step over its time", rank=6),
    Column("peak_bytes", "peak", "bytes", lambda r: r.run.peak_bytes if r.run is not None else None, "measured peak memory allocated on the device"),
    Column("uncounted", "uncounted ops", "count", lambda r: r.result.uncounted or None, "calls of ops without a formula; with any, FLOPs are a lower bound", rank=7),
    Column("failure", "failure", "text", lambda r: r.failure, "why figures are missing", place="data"),
    Column("name", "name", "text", lambda r: r.result.name or None, "the model's class", place="data"),
    Column("examples", "examples", "count", lambda r: r.result.examples, "examples in one step", place="data"),
    Column("inputs_are_guessed", "guessed inputs", "bool", lambda r: r.result.inputs_are_guessed, "whether the shapes of the inputs were found by trying", place="data"),
    Column("device", "device", "text", lambda r: r.result.device_name or None, "the device's name", place="data"),
    Column("place", "place", "text", lambda r: r.result.place or None, "the device, or the node of a cluster, that ran the task", place="data"),
    Column("attempts", "attempts", "count", lambda r: r.result.attempts, "how often the task was started", place="data"),
    Column("wall_ns", "wall", "ns", lambda r: r.result.wall_ns, "duration of the task", place="data"),
    Column("finished", "finished", "text", lambda r: r.result.finished, "when the task ended, in UTC", place="data"),
    Column("options", "options", "text", lambda r: " ".join(r.result.task.argv) or None, "the options of the task", place="data"),
    Column("report", "report", "text", lambda r: r.result.report or None, "the file of the whole report, relative to the sweep's folder", place="data"),
)
# fmt: on

TABLES = (
    ColumnTable(
        "sweep", SWEEP_COLUMNS, "A row for each model, batch size and configuration of a sweep, failed ones included."
    ),
)
