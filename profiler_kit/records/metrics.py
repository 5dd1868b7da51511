"""The counted metrics, for the comparison's headline and for budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import PSEUDO_PATHS, StaticCount
from profiler_kit.records.report import Report
from profiler_kit.records.target import InputInfo, inputs_text
from profiler_kit.records.uncounted import reason_of_unknown_work
from profiler_kit.units import Unit

# Of the smaller model's layers that the other has at the same path: with fewer, two reports under different names are of
# different models.
MIN_SHARED_LAYERS: Final = 0.1


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


def _largest_layer_share(static: StaticCount) -> int | None:
    """The share of the layer with the most FLOPs, in hundredths of a percent."""
    total = static.step.flops
    return (
        round(10_000 * max(node.step_cost.flops for node in static.modules) / total)
        if total and static.modules
        else None
    )


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
        key="backward_flops", title="FLOPs, backward", unit="flops",
        value=lambda static: static.backward.flops + static.recompute.flops,
        doc="floating-point operations of the backward pass, including forward work that is computed again",
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
        key="largest_layer", title="Largest layer, share", unit="basis_points", value=_largest_layer_share,
        doc="the share of the step's FLOPs in the layer with the most, excluding its children",
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


def reason_not_comparable(a: Report, b: Report, counted: StaticMetric, *, one_model: bool = False) -> str:
    """Why `counted` does not compare between the two reports; empty where it does. Every verdict and sentence asks here.

    `one_model`: the reports must be of two versions of one model, as in a review.
    """
    if a.static is None or b.static is None or value_of(a, counted) is None or value_of(b, counted) is None:
        return "not counted"
    if one_model and (reason := reason_of_another_model(a, b)):
        return reason
    if counted.unit in ("flops", "macs", "basis_points"):
        if a.static.convention_name != b.static.convention_name:
            return f"counted by the conventions {a.static.convention_name} and {b.static.convention_name}"
        if a.static.convention != b.static.convention:
            return f"counted by different conventions ({a.static.convention}; {b.static.convention})"
        if reason := reason_of_unknown_work(a.static, b.static):
            return reason
    if counted.depends_on_inputs and (reason := _reason_of_the_step(a, b)):
        return reason
    if counted.unit == "bytes" and a.target.arithmetic != b.target.arithmetic:
        return f"computed in {a.target.arithmetic} and in {b.target.arithmetic}"
    return ""


def _reason_of_the_step(a: Report, b: Report) -> str:
    """Why counts of the two steps do not compare; empty where they do."""
    if a.static is not None and b.static is not None and a.static.device != b.static.device:
        return f"counted on {a.static.device} and on {b.static.device}, where ops are decomposed differently"
    versions = (torch_version(a), torch_version(b))
    if None not in versions and versions[0] != versions[1]:
        return f"counted with torch {versions[0]} and {versions[1]}"
    if a.target.mode != b.target.mode:
        return f"different modes ({a.target.mode} and {b.target.mode})"
    return reason_of_inputs(a, b)


def reason_of_inputs(a: Report, b: Report) -> str:
    """How the inputs of the two reports differ; empty where shapes and types are the same. Names do not change the work."""
    if _shapes(a.target.inputs) == _shapes(b.target.inputs):
        return ""
    return f"different inputs ({inputs_text(a.target.inputs)} and {inputs_text(b.target.inputs)})"


def _shapes(inputs: tuple[InputInfo, ...]) -> list[tuple[tuple[int, ...], str]]:
    return [(tensor.shape, tensor.dtype) for tensor in inputs]


def reason_of_another_model(a: Report, b: Report) -> str:
    """Why the two reports are not of one model; empty if they may be.

    They may be where the TARGET, the class or a part of the layers is the same.
    """
    if a.target.spec == b.target.spec or a.static is None or b.static is None:
        return ""
    roots = [next((node.class_name for node in count.modules if not node.path), "") for count in (a.static, b.static)]
    layers = [
        {(node.path, node.class_name) for node in count.modules if node.path and node.path not in PSEUDO_PATHS}
        for count in (a.static, b.static)
    ]
    smaller = min(len(layers[0]), len(layers[1]))
    if roots[0] == roots[1] or len(layers[0] & layers[1]) > MIN_SHARED_LAYERS * smaller:
        return ""
    return f"reports of different models ({a.target.name} and {b.target.name})"


def torch_version(report: Report) -> str | None:
    """The torch version in `report`; None where it is missing."""
    if report.static is not None and report.static.torch is not None:
        return report.static.torch
    return next((run.environment.torch for run in report.runs if run.environment is not None), None)
