"""The metrics that budgets can limit: counted ones, of the model or of its parts, those of checkpoints, and measured times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.records.check import StepTimeCheck
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.counts import Forecast, ModuleNode
from profiler_kit.records.edits import CheckpointChange
from profiler_kit.records.metrics import METRICS, StaticMetric
from profiler_kit.records.report import Report
from profiler_kit.records.samples import Interval
from profiler_kit.units import Unit

STEP_TIME: Final = "step_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMetric:
    """A metric of budgets. `key` is its name there. Exactly one of the sources is set, or none for the measured step time.

    - `static`: a counted metric. `of_module`: its part in one module, without children; None if it has no such parts.
    - `of_report`: a metric that needs a device: ``--gpu``.
    - `of_checkpoint`: the number of keys of the base's checkpoint that do not load.
    """

    key: str
    title: str
    unit: Unit
    doc: str
    static: StaticMetric | None = None
    of_module: Callable[[ModuleNode], int] | None = None
    of_report: Callable[[Report], int | None] | None = None
    of_checkpoint: Callable[[CheckpointChange], int] | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it is the measured step time, which ``--time`` judges."""
        return self.key == STEP_TIME

    @property
    def needs_device(self) -> bool:
        """Whether its value exists with ``--gpu`` only."""
        return self.of_report is not None

    @property
    def needs_base(self) -> bool:
        """Whether even its absolute limits need a base."""
        return self.of_checkpoint is not None or self.is_measured


_OF_MODULE: Final[dict[str, Callable[[ModuleNode], int]]] = {
    "params": lambda node: node.params,
    "trainable_params": lambda node: node.trainable_params,
    "param_bytes": lambda node: node.param_bytes,
    "macs": lambda node: node.forward.macs,
    "forward_flops": lambda node: node.forward.flops,
    "backward_flops": lambda node: node.backward.flops + node.recompute.flops,
    "flops": lambda node: node.step_cost.flops,
    "saved": lambda node: node.saved_bytes,
}


def _device_peak(report: Report) -> int | None:
    memory = report.static.memory if report.static is not None else None
    device = memory.device if memory is not None else None
    return None if device is None or device.is_default else device.allocated_bytes


def _device_step(report: Report) -> int | None:
    line = report.roofline_of(None)
    step = line.step if line is not None else None
    return round(step.layers_ns) if step is not None else None


def _predicted(time: Callable[[Forecast], Interval]) -> Callable[[Report], int | None]:
    def median_ns(report: Report) -> int | None:
        forecast = report.static.forecast if report.static is not None else None
        return time(forecast).median if forecast is not None else None

    return median_ns


GATE_METRICS: Final[tuple[GateMetric, ...]] = (
    *(
        GateMetric(
            key=metric.key, title=metric.title, unit=metric.unit, doc=metric.doc, static=metric,
            of_module=_OF_MODULE.get(metric.key),
        )
        for metric in METRICS
    ),
    GateMetric(
        key="device_peak", title="Peak memory on the device, predicted", unit="bytes", of_report=_device_peak,
        doc="allocated bytes at the step's peak on the device of --gpu, with library workspace and rounding",
    ),
    GateMetric(
        key="device_step", title="Step time on the device, lower bound", unit="ns", of_report=_device_step,
        doc="the sum of the layers' roofline bounds on the device of --gpu",
    ),
    GateMetric(
        key="step_time_predicted", title="Step time on the device, predicted", unit="ns",
        of_report=_predicted(lambda forecast: forecast.step_ns),
        doc="a replay of the predicted kernels on the device of --gpu behind a reference host",
    ),
    GateMetric(
        key="kernel_time_predicted", title="Kernel time on the device, predicted", unit="ns",
        of_report=_predicted(lambda forecast: forecast.kernel_ns),
        doc="the sum of the step's kernels on the device of --gpu, from recorded calls of the same ops",
    ),
    GateMetric(
        key="checkpoint", title="Checkpoint keys that do not load", unit="count",
        of_checkpoint=lambda change: change.changed_keys,
        doc="keys of the base's checkpoint that are missing, unexpected or of another shape",
    ),
    GateMetric(
        key="checkpoint_missing", title="Checkpoint keys, missing", unit="count",
        of_checkpoint=lambda change: change.missing, doc="keys that the changed model needs and the base's checkpoint lacks",
    ),
    GateMetric(
        key="checkpoint_unexpected", title="Checkpoint keys, unexpected", unit="count",
        of_checkpoint=lambda change: change.unexpected, doc="keys of the base's checkpoint that the changed model lacks",
    ),
    GateMetric(
        key="checkpoint_reshaped", title="Checkpoint keys, reshaped", unit="count",
        of_checkpoint=lambda change: change.reshaped, doc="keys whose tensors have another shape",
    ),
    GateMetric(
        key=STEP_TIME, title="Step time, measured", unit="ns",
        doc="measured time of a step in interleaved fresh processes of both sides; needs --time",
    ),
)  # fmt: skip
ORDER: Final = {metric.key: index for index, metric in enumerate(GATE_METRICS)}
_MODULE_SIGN: Final = "@"


def gate_metric(key: str) -> GateMetric | None:
    """The metric named `key`; None if unknown."""
    return next((metric for metric in GATE_METRICS if metric.key == key), None)


def find_metric(name: str, where: str) -> tuple[GateMetric, str]:
    """The metric and the module pattern of ``flops`` or ``flops@encoder.*``. `where`: the place of the name.

    Raises: UsageError.
    """
    key, sign, module = name.partition(_MODULE_SIGN)
    metric = gate_metric(key)
    if metric is None:
        raise UsageError(
            f"unknown metric {key!r}{nearest(key, ORDER)}", where=where, hint=f"metrics: {', '.join(ORDER)}"
        )
    if sign and not module:
        raise UsageError("no module after @", where=where, hint=f"write {key}@encoder.* or {key}")
    if module and metric.of_module is None:
        parts = [each.key for each in GATE_METRICS if each.of_module is not None]
        raise UsageError(
            f"{key} has no value for single modules", where=where, hint=f"these metrics have: {', '.join(parts)}"
        )
    return metric, module


def nearest(name: str, choices: Iterable[str]) -> str:
    """The choice that `name` probably means, as the end of an error message; empty if none is near."""
    near = get_close_matches(name, list(choices), n=1)
    return f", nearest: {near[0]}" if near else ""


def module_value(report: Report, metric: GateMetric, pattern: str) -> int | None:
    """The sum of `metric` over the modules that match `pattern`, with everything below them; None where none matches.

    `pattern` is a path with the wildcards of the shell.
    """
    assert metric.of_module is not None
    if report.static is None:
        return None
    nodes = [node for node in report.static.modules if matches_pattern(node.path, pattern)]
    return sum(metric.of_module(node) for node in nodes) if nodes else None


def matches_pattern(path: str, pattern: str) -> bool:
    """Whether `path` or a module around it matches."""
    steps = path.split(".")
    return any(fnmatchcase(".".join(steps[: i + 1]), pattern) for i in range(len(steps)))


def metric_value(
    metric: GateMetric, module: str, report: Report | None, comparison: Comparison | None, *, is_base: bool
) -> int | None:
    """The value of `metric` on one side; None where unknown. The base's checkpoint has no key that does not load."""
    if metric.of_checkpoint is not None:
        if comparison is None or comparison.checkpoint is None:
            return None
        return 0 if is_base else metric.of_checkpoint(comparison.checkpoint)
    if report is None:
        return None
    if module:
        return module_value(report, metric, module)
    if metric.static is not None:
        return metric.static.value(report.static) if report.static is not None else None
    return metric.of_report(report) if metric.of_report is not None else None


def measured_value(time: StepTimeCheck | None, *, is_base: bool) -> int | None:
    """The step time of one side; None where it was not measured."""
    return None if time is None else time.base_ns if is_base else time.head_ns
