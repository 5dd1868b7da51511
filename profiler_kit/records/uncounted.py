"""The check behind ``--strict``: every op has a formula."""

from __future__ import annotations

from profiler_kit.errors import UncountedError
from profiler_kit.records.counts import UncountedOp
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.units import plural


def uncounted_text(op: UncountedOp) -> str:
    """An op without a formula, with its calls and modules: ``mylib.blend: 2 calls in encoder.0, (root)``."""
    return f"{op.op}: {plural(op.calls, 'call')} in {', '.join(shown_path(path) for path in op.paths)}"


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
