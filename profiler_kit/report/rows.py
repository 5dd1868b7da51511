"""Join counted and measured figures by path: one row per module or pseudo path.

Figures of a row exclude children, so the rows of a report add up to its totals. Unattributed device time is a row too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

from profiler_kit.errors import UsageError
from profiler_kit.records.counts import PHASES, PSEUDO_PATHS, ZERO, Cost, ModuleNode, Phase, StaticCount
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Floor, Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import sum_fields, sum_known
from profiler_kit.records.traces import TraceModule

Row = TypeVar("Row")

UNATTRIBUTED: Final = "(unattributed)"
TOTAL: Final = "total"


def limit_rows(rows: Sequence[Row], top: int | None, merge_rows: Callable[[str, Sequence[Row]], Row]) -> list[Row]:
    """The first `top` of `rows` (None: all), and the others merged into one row by `merge_rows(label, others)`.

    If only one row is beyond `top`, it keeps its own row, which says more than ``(1 more)``.
    """
    if top is None or len(rows) <= top + 1:
        return list(rows)
    return [*rows[:top], merge_rows(f"({len(rows) - top} more)", rows[top:])]


def check_limits(top: int | None, depth: int | None) -> None:
    """Raises UsageError for a negative `top` or `depth`."""
    for name, number in (("top", top), ("depth", depth)):
        if number is not None and number < 0:
            raise UsageError(f"{name} is {number}, must be 0 or more", hint=f"set {name} to 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Additive counted figures of one module, of several, or of the whole step."""

    params: int = 0
    param_bytes: int = 0
    forward: Cost = ZERO
    loss: Cost = ZERO
    backward: Cost = ZERO
    recompute: Cost = ZERO
    saved_bytes: int = 0

    def __add__(self, other: Counted) -> Counted:
        return sum_fields((self, other), *COUNTED)

    @property
    def step(self) -> Cost:
        """The cost of the whole step: forward + loss + backward + recompute."""
        return self.forward + self.loss + self.backward + self.recompute


COUNTED: Final = tuple(field.name for field in fields(Counted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Additive device time per step by phase, in the order of `PHASES`. `unattributed_ns` has no phase."""

    by_phase_ns: tuple[int, ...] = (0,) * len(PHASES)
    unattributed_ns: int = 0

    def __add__(self, other: Timed) -> Timed:
        pairs = zip(self.by_phase_ns, other.by_phase_ns, strict=True)
        return Timed(
            by_phase_ns=tuple(a + b for a, b in pairs),
            unattributed_ns=self.unattributed_ns + other.unattributed_ns,
        )

    def phase_ns(self, phase: Phase) -> int:
        """Device time per step in `phase`."""
        return self.by_phase_ns[PHASES.index(phase)]

    @property
    def step_ns(self) -> int:
        """Device time of the whole step."""
        return sum(self.by_phase_ns) + self.unattributed_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """A module, a pseudo path such as ``(loss)``, or several of them merged into one row.

    `counted`, `timed`, `predicted`, `floor`: figures excluding children; `counted_total`, `timed_total`, `predicted_total`,
    `floor_total`: including descendants. None is unknown: not counted, no traced run, no forecast. `families`: (kernel
    family, ns), excluding children. `floor`: shortest possible time by the roofline; `math`: the arithmetic whose peak it
    uses. `counted_step`, `timed_step`, `floor_step`: figures of the whole step, for shares. `convention`: name of the
    counting convention. `fvcore_macs`: MACs by fvcore including descendants, of a cross-check. `title`: text that pages
    show instead of the path.
    """

    path: str
    depth: int
    class_name: str | None = None
    config: str | None = None
    calls: int | None = None
    counted: Counted | None = None
    timed: Timed | None = None
    counted_total: Counted | None = None
    timed_total: Timed | None = None
    predicted: Timed | None = None
    predicted_total: Timed | None = None
    output_bytes: int | None = None
    held_bytes: int | None = None
    families: tuple[tuple[str, int], ...] = ()
    counted_step: Counted | None = None
    timed_step: Timed | None = None
    floor_step: Floor | None = None
    convention: str | None = None
    fvcore_macs: int | None = None
    floor: Floor | None = None
    floor_total: Floor | None = None
    math: str | None = None
    title: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The path as pages show it; ``(root)`` for the root module."""
        return self.title if self.title is not None else shown_path(self.path)

    @property
    def family(self) -> str | None:
        """The kernel family with the most time, excluding children; None without kernels."""
        totals: dict[str, int] = {}
        for family, ns in self.families:
            totals[family] = totals.get(family, 0) + ns
        return min(totals, key=lambda family: (-totals[family], family)) if totals else None

    @property
    def is_empty(self) -> bool:
        """Whether the row has no figures excluding children, as a pure container."""
        times = (self.timed, self.predicted)
        return self.counted in (None, Counted()) and not any(time is not None and time.step_ns for time in times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All rows in model order, pseudo paths last; ``rows + unattributed`` add up to `total` exactly."""

    rows: tuple[LayerRow, ...]
    unattributed: LayerRow | None
    total: LayerRow

    @property
    def timed(self) -> bool:
        """Whether there are times from a traced run."""
        return self.total.timed is not None


def run_by_name(report: Report, name: str | None = None) -> ConfigRun | None:
    """The run called `name`, or the baseline if `name` is None; None if no run has samples.

    Raises: UsageError if no run has that name, or the run failed.
    """
    if name is None:
        return report.baseline()
    run = report.run(name)
    if run is None or run.failure is not None:
        failed = run is not None and run.failure is not None
        reason = "the run failed" if failed else "the report has no such configuration"
        names = ", ".join(r.config.name for r in report.runs if r.failure is None)
        hint = f"choose one of: {names}" if names else "measure with analyze: this report has no successful run"
        raise UsageError(f"cannot show {name!r}: {reason}", hint=hint)
    return run


def layer_rows(report: Report, run: ConfigRun | None) -> Layers:
    """`report`'s modules joined with the times of `run` (None: no times) and its roofline."""
    nodes = {node.path: node for node in report.static.modules} if report.static else {}
    timings: dict[str, list[TraceModule]] = {}
    traced = run is not None and run.unattributed_ns is not None
    if run is not None and traced:
        for timing in run.modules:
            timings.setdefault(timing.path, []).append(timing)
    predicted = _predicted(report)
    rows = [
        replace(_row(path, nodes.get(path), timings.get(path, []), traced), predicted=predicted.get(path))
        for path in _paths((*nodes, *timings, *predicted))
    ]
    line = report.roofline_of(run)
    if line is not None:
        rows = _with_floors(rows, line)
    unattributed = None
    if run is not None and run.unattributed_ns:
        unattributed = LayerRow(path=UNATTRIBUTED, depth=0, timed=Timed(unattributed_ns=run.unattributed_ns))
    total = merge(TOTAL, [*rows, unattributed] if unattributed else rows)
    if traced and total.timed is None:  # nothing in the trace is attributed
        total = replace(total, timed=Timed(), timed_total=Timed())
    if report.static is not None and total.counted is None:
        total = replace(total, counted=_counted(report.static), counted_total=_counted(report.static))
    if report.static is not None:
        total = replace(total, held_bytes=report.static.saved_bytes)  # each storage counts once
    convention = report.static.convention_name if report.static is not None else None
    fvcore_macs = _fvcore_macs(report)

    def with_step(row: LayerRow) -> LayerRow:
        return replace(
            row,
            counted_step=total.counted,
            timed_step=total.timed,
            floor_step=total.floor,
            convention=convention,
            fvcore_macs=fvcore_macs.get(row.path, 0) if fvcore_macs and row.calls else None,
        )

    return Layers(
        rows=tuple(with_step(row) for row in _with_totals(rows)),
        unattributed=with_step(unattributed) if unattributed else None,
        total=with_step(total),
    )


def _predicted(report: Report) -> dict[str, Timed]:
    """Predicted kernel time by path; empty without a forecast, and zero for modules without kernels."""
    forecast = report.static.forecast if report.static is not None else None
    if report.static is None or forecast is None:
        return {}
    times = {node.path: Timed() for node in report.static.modules}
    for layer in forecast.modules:
        by_phase = tuple(layer.kernel_ns if phase == layer.phase else 0 for phase in PHASES)
        times[layer.path] = times.get(layer.path, Timed()) + Timed(by_phase_ns=by_phase)
    return times


def _fvcore_macs(report: Report) -> dict[str, int | None]:
    """MACs by fvcore of each module path, descendants included; empty without a cross-check."""
    checks = report.static.cross_checks if report.static is not None else ()
    return {layer.path: layer.peer_macs for check in checks if check.peer == "fvcore" for layer in check.layers}


def fold(rows: Sequence[LayerRow], depth: int) -> tuple[LayerRow, ...]:
    """`rows` with everything below `depth` added to its ancestor at that depth. The sum stays the same."""
    groups: dict[str, list[LayerRow]] = {}
    for row in rows:
        parts = row.path.split(".")
        path = row.path if row.depth <= depth else ".".join(parts[:depth])
        groups.setdefault(path, []).append(row)
    folded = []
    for path, group in groups.items():
        if len(group) == 1 and group[0].path == path:
            folded.append(group[0])
            continue
        merged = merge(path, group)
        if head := next((row for row in group if row.path == path), None):
            module = {name: getattr(head, name) for name in ("class_name", "config", "calls", "output_bytes")}
            merged = replace(merged, **module)
        folded.append(replace(merged, depth=min(depth, path.count(".") + 1 if path else 0)))
    return tuple(folded)


def merge(label: str, rows: Sequence[LayerRow]) -> LayerRow:
    """One row with the sums of `rows`, excluding children. Figures that do not add (output, held bytes) are left out."""
    counted = sum_known(row.counted for row in rows)
    timed = sum_known(row.timed for row in rows)
    floor = sum_known(row.floor for row in rows)
    predicted = sum_known(row.predicted for row in rows)
    return LayerRow(
        path=label,
        predicted=predicted,
        predicted_total=predicted,
        depth=0,
        counted=counted,
        timed=timed,
        counted_total=counted,
        timed_total=timed,
        families=tuple(pair for row in rows for pair in row.families),
        floor=floor,
        floor_total=floor,
        counted_step=rows[0].counted_step if rows else None,
        timed_step=rows[0].timed_step if rows else None,
        floor_step=rows[0].floor_step if rows else None,
    )


def _paths(named: Iterable[str]) -> list[str]:
    """Every path of `named` once, in order: the counted modules come first. The pseudo paths are the last ones."""
    paths = dict.fromkeys(named)
    return [path for path in paths if path not in PSEUDO_PATHS] + [path for path in PSEUDO_PATHS if path in paths]


def _row(path: str, node: ModuleNode | None, timings: Iterable[TraceModule], traced: bool) -> LayerRow:
    by_phase: dict[Phase, int] = dict.fromkeys(PHASES, 0)
    families: list[tuple[str, int]] = []
    for timing in timings:
        by_phase[timing.phase] += timing.kernel_ns
        families += [(kernel.family, kernel.kernel_ns) for kernel in timing.kernels]
    depth = 0 if path == "" or path in PSEUDO_PATHS else path.count(".") + 1
    timed = Timed(by_phase_ns=tuple(by_phase.values())) if traced else None
    row = LayerRow(path=path, depth=depth, timed=timed, families=tuple(families))
    if node is None:
        return row
    row = replace(
        row, config=node.config or None, counted=_counted(node), held_bytes=node.held_bytes, aliases=node.aliases
    )
    if path in PSEUDO_PATHS:
        return row
    return replace(row, class_name=node.class_name, calls=node.calls, output_bytes=node.output_bytes)


def _with_floors(rows: list[LayerRow], line: Roofline) -> list[LayerRow]:
    """`rows` with their floors. `math` is the arithmetic of the phase with the longest floor."""
    floors: dict[str, Floor] = {}
    math: dict[str, tuple[float, str]] = {}
    for bound in line.layers:
        floors[bound.path] = floors.get(bound.path, Floor()) + bound.floor
        if bound.math is not None:
            math[bound.path] = max(math.get(bound.path, (0.0, "")), (bound.floor_ns, bound.math))
    return [replace(row, floor=floors.get(row.path), math=math.get(row.path, (0.0, None))[1]) for row in rows]


def _with_totals(rows: list[LayerRow]) -> list[LayerRow]:
    """`rows` with totals: each row adds its figures to itself and to every ancestor that has a row."""
    inside: dict[str, list[LayerRow]] = {}
    for row in rows:
        for path in (row.path,) if row.path in PSEUDO_PATHS else _ancestry(row.path):
            inside.setdefault(path, []).append(row)
    totals = ((row, merge("", inside[row.path])) for row in rows)
    return [
        replace(
            row,
            counted_total=total.counted,
            timed_total=total.timed,
            predicted_total=total.predicted,
            floor_total=total.floor,
        )
        for row, total in totals
    ]


def _ancestry(path: str) -> list[str]:
    """`path`, its parents, and the root's path."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts), -1, -1)]


def _counted(source: ModuleNode | StaticCount) -> Counted:
    return Counted(**{name: getattr(source, name) for name in COUNTED})
