"""Reports as dashboards: a run per configuration or trace, with its times, memory and settings."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.dashboard import Dashboard, DashboardRun, Metric, Series, SettingValue
from profiler_kit.records.document import Chart, Document, Section
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import TraceSummary, idle_by_cause
from profiler_kit.report.document import report_document
from profiler_kit.report.traces import traces_document

TOP: Final = 50  # rows of a table: texts are not searchable, and longer ones are slow to load
FLAGS: Final = ("enabled", "benchmark", "deterministic", "allow_tf32")
_METRICS: Final = (
    Metric(tag="step/median_ms", title="step (ms)"),
    Metric(tag="throughput/examples_per_s", title="examples per s"),
    Metric(tag="memory/peak_allocated_mib", title="peak memory (MiB)"),
    Metric(tag="numerics/max_relative_error", title="max. relative error"),
)
_CLOCKS: Final = (("stopwatch", "stopwatch_ns"), ("event", "event_ns"), ("device", "kernel_ns"), ("host", "host_ns"))
_MEMORY: Final = (
    ("peak_allocated", "peak_allocated_bytes", "The peak of the timed steps in the caching allocator"),
    ("peak_reserved", "peak_reserved_bytes", "The memory that the caching allocator reserved"),
    ("first_step_peak", "first_step_peak_bytes", "The peak of the first step"),
    ("workspace", "workspace_bytes", "The workspace at the peak"),
    ("host_peak", "peak_rss_bytes", "The peak of the host process"),
)


def report_dashboard(report: Report, timeline: StepTimeline | None = None) -> Dashboard:
    """`report` as a dashboard with a run per configuration."""
    document = report_document(report, top=TOP, timeline=timeline)
    settings = _Settings(report.runs)
    runs = tuple(
        DashboardRun(
            name=run.config.name,
            series=tuple(_run_series(run, report)),
            settings=(("model", report.target.name), *settings.of(run.config)),
            group=f"{run.config.repeat_of or run.config.name} ({report.target.name}, {report.created})",
            failed=run.failure is not None,
        )
        for run in report.runs
    )
    used_tags = {series.tag for run in runs for series in run.series}
    return Dashboard(
        title=document.title,
        created_s=_seconds(report.created),
        series=tuple(_static_series(report)),
        runs=runs,
        texts=_texts(document),
        charts=_charts(document),
        metrics=tuple(metric for metric in _METRICS if metric.tag in used_tags),
    )


def traces_dashboard(report: TraceReport, timeline: StepTimeline | None = None) -> Dashboard:
    """`report` as a dashboard with a run per trace."""
    document = traces_document(report, top=TOP, timelines={0: timeline} if timeline is not None else None)
    return Dashboard(
        title=document.title,
        created_s=_seconds(report.created),
        series=(),
        runs=tuple(
            DashboardRun(name=report.name(trace), series=tuple(_trace_series(trace))) for trace in report.traces
        ),
        texts=_texts(document),
        charts=_charts(document),
    )


def _texts(document: Document) -> tuple[Section, ...]:
    return tuple(section for section in document.sections if not section.is_drawn and section.blocks)


def _charts(document: Document) -> tuple[Chart, ...]:
    return tuple(block for section in document.sections for block in section.blocks if isinstance(block, Chart))


def _seconds(created: str) -> float:
    """The time `created` in s since 1970; 0 where it is not a time."""
    try:
        return datetime.datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


class _Settings:
    """The settings of runs: cuDNN's flags where the device has them, and the axes that any run sets.

    All runs have a value of each setting, because a table of runs leaves out those without.
    """

    def __init__(self, runs: Iterable[ConfigRun]) -> None:
        configs = [run.config for run in runs]
        self._flags = [flag for flag in FLAGS if any(getattr(config, flag) is not None for config in configs)]
        self._axes: dict[str, bool] = {}  # whether each axis is a switch
        for config in configs:
            for item in config.settings:
                self._axes[item.name] = self._axes.get(item.name, True) and item.value == "on"

    def of(self, config: RunConfig) -> tuple[tuple[str, SettingValue], ...]:
        """The settings of `config` by name."""
        flags = [(flag, bool(getattr(config, flag))) for flag in self._flags]
        axes: list[tuple[str, SettingValue]] = []
        for axis, is_switch in self._axes.items():
            value = config.setting(axis)
            axes.append((axis, value is not None if is_switch else value or "default"))
        return (*flags, *axes)


def _one(tag: str, value: float | None, doc: str = "") -> Iterator[Series]:
    if value is not None:
        yield Series(tag=tag, points=((0, float(value)),), doc=doc)


def _ms(tag: str, ns: int | None, doc: str = "") -> Iterator[Series]:
    yield from _one(f"{tag}_ms", ns / 1e6 if ns is not None else None, doc)


def _mib(tag: str, size: int | None, doc: str = "") -> Iterator[Series]:
    yield from _one(f"{tag}_mib", size / 2**20 if size is not None else None, doc)


def _run_series(run: ConfigRun, report: Report) -> Iterator[Series]:
    step = run.step_ns
    if step is not None:
        yield from _ms("step/median", step.median, "The median of the timed steps")
        yield from _ms("step/low", step.low, "The lower end of the median's 95 % confidence interval")
        yield from _ms("step/high", step.high, "The upper end of the median's 95 % confidence interval")
        if step.median and run.samples:
            yield from _one("throughput/examples_per_s", 1e9 * run.samples / step.median)
        flops = report.static.step.flops if report.static is not None and run.config.setting("batch") is None else 0
        if step.median and flops:
            yield from _one(
                "throughput/tflop_per_s", flops / step.median / 1e3, "Counted FLOPs divided by the median step"
            )
    if run.steps_ns:
        points = tuple((i, ns / 1e6) for i, ns in enumerate(run.steps_ns))
        yield Series(tag="step/time_ms", points=points, doc="Each timed step")
    yield from _ms("step/first", run.first_step_ns, "The first step")
    yield from _ms("step/tuning", run.tuning_ns, "The cost of the search for algorithms in the first step")
    yield from _ms("step/device", run.device_ns, "The work of a step on the device, from traced steps")
    for clock, name in _CLOCKS:
        for timing in run.phases:
            yield from _ms(
                f"phases/{clock}/{timing.phase}", getattr(timing, name), f"{timing.phase}, {clock} time per step"
            )
    for cause, ns in idle_by_cause(run.idle).items():
        yield from _ms(f"idle/{cause.replace(' ', '_')}", ns, f"Idle time of the device per step: {cause}")
    for name, field, doc in _MEMORY:
        yield from _mib(f"memory/{name}", getattr(run, field), doc)
    yield from _one(
        "numerics/max_relative_error", run.max_relative_error, "The largest difference from float64 outputs"
    )
    yield from _one("numerics/l2_relative_error", run.l2_relative_error)


def _static_series(report: Report) -> Iterator[Series]:
    static = report.static
    if static is None:
        return
    for name in ("forward", "loss", "backward", "recompute"):
        cost = getattr(static, name)
        if cost.flops:
            yield from _one(f"work/{name}_gflop", cost.flops / 1e9, f"FLOPs of {name} in one step, counted")
    yield from _one("work/parameters", static.params)
    yield from _mib("work/saved_for_backward", static.saved_bytes)
    if static.memory is not None:
        yield from _mib("work/predicted_peak", static.memory.peak_bytes, "The predicted peak memory of a step")


def _trace_series(trace: TraceSummary) -> Iterator[Series]:
    for name in ("span", "busy", "idle"):
        yield from _ms(f"trace/{name}", getattr(trace, f"{name}_ns"), f"The {name} time of the whole trace")
    yield from _ms("step/median", trace.step_ns, "The median period of the steady steps on the device")
    for name, field in (("time", "device_ns"), ("busy", "busy_ns"), ("idle", "idle_ns"), ("host", "host_ns")):
        values = [(step.number, getattr(step, field)) for step in trace.steps]
        points = tuple((number, ns / 1e6) for number, ns in values if ns is not None)
        if points:
            yield Series(tag=f"step/{name}_ms", points=points, doc=f"Each step of the trace: {name}")
    for timing in trace.phases:
        yield from _ms(f"phases/device/{timing.phase}", timing.kernel_ns, f"{timing.phase}, whole trace")
        yield from _ms(f"phases/host/{timing.phase}", timing.host_ns, f"{timing.phase}, whole trace")
    for cause, ns in idle_by_cause(trace.idle).items():
        yield from _ms(f"idle/{cause.replace(' ', '_')}", ns, f"Idle time of the device: {cause}")
    yield from _mib("memory/peak_allocated", trace.peak_allocated_bytes)
