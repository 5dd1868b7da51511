"""The difference of two traces in sentences: span, work, idle time, and the largest changes; and the notes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from profiler_kit.command_lines import kit_command
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, plural, signed, text

MAX_NAMED_CHANGES: Final = 3  # changes named in one sentence; the tables list all
MIN_CHANGE_SHARE: Final = 0.1  # of the largest change of its kind: only the table lists smaller ones
MAX_NAME_CHARS: Final = 60  # a kernel's name may have a thousand characters
MIN_SPAN_SHARE: Final = 0.005  # of the span: smaller changes get no sentence


def sentences(compared: TraceComparison) -> tuple[str, ...]:
    """State the result, most important first."""
    lines = [_cause_sentence(compared), _span_sentence(compared), _work_sentence(compared), _idle_sentence(compared)]
    if not compared.same_work:
        lines += [
            _changes_sentence("By module", compared.modules, compared),
            _changes_sentence("By operator", compared.operators, compared),
            _changes_sentence("By kernel", compared.kernels, compared),
        ]
    return tuple(line for line in lines if line)


def notes(compared: TraceComparison, a: TraceSummary, b: TraceSummary) -> tuple[str, ...]:
    """The limits of the comparison."""
    sample = "one trace" if compared.a.ranks == 1 else "one run"
    lines = [f"Each side is {sample}, a single sample: two runs of one program may differ by more than their steps do."]
    if compared.per == "step":
        lines.append(
            f"{compared.a.label} has {plural(compared.a.steps, 'step')}, {compared.b.label} has {compared.b.steps}: figures are "
            "per step (the trace's time over its steps, rounded to whole ns)."
        )
    elif not compared.a.steps or not compared.b.steps:
        unmarked = [side.label for side in (compared.a, compared.b) if not side.steps]
        lines.append(
            f"No steps in {' and '.join(unmarked)}: whole traces are compared, which may hold different amounts of work."
        )
    if _are_ranks_of_a_job(a, b):
        lines.append(
            f"The traces are of ranks {a.rank} and {b.rank}. To see which rank waits for which, inspect them together: "
            f"{kit_command('inspect', a.file, b.file)}"
        )
    lines.append(_noise_note(compared))
    if any(change.kind == "device" for change in compared.kinds):
        lines.append("The devices differ, so kernels with different names are matched by their family.")
    for title, rows in (("operators", compared.operators), ("kernels", compared.kernels)):
        matched = sum(row.alike == "alike" for row in rows)
        if matched:
            lines.append(f"Rows of {title} matched under different names: {matched}. JSON and CSV have both names.")
    for trace in (a, b):
        if trace.is_unrecorded:
            lines.append(
                f"The device was not recorded in {PurePath(trace.file).name}: its times say nothing about the device."
            )
        if trace.has_modules != (a.has_modules and b.has_modules):
            lines.append(f"Only {PurePath(trace.file).name} has module calls, so modules are not compared.")
        if trace.unattributed_ns > MIN_SPAN_SHARE * trace.busy_ns:
            lines.append(
                f"{text(trace.unattributed_ns, 'ns')} of work in {PurePath(trace.file).name} is not attributed to a phase; "
                "its row is (no phase)."
            )
    return tuple(dict.fromkeys(lines))


def _are_ranks_of_a_job(a: TraceSummary, b: TraceSummary) -> bool:
    """Return whether the traces can be of one job: two ranks of as many."""
    return (
        None not in (a.rank, b.rank) and a.rank != b.rank and (a.world_size or 0) > 1 and a.world_size == b.world_size
    )


def _noise_note(compared: TraceComparison) -> str:
    """The share that counts as noise, and its source."""
    sides = (compared.a, compared.b)
    spreads = [side.spread for side in sides if side.spread is not None]
    noise = percent(compared.noise, 2)
    if len(spreads) < len(sides):
        labels = " and ".join(side.label for side in sides if side.spread is None)
        verb = "have" if not spreads else "has"
        return f"{labels} {verb} fewer than three steady steps, so the noise is unknown: {noise} is assumed."
    spread_text = " and ".join(percent(spread, 2) for spread in spreads)
    minimum = ", the minimum for two runs" if max(spreads) < compared.noise else ""
    return f"The work of steady steps differs by up to {spread_text}: the noise is {noise}{minimum}."


def _cause_sentence(compared: TraceComparison) -> str:
    """State how the runs differ in kind, and the phase or idle cause that explains most of the difference, with its share."""
    kinds = "; ".join(f"{change.kind} {change.a} -> {change.b}" for change in compared.kinds)
    parts = [f"The runs differ in kind: {kinds}."] if kinds else []
    change_ns = compared.span.change_ns
    if abs(change_ns) <= compared.noise * min(compared.span.a_ns, compared.span.b_ns):
        if change_ns:
            parts.append("The difference in time is within the noise.")
        return " ".join(parts)
    rows = [*compared.phases, *compared.causes]
    same_direction = [row for row in rows if row.change_ns * change_ns > 0]
    total_ns = sum(row.change_ns for row in same_direction)
    largest = max(same_direction, key=lambda row: abs(row.change_ns))
    name = f"idle time ({largest.name})" if largest in compared.causes else largest.name
    effect = "time saved" if change_ns < 0 else "time added"
    opposite_ns = change_ns - total_ns
    is_opposed = abs(opposite_ns) >= MIN_CHANGE_SHARE * abs(total_ns)
    opposite = f" Other changes of {signed(opposite_ns, 'ns')} go the other way." if is_opposed else ""
    share = percent(largest.change_ns / total_ns, 2)
    parts.append(f"Main cause: {name} {signed(largest.change_ns, 'ns')}, {share} of the {effect}.{opposite}")
    return " ".join(parts)


def _span_sentence(compared: TraceComparison) -> str:
    a, b, span = compared.a, compared.b, compared.span
    mean = f"Mean of {b.ranks} ranks. " if b.ranks > 1 else ""
    if compared.per == "step":
        return f"{mean}A step of {b.label} takes {_relative_text(span, f'a step of {a.label}')}: {_from_to(span)}."
    has_outside_work = bool(a.outside_ns or b.outside_ns)
    steps_text = (
        f"Over {plural(a.steps, 'step')} each, " if a.steps and a.steps == b.steps and not has_outside_work else ""
    )
    per_step = ""
    if has_outside_work and a.step_ns and b.step_ns:
        per_step = f", with work outside the steps; a step takes {text(a.step_ns, 'ns')} and {text(b.step_ns, 'ns')}"
    elif steps_text and a.steps > 1:
        per_step = f", {text(span.a_ns // a.steps, 'ns')} and {text(span.b_ns // b.steps, 'ns')} per step"
    return f"{mean}{steps_text}{b.label} takes {_relative_text(span, a.label)}: {_from_to(span)}{per_step}."


def _work_sentence(compared: TraceComparison) -> str:
    busy = compared.busy
    place = "on the device" if compared.kernels else "in operators"
    share = abs(busy.change_ns) / max(min(busy.a_ns, busy.b_ns), 1)
    if compared.same_work:
        return (
            f"The work {place} is the same: {text(busy.a_ns, 'ns')} and {text(busy.b_ns, 'ns')}, {percent(share, 2)} apart, "
            f"within the noise of {percent(compared.noise, 2)}."
        )
    changes = _changes_text(compared.phases, compared)
    phases = f": {changes}" if changes else ""
    return f"The work {place} takes {_relative_text(busy, f'in {compared.a.label}')}, {_from_to(busy)}{phases}."


def _idle_sentence(compared: TraceComparison) -> str:
    if not any(_is_large(row, compared) for row in (compared.idle, *compared.causes)):
        return ""
    causes = sorted(compared.causes, key=lambda row: -abs(row.change_ns))
    largest = causes[0]
    others = _changes_text(causes[1:], compared, largest_ns=abs(largest.change_ns))
    others_text = f", {others}" if others else ""
    return f"Idle time: {largest.name} {signed(largest.change_ns, 'ns')} ({_from_to(largest)}){others_text}."


def _changes_sentence(title: str, rows: Sequence[TimeChange], compared: TraceComparison) -> str:
    changes = _changes_text(rows, compared)
    return f"{title}: {changes}." if changes else ""


def _changes_text(rows: Sequence[TimeChange], compared: TraceComparison, largest_ns: int = 0) -> str:
    """The largest changes: ``backward +12 ms, forward -3 ms``."""
    ordered = sorted(rows, key=lambda row: -abs(row.change_ns))
    minimum_ns = MIN_CHANGE_SHARE * max(largest_ns, abs(ordered[0].change_ns) if ordered else 0)
    named = [
        row for row in ordered[:MAX_NAMED_CHANGES] if abs(row.change_ns) >= minimum_ns and _is_large(row, compared)
    ]
    return ", ".join(f"{_row_name(row)} {signed(row.change_ns, 'ns')}" for row in named)


def _is_large(row: TimeChange, compared: TraceComparison) -> bool:
    return abs(row.change_ns) >= MIN_SPAN_SHARE * max(compared.span.a_ns, compared.span.b_ns)


def _row_name(row: TimeChange) -> str:
    presence = {"only a": " (removed)", "only b": " (new)"}.get(row.alike, "")
    name = row.name if len(row.name) <= MAX_NAME_CHARS else f"{row.name[: MAX_NAME_CHARS - 3]}..."
    return f"{name}{f' in {row.phase}' if row.phase else ''}{presence}"


def _relative_text(row: TimeChange, reference: str) -> str:
    if not row.change_ns:
        return f"the same time as {reference}"
    share = f" ({percent(abs(row.change_ns) / row.a_ns, 2)})" if row.a_ns else ""
    return f"{text(abs(row.change_ns), 'ns')}{share} {'less' if row.change_ns < 0 else 'more'} than {reference}"


def _from_to(row: TimeChange) -> str:
    return f"{text(row.a_ns, 'ns')} -> {text(row.b_ns, 'ns')}"
