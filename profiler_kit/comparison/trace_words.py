"""What differs between two traces, in sentences: the span, whether the work is the same, what is waited for, and what moved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, plural, signed, text

TOLD: Final = 3  # changes named in one sentence; the tables have all
WORTH: Final = 0.1  # of the largest change of its kind: smaller ones are left to the table
NAME: Final = 60  # characters: a kernel's name may have a thousand
WORTH_SPAN: Final = 0.005  # of the span: changes below it are not worth a sentence of their own


def sentences(compared: TraceComparison) -> tuple[str, ...]:
    """The result, what matters most first."""
    told = [_span(compared), _work(compared), _idle(compared)]
    if not compared.same_work:
        told += [
            _moved("By module", compared.modules, compared),
            _moved("By operator", compared.operators, compared),
            _moved("By kernel", compared.kernels, compared),
        ]
    return tuple(sentence for sentence in told if sentence)


def notes(compared: TraceComparison, a: TraceSummary, b: TraceSummary) -> tuple[str, ...]:
    """What limits the comparison."""
    each = "one trace" if compared.a.ranks == 1 else "one run"
    told = [
        f"Each side is {each}, a single sample: another run of the same program may differ by more than its steps do."
    ]
    if compared.per == "step":
        told.append(
            f"{plural(compared.a.steps, 'step')} in {compared.a.label}, {compared.b.steps} in {compared.b.label}: "
            "figures are per step, whole traces over their steps, rounded to whole ns."
        )
    elif not compared.a.steps or not compared.b.steps:
        without = [side.label for side in (compared.a, compared.b) if not side.steps]
        told.append(
            f"No marked steps in {' and '.join(without)}: whole traces are compared, which may hold different amounts of work."
        )
    told.append(_noise(compared))
    if compared.a.device and compared.b.device and compared.a.device != compared.b.device:
        told.append(
            f"The devices differ: {compared.a.device} and {compared.b.device}. Kernels with other names were set against each "
            "other by what they do."
        )
    for title, rows in (("operators", compared.operators), ("kernels", compared.kernels)):
        alike = sum(row.alike == "alike" for row in rows)
        if alike:
            told.append(
                f"Rows of {title} with names that differ but do the same: {alike}. Both names stand in JSON and CSV."
            )
    for one in (a, b):
        if one.has_modules != (a.has_modules and b.has_modules):
            told.append(f"Only {PurePath(one.file).name} has module calls, so modules are not compared.")
        if one.unattributed_ns > WORTH_SPAN * one.busy_ns:
            told.append(
                f"{text(one.unattributed_ns, 'ns')} of work in {PurePath(one.file).name} has no phase; it stands as (no phase)."
            )
    return tuple(dict.fromkeys(told))


def _noise(compared: TraceComparison) -> str:
    """Where the share that is taken for noise comes from."""
    sides = (compared.a, compared.b)
    spreads = [side.spread for side in sides if side.spread is not None]
    noise = percent(compared.noise, 2)
    if len(spreads) < len(sides):
        few = " and ".join(side.label for side in sides if side.spread is None)
        return (
            f"Fewer than three steady steps in {few}, too few to tell how far steps differ: {noise} is taken for noise."
        )
    apart = " and ".join(percent(spread, 2) for spread in spreads)
    least = ", the least that two runs are taken to differ by" if max(spreads) < compared.noise else ""
    return f"The work of steady steps differs by up to {apart}: {noise} is taken for noise{least}."


def _span(compared: TraceComparison) -> str:
    a, b, span = compared.a, compared.b, compared.span
    mean = f"Mean of {b.ranks} ranks. " if b.ranks > 1 else ""
    if compared.per == "step":
        return f"{mean}A step of {b.label} takes {_less_or_more(span, f'one of {a.label}')}: {_from_to(span)}."
    over = f"Over {plural(a.steps, 'step')} each, " if a.steps and a.steps == b.steps else ""
    each = ""
    if over and a.steps > 1:
        each = f", {text(span.a_ns // a.steps, 'ns')} and {text(span.b_ns // b.steps, 'ns')} a step"
    return f"{mean}{over}{b.label} takes {_less_or_more(span, a.label)}: {_from_to(span)}{each}."


def _work(compared: TraceComparison) -> str:
    busy = compared.busy
    where = "on the device" if compared.kernels else "in operators"
    share = abs(busy.change_ns) / max(min(busy.a_ns, busy.b_ns), 1)
    if compared.same_work:
        return (
            f"The work {where} is the same: {text(busy.a_ns, 'ns')} and {text(busy.b_ns, 'ns')}, {percent(share, 2)} apart, "
            f"within the noise of {percent(compared.noise, 2)}."
        )
    moved = _list(compared.phases, compared)
    phases = f": {moved}" if moved else ""
    return f"The work {where} takes {_less_or_more(busy, f'in {compared.a.label}')}, {_from_to(busy)}{phases}."


def _idle(compared: TraceComparison) -> str:
    if abs(compared.idle.change_ns) < WORTH_SPAN * max(compared.span.a_ns, compared.span.b_ns):
        moved = [row for row in compared.causes if _worth(row, compared)]
        if not moved:
            return ""
    causes = sorted(compared.causes, key=lambda row: -abs(row.change_ns))
    most = causes[0]
    doing = most.name if most.name == "waiting for data" else f"idle for {most.name}"
    told = (
        f"{compared.b.label} is {text(abs(most.change_ns), 'ns')} {'less' if most.change_ns < 0 else 'more'} {doing} "
        f"({_from_to(most)})"
    )
    rest = _list(causes[1:], compared, largest=abs(most.change_ns))
    return f"{told}; {rest}." if rest else f"{told}."


def _moved(title: str, rows: Sequence[TimeChange], compared: TraceComparison) -> str:
    moved = _list(rows, compared)
    return f"{title}: {moved}." if moved else ""


def _list(rows: Sequence[TimeChange], compared: TraceComparison, largest: int = 0) -> str:
    """The largest changes in words: ``backward +12 ms, forward -3 ms``."""
    ordered = sorted(rows, key=lambda row: -abs(row.change_ns))
    least = WORTH * max(largest, abs(ordered[0].change_ns) if ordered else 0)
    named = [row for row in ordered[:TOLD] if abs(row.change_ns) >= least and _worth(row, compared)]
    return ", ".join(f"{_name(row)} {signed(row.change_ns, 'ns')}" for row in named)


def _worth(row: TimeChange, compared: TraceComparison) -> bool:
    return abs(row.change_ns) >= WORTH_SPAN * max(compared.span.a_ns, compared.span.b_ns)


def _name(row: TimeChange) -> str:
    only = {"only a": " (gone)", "only b": " (new)"}.get(row.alike, "")
    name = row.name if len(row.name) <= NAME else f"{row.name[: NAME - 3]}..."
    return f"{name}{f' in {row.phase}' if row.phase else ''}{only}"


def _less_or_more(row: TimeChange, than: str) -> str:
    if not row.change_ns:
        return f"as long as {than}"
    share = f" ({percent(abs(row.change_ns) / row.a_ns, 2)})" if row.a_ns else ""
    return f"{text(abs(row.change_ns), 'ns')}{share} {'less' if row.change_ns < 0 else 'more'} than {than}"


def _from_to(row: TimeChange) -> str:
    return f"{text(row.a_ns, 'ns')} -> {text(row.b_ns, 'ns')}"
