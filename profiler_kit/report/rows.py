"""Joins what was counted with what was measured, by path: one row per owner of work.

A row's own figures are self values, so the rows of a report add up to its totals; device time without an owner is a row too.
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
from profiler_kit.records.runs import ConfigRun, LayerTiming
from profiler_kit.records.sums import added, sum_known

Row = TypeVar("Row")

UNATTRIBUTED: Final = "(unattributed)"
TOTAL: Final = "total"


def topped(rows: Sequence[Row], top: int | None, together: Callable[[str, Sequence[Row]], Row]) -> list[Row]:
    """The first `top` of `rows` (None: all), the others in one that `together` makes of its name and of them.

    A single one more keeps its own row, which says more than ``(1 more)``.
    """
    if top is None or len(rows) <= top + 1:
        return list(rows)
    return [*rows[:top], together(f"({len(rows) - top} more)", rows[top:])]


def check_limits(top: int | None, depth: int | None) -> None:
    """Raises UsageError for a negative `top` or `depth`."""
    for name, number in (("top", top), ("depth", depth)):
        if number is not None and number < 0:
            raise UsageError(f"{name} is {number}", hint=f"give a {name} of 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Static figures that add: of one module, of several, or of the whole step."""

    params: int = 0
    param_bytes: int = 0
    forward: Cost = ZERO
    loss: Cost = ZERO
    backward: Cost = ZERO
    recompute: Cost = ZERO
    saved_bytes: int = 0

    def __add__(self, other: Counted) -> Counted:
        return added((self, other), *COUNTED)

    @property
    def step(self) -> Cost:
        """The cost of the whole step: forward + loss + backward + recompute."""
        return self.forward + self.loss + self.backward + self.recompute


COUNTED: Final = tuple(field.name for field in fields(Counted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Device time per step by phase, in the order of `PHASES`; adds. `unattributed_ns` belongs to no phase's owner."""

    by_phase_ns: tuple[int, ...] = (0,) * len(PHASES)
    unattributed_ns: int = 0

    def __add__(self, other: Timed) -> Timed:
        pairs = zip(self.by_phase_ns, other.by_phase_ns, strict=True)
        return Timed(
            by_phase_ns=tuple(a + b for a, b in pairs),
            unattributed_ns=self.unattributed_ns + other.unattributed_ns,
        )

    def phase_ns(self, phase: Phase) -> int:
        """Time in `phase`."""
        return self.by_phase_ns[PHASES.index(phase)]

    @property
    def step_ns(self) -> int:
        """Time over the whole step."""
        return sum(self.by_phase_ns) + self.unattributed_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One owner: a module, a pseudo path such as ``(loss)``, or several folded into one row.

    `counted`, `timed`: its own (self) figures; `counted_total`, `timed_total`: with its descendants'. None is unknown: not
    counted, or no traced run. `families`: (kernel family, ns) of its own kernels. `floor`: the least time under the roof,
    `math` the arithmetic that its contractions are held against. `whole_*`: the step's figures, which shares are taken of;
    `convention`: what they count by. `peers`: (other counter, MACs that it says, descendants' included), of a cross-check.
    `title`: what people are shown instead of the path.
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
    output_bytes: int | None = None
    held_bytes: int | None = None
    families: tuple[tuple[str, int], ...] = ()
    whole_counted: Counted | None = None
    whole_timed: Timed | None = None
    whole_floor: Floor | None = None
    convention: str | None = None
    peers: tuple[tuple[str, int], ...] = ()
    floor: Floor | None = None
    floor_total: Floor | None = None
    math: str | None = None
    title: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The path as people are shown it; the root module's is ``(root)``."""
        return self.title if self.title is not None else shown_path(self.path)

    @property
    def family(self) -> str | None:
        """The kernel family that takes most of its own time; None without kernels."""
        totals: dict[str, int] = {}
        for family, ns in self.families:
            totals[family] = totals.get(family, 0) + ns
        return min(totals, key=lambda family: (-totals[family], family)) if totals else None

    @property
    def is_empty(self) -> bool:
        """Whether it has no figure of its own, as a mere container has not."""
        return self.counted in (None, Counted()) and (self.timed is None or self.timed.step_ns == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All rows in model order, pseudo paths last; ``rows + unattributed`` add up to `total`, exactly."""

    rows: tuple[LayerRow, ...]
    unattributed: LayerRow | None
    total: LayerRow

    @property
    def timed(self) -> bool:
        """Whether a traced run gave times."""
        return self.total.timed is not None


def chosen_run(report: Report, name: str | None = None) -> ConfigRun | None:
    """The run whose figures are shown: the one called `name`, or the baseline; None when no run has samples.

    Raises UsageError when there is no run of that name, or it failed.
    """
    if name is None:
        return report.baseline()
    run = report.run(name)
    if run is None or run.failure is not None:
        failed = run is not None and run.failure is not None
        reason = "its run failed" if failed else "no such configuration in this report"
        names = ", ".join(r.config.name for r in report.runs if r.failure is None) or "none has samples"
        raise UsageError(f"cannot show {name!r}: {reason}", hint=f"pick one of: {names}")
    return run


def layer_rows(report: Report, run: ConfigRun | None) -> Layers:
    """`report`'s modules joined with the times of `run` (None: no times) and its roofline, one row per owner."""
    nodes = {node.path: node for node in report.static.modules} if report.static else {}
    timings: dict[str, list[LayerTiming]] = {}
    traced = run is not None and run.unattributed_ns is not None
    if run is not None and traced:
        for timing in run.modules:
            timings.setdefault(timing.path, []).append(timing)
    rows = [_row(path, nodes.get(path), timings.get(path, []), traced) for path in _paths(nodes, timings)]
    line = report.roofline_of(run)
    if line is not None:
        rows = _under_roof(rows, line)
    unattributed = None
    if run is not None and run.unattributed_ns:
        unattributed = LayerRow(path=UNATTRIBUTED, depth=0, timed=Timed(unattributed_ns=run.unattributed_ns))
    total = merge(TOTAL, [*rows, unattributed] if unattributed else rows)
    if traced and total.timed is None:  # a trace without any owner at all
        total = replace(total, timed=Timed(), timed_total=Timed())
    if report.static is not None and total.counted is None:
        total = replace(total, counted=_counted(report.static), counted_total=_counted(report.static))
    if report.static is not None:
        total = replace(total, held_bytes=report.static.saved_bytes)  # every storage once
    convention = report.static.convention_name if report.static is not None else None
    peers = _peers(report)

    def placed(row: LayerRow) -> LayerRow:
        said = tuple((name, macs.get(row.path, 0)) for name, macs in peers.items()) if row.calls else ()
        return replace(
            row,
            whole_counted=total.counted,
            whole_timed=total.timed,
            whole_floor=total.floor,
            convention=convention,
            peers=said,
        )

    return Layers(
        rows=tuple(placed(row) for row in _with_totals(rows)),
        unattributed=placed(unattributed) if unattributed else None,
        total=placed(total),
    )


def _peers(report: Report) -> dict[str, dict[str, int]]:
    """By the name of each peer that ran, what it says of the modules for which somebody counts something."""
    checks = report.static.cross_checks if report.static is not None else ()
    ran = (check for check in checks if check.peer_macs is not None)
    return {check.peer: {layer.path: layer.peer_macs or 0 for layer in check.layers} for check in ran}


def fold(rows: Sequence[LayerRow], depth: int) -> tuple[LayerRow, ...]:
    """`rows` with everything below `depth` added into its ancestor at that depth, so that the sum stays the same."""
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
            own = {name: getattr(head, name) for name in ("class_name", "config", "calls", "output_bytes")}
            merged = replace(merged, **own)
        folded.append(replace(merged, depth=min(depth, path.count(".") + 1 if path else 0)))
    return tuple(folded)


def merge(label: str, rows: Sequence[LayerRow]) -> LayerRow:
    """One row with the sum of the own figures of `rows`; figures that don't add (output, held bytes) are left out."""
    counted = sum_known(row.counted for row in rows)
    timed = sum_known(row.timed for row in rows)
    floor = sum_known(row.floor for row in rows)
    return LayerRow(
        path=label,
        depth=0,
        counted=counted,
        timed=timed,
        counted_total=counted,
        timed_total=timed,
        families=tuple(pair for row in rows for pair in row.families),
        floor=floor,
        floor_total=floor,
        whole_counted=rows[0].whole_counted if rows else None,
        whole_timed=rows[0].whole_timed if rows else None,
        whole_floor=rows[0].whole_floor if rows else None,
    )


def _paths(nodes: dict[str, ModuleNode], timings: dict[str, list[LayerTiming]]) -> list[str]:
    """Every owner once: counted modules in their order, modules known from times alone, then the pseudo paths."""
    both = dict.fromkeys([*nodes, *timings])
    return [path for path in both if path not in PSEUDO_PATHS] + [path for path in PSEUDO_PATHS if path in both]


def _row(path: str, node: ModuleNode | None, timings: Iterable[LayerTiming], traced: bool) -> LayerRow:
    by_phase = dict.fromkeys(PHASES, 0)
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


def _under_roof(rows: list[LayerRow], line: Roofline) -> list[LayerRow]:
    """`rows` with their floors; the arithmetic is that of the phase whose contractions need most time."""
    floors: dict[str, Floor] = {}
    maths: dict[str, tuple[float, str]] = {}
    for bound in line.layers:
        floors[bound.path] = floors.get(bound.path, Floor()) + bound.floor
        if bound.math is not None:
            maths[bound.path] = max(maths.get(bound.path, (0.0, "")), (bound.floor_ns, bound.math))
    return [replace(row, floor=floors.get(row.path), math=maths.get(row.path, (0.0, None))[1]) for row in rows]


def _with_totals(rows: list[LayerRow]) -> list[LayerRow]:
    """`rows` with their totals: each adds its own figures to itself and to every ancestor that has a row."""
    inside: dict[str, list[LayerRow]] = {}
    for row in rows:
        for path in (row.path,) if row.path in PSEUDO_PATHS else _ancestry(row.path):
            inside.setdefault(path, []).append(row)
    totals = ((row, merge("", inside[row.path])) for row in rows)
    return [
        replace(row, counted_total=total.counted, timed_total=total.timed, floor_total=total.floor)
        for row, total in totals
    ]


def _ancestry(path: str) -> list[str]:
    """`path`, its parents, and the root."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts), -1, -1)]


def _counted(of: ModuleNode | StaticCount) -> Counted:
    return Counted(**{name: getattr(of, name) for name in COUNTED})
