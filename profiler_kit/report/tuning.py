"""The result of `tune` as a document: the answer, both sides, the lines to paste, and all attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.document import Block, Document, Paragraph, Section
from profiler_kit.records.serde import dumps
from profiler_kit.records.target import inputs_text
from profiler_kit.records.tuning import ANY_ERROR, Attempt, Place, Tuning, error_text, figure_words
from profiler_kit.report import sentences
from profiler_kit.report.charts.results import gain_chart
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.tuning import ATTEMPT_COLUMNS, CONTRIBUTION_COLUMNS, SIDE_COLUMNS, SideRow
from profiler_kit.report.origin import origin
from profiler_kit.units import percent, plural, text

PLACES: Final[dict[Place, str]] = {
    "start": "Before the model is built",
    "model": "After the model is on its device",
    "optimizer": "Instead of your optimizer, and after it",
    "data": "Instead of your loader",
    "loop": "In the loop, instead of your step",
}


def tuning_document(tuning: Tuning) -> Document:
    """`tuning` as sections of text and tables; CSV holds all that was tried."""
    return Document(
        title=f"{tuning.target.name}: tuned for {tuning.options.goal}",
        sections=tuple(section for section in _sections(tuning) if section.blocks),
        json=lambda: dumps(tuning),
        origin=origin(_device(tuning), tuning.created, tuning.tool),
        full=(
            data_table("tuning_attempts", ATTEMPT_COLUMNS, tuning.attempts),
            data_table("tuned_sides", SIDE_COLUMNS, _side_rows(tuning)),
            data_table("tuned_changes", CONTRIBUTION_COLUMNS, tuning.contributions),
        ),
    )


def _device(tuning: Tuning) -> str:
    return (tuning.environment.device_name or tuning.environment.device) if tuning.environment is not None else ""


def _sections(tuning: Tuning) -> Iterator[Section]:
    answer = tuple(Paragraph(text=sentence) for sentence in _sentences(tuning))
    yield Section(title="Result", blocks=(*answer, *gain_chart(tuning)))
    caption = "fresh processes after the search, interleaved" if tuning.gain is not None else "processes of the search"
    yield Section(
        title="Before and after", blocks=(page_table("tuned_sides", caption, SIDE_COLUMNS, _side_rows(tuning)),)
    )
    yield Section(title="Lines to paste", blocks=tuple(_code(tuning)))
    if tuning.contributions:
        yield Section(title="Accepted changes", blocks=tuple(_contributions(tuning)))
    yield Section(title="Rejected changes", blocks=tuple(_rejected(tuning)))
    if tuning.attempts:
        table = page_table("tuning_attempts", "every change and round", ATTEMPT_COLUMNS, tuning.attempts)
        yield Section(title="Search", blocks=(table,), detail=True)
    notes = (*map(str, tuning.target.notes), *tuning.notes)
    yield Section(title="Notes", blocks=tuple(Paragraph(text=note, role="note") for note in dict.fromkeys(notes)))


def _sentences(tuning: Tuning) -> Iterator[str]:
    yield _answer(tuning)
    skipped = dict.fromkeys(attempt.change for attempt in tuning.attempts if attempt.outcome == "not tried")
    if skipped and tuning.outcome != "interrupted":
        yield f"Not tried for lack of time or processes: {', '.join(skipped)}. Raise --budget or --processes."
    yield from _effects(tuning)
    target = tuning.target
    step = "Training step" if target.mode == "train" else "Inference step"
    optimizer = f", optimizer {target.optimizer}" if target.optimizer else ""
    yield f"{step} on {inputs_text(target.inputs)}{optimizer}, {target.arithmetic}."
    if tuning.environment is not None:
        yield f"{sentences.place(tuning.environment)}."
    yield (
        f"{plural(tuning.processes, 'process', 'processes')} in {text(tuning.wall_ns, 'ns')}. "
        f"{plural(sum(attempt.gain is not None for attempt in tuning.attempts), 'configuration')} measured."
    )


def _answer(tuning: Tuning) -> str:
    figure = figure_words(tuning.options.goal)
    if tuning.outcome == "interrupted":
        accepted = f" So far accepted: {', '.join(tuning.changes)}." if tuning.changes else ""
        return f"Interrupted: the search has not ended, and nothing is confirmed.{accepted}"
    if tuning.chosen is None or tuning.gain is None:
        seen = dict.fromkeys(attempt.change for attempt in tuning.attempts if attempt.outcome == "better")
        if seen:
            return (
                f"Nothing is confirmed: {', '.join(seen)} seemed to improve the {figure}, but the limits left no process to run "
                "it again. Raise --budget or --processes."
            )
        return f"Nothing better was found: no change surely improves the {figure} with an acceptable error."
    changes = ", ".join(tuning.changes)
    saved, gain = tuning.gain.saved, tuning.gain
    measured = f"re-measured in {gain.before_processes} and {gain.after_processes} fresh processes"
    if tuning.outcome == "not confirmed":
        reason = f" ({gain.reason})" if gain.reason else ""
        return f"Not confirmed: {changes} seemed better in the search, but the final measurement shows {saved} {figure}{reason}."
    return f"Use {changes}: {saved} {figure}, {measured}.{_estimate(tuning)}"


def _estimate(tuning: Tuning) -> str:
    """The estimate of the search as a sentence; empty if it is unknown."""
    estimate, gain = tuning.estimate, tuning.gain
    if estimate is None or gain is None:
        return ""
    off = ", too much" if estimate.high < gain.low else ", too little" if gain.high < estimate.low else ""
    return f" The search had estimated {estimate.saved}{off}."


def _effects(tuning: Tuning) -> Iterator[str]:
    """Step, memory and error before and after."""
    before, after = tuning.baseline, tuning.chosen
    if after is not None and tuning.outcome == "better":
        parts = []
        if before.step_ns is not None and after.step_ns is not None:
            parts.append(f"step {text(before.step_ns.median, 'ns')} -> {text(after.step_ns.median, 'ns')}")
        if before.samples != after.samples and before.examples_per_s and after.examples_per_s:
            parts.append(f"batch {before.samples} -> {after.samples}")
            rates = (text(round(side.examples_per_s or 0), "count") for side in (before, after))
            parts.append(f"{' -> '.join(rates)} examples/s")
        if before.peak_bytes is not None and after.peak_bytes is not None:
            parts.append(f"peak {text(before.peak_bytes, 'bytes')} -> {text(after.peak_bytes, 'bytes')}")
        errors = error_text(before.max_relative_error), error_text(after.max_relative_error)
        parts.append(f"error against float64 {errors[0]} -> {errors[1]}")
        sentence = ", ".join(parts)
        yield f"{sentence[0].upper()}{sentence[1:]}."
    if tuning.options.tolerance == ANY_ERROR:
        yield "Any error was accepted (tolerance any)."
    elif tuning.error_limit is not None:
        yield (
            f"Accepted error: up to {error_text(tuning.error_limit)} (tolerance {tuning.options.tolerance}, the baseline has "
            f"{error_text(before.max_relative_error)})."
        )
    if tuning.options.goal == "memory":
        yield f"Accepted slowdown: up to {percent(tuning.options.max_slowdown)}."


def _side_rows(tuning: Tuning) -> list[SideRow]:
    rows = [SideRow(name="baseline", side=tuning.baseline)]
    if tuning.chosen is not None:
        rows.append(SideRow(name="chosen", side=tuning.chosen))
    return rows


def _code(tuning: Tuning) -> Iterator[Block]:
    for block in tuning.code:
        place = f"# {PLACES[block.place]}: {', '.join(block.changes)}"
        yield Paragraph(text=f"{place}\n{block.code}", role="code")


def _contributions(tuning: Tuning) -> Iterator[Block]:
    figure = figure_words(tuning.options.goal)
    yield page_table("tuned_changes", figure, CONTRIBUTION_COLUMNS, tuning.contributions)
    methods = {part.method for part in tuning.contributions}
    if "incremental" in methods:
        yield Paragraph(
            text="Incremental: measured when the search accepted the change, so partly luck. More processes or time also "
            "measure the result without each change.",
            role="note",
        )
    unsure = [part.change for part in tuning.contributions if part.gain is not None and part.gain.outcome != "better"]
    if unsure and tuning.outcome == "better":
        yield Paragraph(
            text=f"No contribution beside the other changes is established: {', '.join(unsure)}.", role="note"
        )


def _rejected(tuning: Tuning) -> Iterator[Block]:
    """The last attempt of each change that is not in use, with its reason."""
    last: dict[str, Attempt] = {}
    for attempt in tuning.attempts:
        earlier = last.get(attempt.change)
        if earlier is None or attempt.outcome != "not tried":
            last[attempt.change] = attempt
    rejected = [attempt for change, attempt in last.items() if change not in tuning.changes]
    for attempt in rejected:
        place = f" on top of {attempt.base}" if attempt.base not in ("", "default") else ""
        yield Paragraph(text=f"{attempt.change}{place}: {_reason(attempt)}")


def _reason(attempt: Attempt) -> str:
    """Why a change is not in use."""
    gain = attempt.gain
    match attempt.outcome:
        case "worse":
            words = f"worse, {attempt.reason}"
        case "same":
            measured = f"measured {gain.saved}; " if gain is not None else ""
            words = f"not sure, {measured}{attempt.reason}"
        case "accepted":
            words = "replaced by a later change"
        case "better":
            words = f"better, {gain.saved if gain is not None else ''}, but {attempt.reason}"
        case _:
            words = f"{attempt.outcome}, {attempt.reason}" if attempt.reason else attempt.outcome
    return words if words.endswith(".") else f"{words}."
