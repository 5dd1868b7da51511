"""The counted metrics, for the comparison's headline and for budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Report
from profiler_kit.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMetric:
    """A counted metric. `key` is its name in budgets and JSON. `value` returns None where it was not counted.

    `depends_on_inputs` is False for properties of the model alone; these compare across input shapes and modes.
    """

    key: str
    title: str
    unit: Unit
    value: Callable[[StaticCount], int | None]
    doc: str
    depends_on_inputs: bool = True
    headline: bool = False


def _peak(static: StaticCount) -> int | None:
    return static.memory.peak_bytes if static.memory is not None else None


METRICS: Final[tuple[StaticMetric, ...]] = (
    StaticMetric(
        key="params", title="Parameters", unit="count", value=lambda static: static.params,
        doc="parameters, each counted once", depends_on_inputs=False, headline=True,
    ),
    StaticMetric(
        key="trainable_params", title="Trainable parameters", unit="count", value=lambda static: static.trainable_params,
        doc="parameters that require a gradient", depends_on_inputs=False,
    ),
    StaticMetric(
        key="param_bytes", title="Parameter bytes", unit="bytes", value=lambda static: static.param_bytes,
        doc="bytes of all parameters", depends_on_inputs=False,
    ),
    StaticMetric(
        key="macs", title="MACs, forward", unit="macs", value=lambda static: static.forward.macs,
        doc="multiply-accumulates of the forward pass over the full batch", headline=True,
    ),
    StaticMetric(
        key="forward_flops", title="FLOPs, forward", unit="flops", value=lambda static: static.forward.flops,
        doc="floating-point operations of the forward pass; a MAC is two", headline=True,
    ),
    StaticMetric(
        key="flops", title="FLOPs, step", unit="flops", value=lambda static: static.step.flops,
        doc="floating-point operations of forward, loss, backward and recompute", headline=True,
    ),
    StaticMetric(
        key="saved", title="Saved for backward", unit="bytes", value=lambda static: static.saved_bytes,
        doc="bytes of distinct tensors saved for backward, parameters and inputs excluded", headline=True,
    ),
    StaticMetric(
        key="peak", title="Peak memory, predicted", unit="bytes", value=_peak,
        doc="tensor bytes at the step's peak; library workspace and allocator rounding excluded", headline=True,
    ),
    StaticMetric(
        key="uncounted", title="Uncounted ops", unit="count", value=lambda static: sum(op.calls for op in static.uncounted),
        doc="calls of ops without a formula; with any, FLOPs are a lower bound",
    ),
)  # fmt: skip


def find_metric(key: str) -> StaticMetric | None:
    """The metric named `key`; None if unknown."""
    return next((entry for entry in METRICS if entry.key == key), None)


def value_of(report: Report, counted: StaticMetric) -> int | None:
    """The value of `counted` in `report`; None where it was not counted."""
    return counted.value(report.static) if report.static is not None else None


def reason_not_comparable(a: Report, b: Report, counted: StaticMetric) -> str:
    """Why `counted` does not compare between the two reports; empty where it does."""
    if a.static is None or b.static is None:
        return "not counted"
    if counted.unit in ("flops", "macs") and a.static.convention_name != b.static.convention_name:
        return f"counted by the conventions {a.static.convention_name} and {b.static.convention_name}"
    if counted.unit in ("flops", "macs") and a.static.convention != b.static.convention:
        return f"counted by different conventions ({a.static.convention}; {b.static.convention})"
    if counted.depends_on_inputs and a.static.device != b.static.device:
        return f"counted on {a.static.device} and on {b.static.device}, where ops are decomposed differently"
    versions = (torch_version(a), torch_version(b))
    if counted.depends_on_inputs and None not in versions and versions[0] != versions[1]:
        return f"counted with torch {versions[0]} and {versions[1]}"
    if counted.depends_on_inputs and a.target.mode != b.target.mode:
        return f"different modes ({a.target.mode} and {b.target.mode})"
    if counted.unit == "bytes" and a.target.arithmetic != b.target.arithmetic:
        return f"computed in {a.target.arithmetic} and in {b.target.arithmetic}"
    if value_of(a, counted) is None or value_of(b, counted) is None:
        return "not counted"
    return ""


def torch_version(report: Report) -> str | None:
    """The torch version in `report`; None where it is missing."""
    if report.static is not None and report.static.torch is not None:
        return report.static.torch
    return next((run.environment.torch for run in report.runs if run.environment is not None), None)
