"""The result of `tune` as a document: the answer, both sides, the lines to paste, and all attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.document import Block, Document, Paragraph, Section
from profiler_kit.records.serde import dumps
from profiler_kit.records.target import inputs_text
from profiler_kit.records.tuning import (
    ANY_ERROR,
    Attempt,
    AttemptOutcome,
    Place,
    Tuning,
    TuningAnswer,
    TuningSide,
    error_text,
    figure_words,
)
from profiler_kit.report import sentences
from profiler_kit.report.charts.results import front_chart, gain_chart
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.tuning import (
    ATTEMPT_COLUMNS,
    CONTRIBUTION_COLUMNS,
    FRONT_COLUMNS,
    SIDE_COLUMNS,
    FrontRow,
    SideRow,
)
from profiler_kit.report.origin import origin
from profiler_kit.units import percent, plural, text

PLACES: Final[dict[Place, str]] = {
    "start": "Before the model is built",
    "model": "After the model is on its device",
    "optimizer": "Instead of your optimizer, and after it",
    "data": "Instead of your loader",
    "loop": "In the loop, instead of your step",
}
REJECTED, NOT_TRIED, NOT_APPLICABLE = "Rejected changes", "Not tried", "Not applicable"
_FATES: Final[dict[AttemptOutcome, str]] = {"not tried": NOT_TRIED, "not applicable": NOT_APPLICABLE}
_REDUCED: Final = ", with reduced precision"


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
            data_table("tuned_changes", CONTRIBUTION_COLUMNS, [c for a in tuning.answers for c in a.contributions]),
            data_table("tuning_front", FRONT_COLUMNS, front_rows(tuning)),
        ),
    )


def _device(tuning: Tuning) -> str:
    return (tuning.environment.device_name or tuning.environment.device) if tuning.environment is not None else ""


def _sections(tuning: Tuning) -> Iterator[Section]:
    paragraphs = tuple(Paragraph(text=sentence) for sentence in _sentences(tuning))
    yield Section(title="Result", blocks=(*paragraphs, *gain_chart(tuning)))
    is_final = any(answer.gain is not None for answer in tuning.answers)
    caption = "fresh processes after the search, interleaved" if is_final else "processes of the search"
    yield Section(
        title="Before and after", blocks=(page_table("tuned_sides", caption, SIDE_COLUMNS, _side_rows(tuning)),)
    )
    for answer in tuning.answers:
        heading = _REDUCED if answer is tuning.reduced else ""
        yield Section(title=f"Lines to paste{heading}", blocks=tuple(_code(answer)))
        yield Section(title=f"Accepted changes{heading}", blocks=tuple(_contributions(tuning, answer)))
    yield Section(title="Time, memory and error", blocks=tuple(_front(tuning)))
    for title, attempts in _by_fate(tuning).items():
        yield Section(title=title, blocks=tuple(_attempt_line(attempt) for attempt in attempts))
    if tuning.attempts:
        table = page_table("tuning_attempts", "every change, in order", ATTEMPT_COLUMNS, tuning.attempts)
        yield Section(title="Search", blocks=(table,), detail=True)
    notes = (*map(str, tuning.target.notes), *tuning.notes)
    yield Section(title="Notes", blocks=tuple(Paragraph(text=note, role="note") for note in dict.fromkeys(notes)))


def _sentences(tuning: Tuning) -> Iterator[str]:
    yield _same_answer(tuning)
    if tuning.chosen is not None and tuning.outcome == "better":
        yield _effects(tuning, tuning.chosen)
    if tuning.reduced is not None and tuning.outcome != "interrupted":
        yield f"With reduced precision: {_answer(tuning, tuning.reduced)}"
        yield _effects(tuning, tuning.reduced.chosen)
        if errors := _errors_by_precision(tuning):
            yield f"Errors against float64: {errors}."
    yield from _limits(tuning)
    yield from _reach(tuning)
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


def _same_answer(tuning: Tuning) -> str:
    """The answer with the precision of the baseline, or why there is none."""
    figure = figure_words(tuning.options.goal)
    if tuning.outcome == "interrupted":
        accepted = f" So far accepted: {', '.join(tuning.changes)}." if tuning.changes else ""
        return f"Interrupted: the search has not ended, and nothing is confirmed.{accepted}"
    same = next((answer for answer in tuning.answers if answer is not tuning.reduced), None)
    if same is not None and same.gain is not None:
        return _answer(tuning, same)
    seen = dict.fromkeys(attempt.change for attempt in tuning.attempts if attempt.outcome == "better")
    if seen:
        return (
            f"Nothing is confirmed: {', '.join(seen)} seemed to improve the {figure}, but the limits left no process to run "
            "it again. Raise --budget or --processes."
        )
    if not any(attempt.round and attempt.outcome != "not tried" for attempt in tuning.attempts):
        return "Nothing was tried."
    precision = " with the same precision" if tuning.reduced is not None else ""
    return f"Nothing better was found{precision}: no change surely improves the {figure} with an acceptable error."


def _answer(tuning: Tuning, answer: TuningAnswer) -> str:
    figure, changes, gain = figure_words(tuning.options.goal), ", ".join(answer.changes), answer.gain
    if gain is None:
        return f"{changes} could not be measured again."
    if answer.outcome == "not confirmed":
        reason = f" ({gain.reason})" if gain.reason else ""
        shown = f"the final measurement shows {gain.saved_text} {figure}{reason}"
        return f"Not confirmed: {changes} seemed better in the search, but {shown}."
    measured = f"re-measured in {gain.before_processes} and {gain.after_processes} fresh processes"
    return f"Use {changes}: {gain.saved_text} {figure}, {measured}.{_estimate(answer)}"


def _estimate(answer: TuningAnswer) -> str:
    """The estimate of the search as a sentence; empty if it is unknown."""
    estimate, gain = answer.estimate, answer.gain
    if estimate is None or gain is None:
        return ""
    off = ", too much" if estimate.high < gain.low else ", too little" if gain.high < estimate.low else ""
    return f" The search had estimated {estimate.saved_text}{off}."


def _effects(tuning: Tuning, after: TuningSide) -> str:
    """Step, memory and error before and after."""
    before, parts = tuning.baseline, []
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
    return f"{sentence[0].upper()}{sentence[1:]}."


def _errors_by_precision(tuning: Tuning) -> str:
    """The error of the baseline, and of each other precision; empty without one."""
    errors = {"baseline": tuning.baseline.max_relative_error, **{e.config: e.max_relative_error for e in tuning.errors}}
    return ", ".join(f"{name} {error_text(error)}" for name, error in errors.items()) if len(errors) > 1 else ""


def _limits(tuning: Tuning) -> Iterator[str]:
    """The accepted errors and the accepted slowdown."""
    options = tuning.options
    if options.tolerance == ANY_ERROR:
        yield "Any error was accepted (tolerance any)."
    elif tuning.error_limit is not None:
        base = tuning.baseline.max_relative_error
        reduced = options.error_limit(base, reduced=True)
        beside = f", {error_text(reduced)} with reduced precision" if reduced != tuning.error_limit else ""
        yield (
            f"Accepted error: up to {error_text(tuning.error_limit)}{beside} (tolerance {options.tolerance}, the baseline has "
            f"{error_text(base)})."
        )
    if options.goal == "memory":
        yield f"Accepted slowdown: up to {percent(options.max_slowdown)}."


def _reach(tuning: Tuning) -> Iterator[str]:
    """What was found of what the replay says is reachable, and what was not tried."""
    found = max((1 - a.gain.ratio for a in tuning.answers if a.gain is not None and a.outcome == "better"), default=0.0)
    if tuning.reachable is not None:
        yield (
            f"Found: {percent(found)} of the step. By the replay of its trace, the best single change may save "
            f"{percent(tuning.reachable)}."
        )
    untried = _by_fate(tuning).get(NOT_TRIED, ())
    if untried and tuning.outcome != "interrupted":
        changes = ", ".join(f"{attempt.change}{_expectation(attempt)}" for attempt in untried)
        yield f"Not tried for lack of time or processes: {changes}. Raise --budget or --processes."


def _expectation(attempt: Attempt) -> str:
    return f" (may save {percent(attempt.expected)})" if attempt.expected else ""


def _side_rows(tuning: Tuning) -> list[SideRow]:
    names = {id(tuning.reduced): "reduced precision"}
    answers = [SideRow(name=names.get(id(answer), "chosen"), side=answer.chosen) for answer in tuning.answers]
    return [SideRow(name="baseline", side=tuning.baseline), *answers]


def front_rows(tuning: Tuning) -> list[FrontRow]:
    """The configurations that no other one beats in time, memory and error together, the fastest first."""
    sides = [(tuning.baseline, 1.0), *((a.chosen, a.gain.ratio) for a in tuning.answers if a.gain is not None)]
    rows = {
        side.config.name: FrontRow(
            config=side.config.name,
            ratio=ratio,
            peak_bytes=side.peak_bytes,
            max_relative_error=side.max_relative_error,
        )
        for side, ratio in sides
    }
    for attempt in tuning.attempts:
        if attempt.ratio is not None and attempt.max_relative_error is not None:
            row = FrontRow(
                config=attempt.config,
                ratio=attempt.ratio,
                peak_bytes=attempt.peak_bytes,
                max_relative_error=attempt.max_relative_error,
            )
            rows.setdefault(row.config, row)
    all_rows = list(rows.values())
    return sorted((row for row in all_rows if not any(_beats(o, row) for o in all_rows)), key=lambda row: row.ratio)


def _beats(other: FrontRow, row: FrontRow) -> bool:
    """Whether `other` is at least as good as `row` in all figures that both have, and better in one."""
    pairs = [(other.ratio, row.ratio)]
    pairs += [
        (a, b)
        for a, b in ((other.peak_bytes, row.peak_bytes), (other.max_relative_error, row.max_relative_error))
        if a is not None and b is not None
    ]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _front(tuning: Tuning) -> Iterator[Block]:
    rows = front_rows(tuning)
    if tuning.answers and len(rows) > 1:
        figure = figure_words(tuning.options.goal)
        yield page_table("tuning_front", f"{figure}, memory and error", FRONT_COLUMNS, rows)
        yield from front_chart(rows, figure)


def _code(answer: TuningAnswer) -> Iterator[Block]:
    for block in answer.code:
        place = f"# {PLACES[block.place]}: {', '.join(block.changes)}"
        yield Paragraph(text=f"{place}\n{block.code}", role="code")


def _contributions(tuning: Tuning, answer: TuningAnswer) -> Iterator[Block]:
    figure = figure_words(tuning.options.goal)
    yield page_table("tuned_changes", figure, CONTRIBUTION_COLUMNS, answer.contributions)
    methods = {part.method for part in answer.contributions}
    if "incremental" in methods:
        yield Paragraph(
            text="Incremental: measured when the search accepted the change, so partly luck. More time also measures "
            "the result without each change, unless one of them needs a process of its own.",
            role="note",
        )
    unsure = [part.change for part in answer.contributions if part.gain is not None and part.gain.outcome != "better"]
    if unsure and answer.outcome == "better":
        yield Paragraph(
            text=f"No contribution beside the other changes is established: {', '.join(unsure)}.", role="note"
        )


def _by_fate(tuning: Tuning) -> dict[str, list[Attempt]]:
    """The last attempt of each change that is not in use, by the title of its list."""
    last: dict[str, Attempt] = {}
    for attempt in tuning.attempts:
        earlier = last.get(attempt.change)
        if earlier is None or attempt.outcome != "not tried":
            last[attempt.change] = attempt
    used = {change for answer in tuning.answers for change in answer.changes}
    lists: dict[str, list[Attempt]] = {}
    for title in (REJECTED, NOT_TRIED, NOT_APPLICABLE):
        attempts = [a for change, a in last.items() if change not in used and _FATES.get(a.outcome, REJECTED) == title]
        lists |= {title: attempts} if attempts else {}
    return lists


def _attempt_line(attempt: Attempt) -> Paragraph:
    place = f" on top of {attempt.base}" if attempt.base not in ("", "default") else ""
    return Paragraph(text=f"{attempt.change}{place}{_expectation(attempt)}: {_reason(attempt)}")


def _reason(attempt: Attempt) -> str:
    """Why a change is not in use."""
    gain = attempt.gain
    match attempt.outcome:
        case "worse":
            words = f"worse, {attempt.reason}"
        case "same":
            measured = f"measured {gain.saved_text}; " if gain is not None else ""
            words = f"not sure, {measured}{attempt.reason}"
        case "accepted":
            words = "replaced by a later change"
        case "better":
            words = f"better, {gain.saved_text if gain is not None else ''}, but {attempt.reason}"
        case _:
            words = f"{attempt.outcome}, {attempt.reason}" if attempt.reason else attempt.outcome
    return words if words.endswith(".") else f"{words}."
