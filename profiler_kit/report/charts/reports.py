"""The charts of a report of `analyze` or `count`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from profiler_kit.records.counts import PSEUDO_PATHS, MemoryCategories, MemoryLine, MemoryPoint, ModuleMemory
from profiler_kit.records.document import Chart, ChartData
from profiler_kit.records.paths import parent_path, shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.report.columns.memory import MemoryRow
from profiler_kit.report.columns.runs import NEVER, RunRow, break_even, marked_ratio, outcome_of
from profiler_kit.report.rows import LayerRow, Layers
from profiler_kit.report.tables import run_rows
from profiler_kit.units import text

MAX_LAYERS: Final = 12
CLOCKS: Final = (("stopwatch", "stopwatch_ns"), ("CUDA events", "event_ns"), ("device", "kernel_ns"))


def phase_chart(run: ConfigRun) -> Iterator[Chart]:
    """The phases of a step under each clock; nothing without times."""
    clocks = [
        ("operators" if title == "device" and run.clock == "operator" else title, name)
        for title, name in CLOCKS
        if any(getattr(timing, name) for timing in run.phases)
    ]
    if clocks:
        yield Chart(
            kind="bars",
            name="phases",
            title="A step under each clock",
            text="Each bar is one step, split into phases. The stopwatch also counts where the host waits; the device time is "
            "that of the work itself.",
            data={
                "unit": "ns",
                "rows": [title for title, _ in clocks],
                "parts": [
                    {"name": timing.phase, "values": [getattr(timing, name) or 0 for _, name in clocks]}
                    for timing in run.phases
                ],
            },
        )


def configuration_chart(report: Report) -> Iterator[Chart]:
    """The median step of each configuration with its interval; nothing for a single run."""
    runs = [run for run in report.runs if run.step_ns is not None]
    baseline = report.baseline()
    if len(runs) > 1 and baseline is not None:
        yield Chart(
            kind="intervals",
            name="configurations",
            title="Configurations",
            text="Each dot is the step of a configuration, as in the table, and the line its 95 % confidence interval. "
            "Over all processes, blue ones are faster than the baseline and orange ones slower; for gray ones no difference "
            "is established.",
            data={
                "unit": "ns",
                "baseline": baseline.config.name,
                "rows": [
                    {
                        "name": run.config.name,
                        "value": step.median,
                        "low": step.low,
                        "high": step.high,
                        "outcome": outcome_of(row),
                        "ratio": marked_ratio(row),
                        "note": _search_note(row),
                    }
                    for row in run_rows(report)
                    if (run := row.run).step_ns is not None and (step := row.noise.compared_step(run)) is not None
                ],
            },
        )


def _search_note(row: RunRow) -> str:
    """The cost of the algorithm search and the number of steps that repay it; empty without a search."""
    if row.run.tuning_ns is None:
        return ""
    steps = break_even(row)
    outcome = "" if steps is None else ", never pays off" if steps == NEVER else f", pays off after {steps:,} steps"
    return f"search {text(row.run.tuning_ns, 'ns')}{outcome}"


def module_chart(layers: Layers) -> Iterator[Chart]:
    """The module tree, sized by time, FLOPs, memory or parameters; nothing for a model without submodules."""
    rows = [row for row in layers.rows if row.path not in PSEUDO_PATHS]
    if len(rows) < 2:
        return
    yield Chart(
        kind="icicle",
        name="icicle",
        title="Module tree",
        text="Each box is a module, as wide as its part of the whole, with its children below. Click a module to zoom in.",
        data=ChartData(lambda: _module_data(rows)),
    )


def _module_data(rows: Sequence[LayerRow]) -> dict[str, Any]:
    sizes = [size for size in _SIZES if any(_size(row, size[0]) for row in rows)]
    indices = {row.path: i for i, row in enumerate(rows)}
    return {
        "sizes": [{"key": key, "title": title, "unit": unit} for key, title, unit in sizes],
        "nodes": [_node(row, indices, sizes) for row in rows],
    }


_SIZES: Final = (
    ("time", "time", "ns"),
    ("predicted", "predicted time", "ns"),
    ("flops", "FLOPs", "flops"),
    ("memory", "saved for backward", "bytes"),
    ("params", "parameters", "count"),
)


def _size(row: LayerRow, key: str) -> int:
    if key in ("time", "predicted"):
        timed = row.timed_total if key == "time" else row.predicted_total
        return timed.step_ns if timed is not None else 0
    counted = row.counted_total
    if counted is None:
        return 0
    return {"flops": counted.step.flops, "memory": counted.saved_bytes, "params": counted.params}[key]


def _node(row: LayerRow, indices: dict[str, int], sizes: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    parent = parent_path(row.path)
    while parent and parent not in indices:
        parent = parent_path(parent)
    floor = row.floor_total
    share = 100.0 * floor.timed_ns / floor.time_ns if floor is not None and floor.time_ns else None
    return {
        "name": row.path.rpartition(".")[2] or shown_path(row.path),
        "path": shown_path(row.path),
        "type": " ".join(part for part in (row.class_name, row.config) if part),
        "parent": indices.get(parent, -1) if row.path else -1,
        "share": share,
        **{key: _size(row, key) for key, _, _ in sizes},
    }


def roofline_chart(report: Report, lines: Sequence[Roofline]) -> Iterator[Chart]:
    """The layers of a run under the roofs of its device; nothing without times or traffic."""
    static = report.static
    if static is None or not lines:
        return
    nodes = {node.path: node for node in static.modules}
    points = []
    for bound in lines[0].layers:
        node = nodes.get(bound.path)
        cost = node.cost(bound.phase) if node is not None else None
        if cost is None or not bound.time_ns or not cost.flops or not cost.read_bytes + cost.write_bytes:
            continue
        points.append(
            {
                "name": shown_path(bound.path),
                "phase": bound.phase,
                "intensity": cost.flops / (cost.read_bytes + cost.write_bytes),
                "rate": 1e9 * cost.flops / bound.time_ns,
                "ns": bound.time_ns,
            }
        )
    if points:
        yield Chart(
            kind="roofline",
            name="roofline",
            title="Roofline",
            text="Each dot is a layer in one phase, as large as its time. The lines are the most that the device reaches: memory "
            "bandwidth limits on the left, arithmetic on the right. A dot far below the lines has room to become faster.",
            data={
                "points": points,
                "roofs": [
                    {
                        "name": f"{line.roof.hardware} ({line.roof.source})",
                        "bandwidth": line.roof.bandwidth_bytes_per_s,
                        "peaks": [{"name": peak.math, "rate": peak.flops_per_s} for peak in line.roof.peaks],
                    }
                    for line in lines
                ],
            },
        )


def peak_chart(rows: Sequence[MemoryRow]) -> Iterator[Chart]:
    """The peak memory by category, one bar per prediction or measurement."""
    names = [field.name for field in fields(MemoryCategories)]
    parts = [
        {"name": name.replace("_", " "), "values": [getattr(row.parts, name) or 0 for row in rows]} for name in names
    ]
    yield Chart(
        kind="bars",
        name="memory",
        title="Peak memory",
        text="Each bar is the peak of a step, split by what the memory holds.",
        data={
            "unit": "bytes",
            "rows": [row.source for row in rows],
            "parts": [part for part in parts if any(part["values"])],
        },
    )


def memory_charts(
    points: Sequence[MemoryPoint], by_category: Sequence[MemoryLine] = (), by_module: Sequence[MemoryLine] = ()
) -> Iterator[Chart]:
    """The predicted memory of tensors over one step, by category and by module, where these are known."""
    total = MemoryLine(name="predicted", bytes=tuple(point.bytes for point in points))
    categories = [replace(line, name=line.name.replace("_", " ")) for line in by_category]
    yield Chart(
        kind="lines",
        name="memory_timeline",
        title="Memory over a step",
        text="The predicted memory of all tensors, from the start of forward to the end of the optimizer, by what they are for. "
        "The colors above are phases.",
        data=_stacked(points, categories or [total]),
    )
    if len(by_module) > 1:
        parts = zip(total.bytes, *(line.bytes for line in by_module), strict=True)
        rest = MemoryLine(name="other modules", bytes=tuple(whole - sum(known) for whole, *known in parts))
        modules = [replace(line, name=shown_path(line.name)) for line in by_module]
        yield Chart(
            kind="lines",
            name="memory_modules",
            title="Memory over a step by module",
            text="The same memory by the module whose operators allocated it. Parameters and inputs are those of the root.",
            data=_stacked(points, [*modules, *([rest] if any(rest.bytes) else [])]),
        )


def _stacked(points: Sequence[MemoryPoint], lines: Sequence[MemoryLine]) -> dict[str, Any]:
    return {
        "unit": "bytes",
        "bands": _phase_bands(points),
        "points": [point.at for point in points],
        "lines": [{"name": line.name, "values": list(line.bytes)} for line in lines],
    }


def _phase_bands(points: Sequence[MemoryPoint]) -> list[dict[str, Any]]:
    """The phases of consecutive points, each up to the point after its last one. A point begins with its phase."""
    bands: list[dict[str, Any]] = []
    for number, point in enumerate(points):
        phase = point.at.split()[0]
        if not bands or bands[-1]["name"] != phase:
            bands.append({"name": phase, "start": number, "end": number})
        bands[-1]["end"] = number + 1
    return bands


def saved_chart(modules: Sequence[ModuleMemory]) -> Iterator[Chart]:
    """The layers whose tensors take most memory until backward."""
    largest = [module for module in modules if module.created_bytes][:MAX_LAYERS]
    if len(largest) > 1:
        yield Chart(
            kind="bars",
            name="saved",
            title="Saved for backward by layer",
            text="The layers that keep most memory from forward to backward. Checkpointing frees it at the price of a second "
            "forward pass.",
            data={
                "unit": "bytes",
                "rows": [shown_path(module.path) for module in largest],
                "parts": [{"name": "saved for backward", "values": [module.created_bytes for module in largest]}],
            },
        )
