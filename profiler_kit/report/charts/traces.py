"""The charts of inspected traces."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from profiler_kit.records.document import Chart, ChartData
from profiler_kit.records.families import family_group
from profiler_kit.records.lanes import COLLECTIVES, DEVICE, PHASES, EventSpan, StepRepair, StepTimeline
from profiler_kit.records.paths import parent_path
from profiler_kit.records.ranks import Ranks
from profiler_kit.records.runs import Span
from profiler_kit.records.traces import TraceSummary, idle_by_cause
from profiler_kit.report import trace_tables
from profiler_kit.units import text

# More bars than this are too thin to read; the table has all of them.
MAX_BARS: Final = 64
ALL: Final = "(all work)"
OUTSIDE: Final = "(outside modules)"


def time_chart(trace: TraceSummary) -> Iterator[Chart]:
    """The lines of the table of phases on the host's and the device's clock, and idle time by cause."""
    lines, total = trace_tables.phase_lines(trace)
    idle = {f"idle: {cause}": ns for cause, ns in idle_by_cause(trace.idle).items()}
    rows = ["device", "host"] if any(line.host_ns for line in lines) else ["device"]
    if trace.clock == "host":
        rows = ["operators"]
    if not total.kernel_ns and not idle:
        return
    values: dict[str, list[int]] = {line.label: [line.kernel_ns, line.host_ns or 0] for line in lines}
    values.update({cause: [ns, 0] for cause, ns in idle.items()})
    parts = [{"name": name, "values": pair[: len(rows)]} for name, pair in values.items()]
    yield Chart(
        kind="bars",
        name="phases",
        title="Where the time goes",
        text="The first bar is the whole trace: busy time by phase, then idle time by cause. The second bar is the host's time, "
        "which also contains waiting."
        if len(rows) > 1
        else "Busy time by phase, then idle time by cause.",
        data={"unit": "ns", "rows": rows, "parts": parts},
    )


def module_chart(trace: TraceSummary) -> Iterator[Chart]:
    """The module tree sized by time; nothing without modules below the root."""
    if len({module.path for module in trace.modules}) < 2:
        return
    yield Chart(
        kind="icicle",
        name="icicle",
        title="Module tree",
        text="Each box is a module, as wide as its part of the time, with its children below. Click a module to zoom in.",
        data=ChartData(lambda: _module_data(trace)),
    )


def _module_data(trace: TraceSummary) -> dict[str, Any]:
    own: defaultdict[str, int] = defaultdict(int)
    classes: dict[str, str] = {}
    for module in trace.modules:
        path = module.path or OUTSIDE
        own[path] += module.kernel_ns
        classes[path] = module.class_name
    paths: dict[str, None] = {}
    for path in own:
        ancestors = [path]
        while parent := parent_path(ancestors[-1]):
            ancestors.append(parent)
        paths.update(dict.fromkeys(reversed(ancestors)))
    ordered = sorted(paths, key=lambda path: path.split("."))
    total = dict.fromkeys(ordered, 0)
    for path, ns in own.items():
        while path:
            total[path] += ns
            path = parent_path(path)
    roots = [path for path in ordered if not parent_path(path)]
    names = [ALL, *ordered] if len(roots) > 1 else ordered
    indices = {path: i for i, path in enumerate(names)}
    total_ns = sum(own.values())
    nodes: list[dict[str, Any]] = [
        {
            "name": path.rpartition(".")[2],
            "path": path,
            "type": classes.get(path, ""),
            "parent": indices.get(parent_path(path), 0 if len(roots) > 1 and path != ALL else -1),
            "share": None,
            "time": total.get(path, total_ns),
        }
        for path in names
    ]
    return {"sizes": [{"key": "time", "title": "time", "unit": "ns"}], "nodes": nodes}


def step_chart(trace: TraceSummary) -> Iterator[Chart]:
    """Busy and idle time of each step; nothing for fewer than three steps."""
    steps = [step for step in trace.steps if step.idle_ns is not None][:MAX_BARS]
    if len(steps) < 3:
        return
    yield Chart(
        kind="bars",
        name="steps",
        title="Steps",
        text="Busy and idle time of each step.",
        data={
            "unit": "ns",
            "rows": [f"step {step.number}" for step in steps],
            "parts": [
                {
                    "name": "busy",
                    "values": [step.busy_ns for step in steps],
                },
                {"name": "idle", "values": [step.idle_ns or 0 for step in steps]},
            ],
        },
    )


def rank_chart(ranks: Ranks) -> Iterator[Chart]:
    """A step of each rank, split into computation, exposed communication and idle time."""
    late = {straggler.rank: straggler for straggler in ranks.stragglers}
    first = {rank.rank for rank in ranks.ranks if rank.rank not in late}
    first = set(sorted(first)[: max(0, MAX_BARS - len(late))])
    visible = [rank for rank in ranks.ranks if rank.rank in first or rank.rank in late]
    yield Chart(
        kind="bars",
        name="ranks",
        title="A step of each rank",
        text="Computation, communication that nothing overlaps, and idle time of the mean step. Ranks that the others wait for "
        "are red.",
        data={
            "unit": "ns",
            "rows": [f"rank {rank.rank}" for rank in visible],
            "marks": [
                {"row": i, "text": f"late: the others wait {text(late[rank.rank].cost_ns, 'ns')}"}
                for i, rank in enumerate(visible)
                if rank.rank in late
            ],
            "parts": [
                {"name": "computation", "values": [rank.compute_ns for rank in visible]},
                {"name": "exposed communication", "values": [rank.exposed_ns for rank in visible]},
                {"name": "idle", "values": [rank.idle_ns for rank in visible]},
            ],
        },
    )


def call_chart(timeline: StepTimeline, trace: str = "") -> Iterator[Chart]:
    """The host's time in one step by call; nothing without calls. `trace`: its name, where there are several."""
    if not timeline.calls:
        return
    number = f"step {timeline.step}" if timeline.step is not None else "the trace"
    yield Chart(
        kind="icicle",
        name="calls",
        title=f"Host time by call, {number}{f', {trace}' if trace else ''}",
        text="Each box is a function of the user, an operator or a call of the device's runtime, as wide as its time, with "
        "what it calls below. Calls of one name at one place are one box.",
        data=ChartData(lambda: _call_data(timeline)),
    )


def _call_data(timeline: StepTimeline) -> dict[str, Any]:
    """All threads as one tree."""
    total_ns = sum(call.ns for call in timeline.calls if call.parent < 0)
    nodes: list[dict[str, Any]] = [
        {"name": "(all threads)", "path": "(all threads)", "type": "", "parent": -1, "share": None, "time": total_ns}
    ]
    for call in timeline.calls:
        above = nodes[call.parent + 1]
        path = f"{above['path']} > {call.name}" if call.parent >= 0 else call.name
        nodes.append(
            {"name": call.name, "path": path, "type": "", "parent": call.parent + 1, "share": None, "time": call.ns}
        )
    return {"subject": "calls", "sizes": [{"key": "time", "title": "time", "unit": "ns"}], "nodes": nodes}


class ClockRange(NamedTuple):
    """From the first start to the last end of several timelines, in ns on their common clock."""

    start_ns: int
    end_ns: int


def clock_range(timelines: Iterable[StepTimeline]) -> ClockRange | None:
    """The range of `timelines` on their common clock; None for fewer than two, or if a clock is not known."""
    clocks = [(timeline, timeline.clock_ns) for timeline in timelines]
    starts = [timeline.start_ns - clock for timeline, clock in clocks if clock is not None]
    ends = [timeline.end_ns - clock for timeline, clock in clocks if clock is not None]
    return ClockRange(min(starts), max(ends)) if len(clocks) > 1 and len(starts) == len(clocks) else None


def ranks_chart(timelines: Mapping[str, StepTimeline]) -> Iterator[Chart]:
    """The step of each rank, by the name of the rank, under each other; nothing without a common clock and collectives."""
    shared = clock_range(timelines.values())
    if shared is None or not all(timeline.collectives for timeline in timelines.values()):
        return
    yield Chart(
        kind="timeline",
        name="ranks_timeline",
        title="The ranks on one clock",
        text="The phases of host and device and the collectives of each rank. A line joins the starts of one collective on all "
        "ranks, with an arrow at the last one, which the others wait for. The bands are the step; work of other steps is pale.",
        data=ChartData(lambda: _ranks_data(timelines, shared)),
    )


def _ranks_data(timelines: Mapping[str, StepTimeline], shared: ClockRange) -> dict[str, Any]:
    spans: list[Span] = []
    lanes: list[str] = []
    bands: list[list[int]] = []
    starts: list[list[list[int]]] = []
    for rank, timeline in timelines.items():
        clock_ns = shared.start_ns + (timeline.clock_ns or 0)
        host, device, collectives = (f"{rank}: {name}" for name in ("host", "device", "collectives"))
        for span in timeline.spans:
            is_device = span.lane.startswith(DEVICE)
            if span.lane.endswith(PHASES) or (is_device and span.lane.endswith(COLLECTIVES)):
                lane = collectives if span.lane.endswith(COLLECTIVES) else device if is_device else host
                start_ns, end_ns = max(span.start_ns, timeline.start_ns), min(span.end_ns, timeline.end_ns)
                step = int(timeline.is_of_another_step(span))
                spans.append(
                    replace(span, lane=lane, start_ns=start_ns - clock_ns, end_ns=end_ns - clock_ns, step=step)
                )
        bands += (
            [len(lanes) + first, len(lanes) + last, start_ns - clock_ns, end_ns - clock_ns]
            for first, last, (start_ns, end_ns) in (
                (0, 0, (timeline.start_ns, timeline.host_end_ns)),
                (1, 2, timeline.device_ns or (timeline.start_ns, timeline.end_ns)),
            )
        )
        starts.append([[len(lanes) + 2, start_ns - clock_ns] for start_ns in timeline.collectives])
        lanes += (host, device, collectives)
    job = StepTimeline(
        step=None, index=0, start_ns=0, end_ns=shared.end_ns - shared.start_ns, host_end_ns=0, spans=tuple(spans)
    )
    data = {**_timeline_data(job, lanes), "bands": bands, "links": list(zip(*starts, strict=True))}
    return {**data, "shared_ns": [0, job.end_ns], "clock": "traces"}


def timeline_chart(timeline: StepTimeline, trace: str = "", shared: ClockRange | None = None) -> Iterator[Chart]:
    """The lanes of one step over time. `trace`: its name, where there are several. `shared`: the range that all of these show."""
    number = f"step {timeline.step}" if timeline.step is not None else "the trace"
    lag = _device_lag(timeline)
    pale = " Work of other steps is pale." if any(map(timeline.is_of_another_step, timeline.spans)) else ""
    omitted = f" {timeline.omitted:,} shorter boxes are left out." if timeline.omitted else ""
    yield Chart(
        kind="timeline",
        name="timeline",
        title=f"Timeline of {number}{f', {trace}' if trace else ''}",
        text=f"What host and device do over time.{lag}{pale} Drag to move; turn the wheel with Ctrl pressed to zoom; "
        "drag with Shift pressed to measure. Click a box to see its operator, module, launch and line; the keys N "
        "and P go to the next and the previous one, J and K to another lane."
        f"{' The timelines are on one clock and show the same time.' if shared else ''}{omitted}",
        data=ChartData(lambda: {**_timeline_data(timeline), **_shared_range(timeline, shared)}),
    )


def _device_lag(timeline: StepTimeline) -> str:
    """What the bands of a timeline are, where the device works on the step after the host; else empty."""
    if timeline.device_ns is None or timeline.host_end_ns >= timeline.end_ns:
        return ""
    start_ns, end_ns = timeline.device_ns
    host = text(timeline.host_end_ns - timeline.start_ns, "ns")
    return (
        f" The bands are the step: {host} on the host, and {text(end_ns - start_ns, 'ns')} on the device, which begins "
        f"{text(start_ns - timeline.start_ns, 'ns')} later."
    )


def repair_charts(timeline: StepTimeline, trace: str = "") -> Iterator[Chart]:
    """The steps before and after the main finding is repaired, from the replay; nothing without one. `trace`: as above."""
    repair = timeline.repair
    if repair is None:
        return
    steps = "a step" if repair.steps == 1 else f"{repair.steps} steps"
    of_trace = f" of {trace}" if trace else ""
    saved = f"{100.0 * (1.0 - repair.after_ns / repair.before_ns):.1f} % less"
    yield _repair_chart(
        "before", f"Now: {text(repair.before_ns, 'ns')} for {steps}{of_trace}", repair.before, repair, repair.before_ns,
        "The replay of the trace, without the time of the profiler. Boxes are phases; where the host has none, it waits, and "
        "where the device has none, it is idle.",
    )  # fmt: skip
    yield _repair_chart(
        "after", f"Finding {repair.finding} repaired: {text(repair.after_ns, 'ns')}, {saved}", repair.after, repair,
        repair.after_ns, "The same replay without what the finding claims, on the same axis.",
    )  # fmt: skip


def _repair_chart(
    name: str, title: str, spans: tuple[Span, ...], repair: StepRepair, steps_ns: int, caption: str
) -> Chart:
    end_ns = max(repair.before_ns, repair.after_ns)
    steps = StepTimeline(
        step=None, start_ns=0, end_ns=end_ns, host_end_ns=steps_ns, device_ns=(0, steps_ns), spans=spans
    )
    lanes = list(dict.fromkeys(span.lane for span in repair.before))
    shared = {"shared_ns": [0, end_ns], "clock": "replay"}
    data = ChartData(lambda: {**_timeline_data(steps, lanes), **shared})
    return Chart(kind="timeline", name=name, title=title, text=caption, data=data)


def _shared_range(timeline: StepTimeline, shared: ClockRange | None) -> dict[str, Any]:
    """The range that several timelines show, in ns from the start of this one."""
    if shared is None or timeline.clock_ns is None:
        return {}
    start_ns = timeline.start_ns - timeline.clock_ns
    return {"shared_ns": [shared.start_ns - start_ns, shared.end_ns - start_ns], "clock": "traces"}


def _timeline_data(timeline: StepTimeline, lanes: Sequence[str] = ()) -> dict[str, Any]:
    """`lanes`: their names, if some may have no boxes."""
    lanes = list(lanes or dict.fromkeys(span.lane for span in timeline.spans))
    lane_numbers = {lane: i for i, lane in enumerate(lanes)}
    names: dict[tuple[str, str | None], int] = {}
    facts: dict[tuple[str, ...], int] = {}
    boxes = [
        [
            lane_numbers[span.lane],
            max(0, span.start_ns - timeline.start_ns),
            min(span.end_ns, timeline.end_ns) - timeline.start_ns,
            names.setdefault((span.name, _color_key(span)), len(names)),
            int(timeline.is_of_another_step(span)),
            *(_event_facts(span, facts, timeline.start_ns) if isinstance(span, EventSpan) else ()),
        ]
        for span in timeline.spans
    ]
    return {
        "lanes": lanes,
        "names": [name for name, _ in names],
        "families": [family for _, family in names],
        "facts": [list(values) for values in facts],
        "boxes": boxes,
        "bands": _bands(timeline, lanes),
    }


def _bands(timeline: StepTimeline, lanes: Sequence[str]) -> list[list[int]]:
    """The step on the lanes of the host and on those of the device: the first and the last lane, start and end in ns."""
    ranges = {False: (timeline.start_ns, timeline.host_end_ns), True: timeline.device_ns}
    bands = []
    for is_device, group in itertools.groupby(range(len(lanes)), lambda lane: lanes[lane].startswith(DEVICE)):
        numbers, times = list(group), ranges[is_device]
        if times is not None:
            bands.append([numbers[0], numbers[-1], *(max(0, time - timeline.start_ns) for time in times)])
    return bands


def _event_facts(span: EventSpan, facts: dict[tuple[str, ...], int], start_ns: int) -> tuple[int | None, ...]:
    """The index of what is known about the event in `facts`, and the start of its launch in the step."""
    values = (span.operator, span.module, span.source, span.launch)
    launch = (span.launch_ns - start_ns,) if span.launch_ns is not None else ()
    return (facts.setdefault(values, len(facts)), *launch)


def _color_key(span: Span) -> str | None:
    """The name under which charts color a span: a phase as it is, ``idle: cause``, ``work: group``."""
    if span.kind == "phase" or span.family is None:
        return span.family
    return f"{span.kind}: {family_group(span.family) if span.kind == 'work' else span.family}"
