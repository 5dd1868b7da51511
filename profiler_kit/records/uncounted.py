"""Work that a count does not know: the check behind ``--strict``, and whether such work is comparable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profiler_kit.errors import UncountedError
from profiler_kit.records.counts import CountBound, StaticCount, UncountedOp
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.units import plural

MAX_NAMED: Final = 3
BOUNDS: Final = {"upper": "an upper bound", "lower": "a lower bound", "drawn": "one case of many"}
NEGLIGIBLE: Final = 0.01  # of a step's MACs: less unknown work does not change a comparison


def uncounted_text(op: UncountedOp) -> str:
    """An op without a formula, with its calls and modules: ``mylib.blend: 2 calls in encoder.0, (root)``."""
    return f"{op.op}: {plural(op.calls, 'call')} in {', '.join(shown_path(path) for path in op.paths)}"


def unknown_work(static: StaticCount) -> tuple[UncountedOp, ...]:
    """The ops without a formula that may have a noticeable part of the step's MACs."""
    limit = NEGLIGIBLE * static.step.macs
    possible = [op.possible_macs for op in static.uncounted]
    if None not in possible and sum(macs or 0 for macs in possible) <= limit:
        return ()
    return tuple(op for op in static.uncounted if op.possible_macs is None or op.possible_macs > limit / len(possible))


def reason_of_lower_bound(static: StaticCount) -> str:
    """Why the work can be more than counted; empty if it cannot."""
    ops = unknown_work(static)
    if ops:
        return f"ops without a formula can be most of the work: {_names(op.op for op in ops)}"
    bound = next((bound for bound in static.bounds if bound.kind == "lower"), None)
    return "" if bound is None else f"the work is a lower bound: {bound_text(bound)}"


def reason_of_unknown_work(a: StaticCount, b: StaticCount) -> str:
    """Why the work of the two counts does not compare: unknown work that is not the same on both sides. Empty if it is."""
    unknown = [{op.op: (op.calls, op.possible_macs) for op in unknown_work(static)} for static in (a, b)]
    if unknown[0] != unknown[1]:
        ops = [op for op in {**unknown[0], **unknown[1]} if unknown[0].get(op) != unknown[1].get(op)]
        return f"ops without a formula can be most of the work, and differ between the sides: {_names(ops)}"
    bounds = [{(bound.op, bound.kind): bound for bound in static.bounds} for static in (a, b)]
    if bounds[0].keys() != bounds[1].keys():
        place = next(iter(bounds[0].keys() ^ bounds[1].keys()))
        return f"only one side's work is a bound: {bound_text((bounds[0] | bounds[1])[place])}"
    return ""


def bound_text(bound: CountBound) -> str:
    """A bound with its place: ``higher_order.cond (model.py:12): the predicate is unknown``."""
    return f"{bound.op}{f' ({bound.where})' if bound.where else ''}: {bound.reason}"


def _names(ops: Iterable[str]) -> str:
    names = list(ops)
    return ", ".join(names[:MAX_NAMED]) + (" and others" if len(names) > MAX_NAMED else "")


def require_counted(report: Report) -> None:
    """Raise UncountedError if an op has no formula. The error lists every such op with its calls and paths."""
    ops = report.static.uncounted if report.static is not None else ()
    if not ops:
        return
    calls = sum(op.calls for op in ops)
    headline = plural(calls, "op call has", "op calls have")
    raise UncountedError(
        "\n  ".join((f"{headline} no formula:", *map(uncounted_text, ops))),
        where=report.target.spec,
        hint=register_hint(ops[0].op),
    )


def register_hint(op: str) -> str:
    """How to register a formula for `op`."""
    return (
        f'register one with @profiler_kit.register_formula("{op}"), in the target\'s file or in a package with '
        "the entry point profiler_kit.formulas; see docs/counting.md, Your own ops"
    )
