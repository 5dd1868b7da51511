"""The result of `sweep` as a document: one table over models, batch sizes and configurations, and the failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler_kit.records.document import Document, Paragraph, Section
from profiler_kit.records.serde import dumps
from profiler_kit.records.sweeps import Sweep, SweepResult
from profiler_kit.report.charts.results import sweep_chart
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.sweeps import SWEEP_COLUMNS, SweepRow
from profiler_kit.report.origin import origin
from profiler_kit.units import plural, text


def sweep_document(sweep: Sweep) -> Document:
    """`sweep` as sections of text and tables. CSV has all columns."""
    return Document(
        title=f"Sweep of {plural(len({result.task.model for result in sweep.results}), 'model')}",
        sections=tuple(section for section in _sections(sweep) if section.blocks),
        json=lambda: dumps(sweep),
        origin=origin(", ".join(_devices(sweep)), sweep.created, sweep.tool),
        full=(data_table("sweep", SWEEP_COLUMNS, sweep_rows(sweep)),),
    )


def sweep_rows(sweep: Sweep) -> list[SweepRow]:
    """A row for each run, and one for each task without runs."""
    return [SweepRow(result=result, run=run) for result in sweep.results for run in (result.runs or (None,))]


def _sections(sweep: Sweep) -> Iterator[Section]:
    chart = sweep_chart(sweep_rows(sweep))
    yield Section(title="Result", blocks=(*(Paragraph(text=sentence) for sentence in _sentences(sweep)), *chart))
    rows = _ranked([row for row in sweep_rows(sweep) if row.failure is None])
    table = page_table("sweep", "per step", SWEEP_COLUMNS, rows) if rows else None
    yield Section(title="Models", blocks=(table,) if table is not None else ())
    failures = [result for result in sweep.results if result.failure]
    yield Section(title="Failed", blocks=tuple(Paragraph(text=_failure(result)) for result in failures))
    notes = [*sweep.notes]
    if guessed := [result.task.model for result in sweep.results if result.inputs_are_guessed]:
        notes.append(f"The shapes of the inputs were found by trying: {', '.join(dict.fromkeys(guessed))}.")
    yield Section(title="Notes", blocks=tuple(Paragraph(text=note, role="note") for note in notes))


def _ranked(rows: list[SweepRow]) -> list[SweepRow]:
    """`rows` by the predicted time of a step, shortest first, where all have one; otherwise as they are."""
    if any(row.result.step_ns is None for row in rows):
        return rows
    return sorted(rows, key=lambda row: row.result.step_ns or 0)


def _sentences(sweep: Sweep) -> Iterator[str]:
    done, failed = len(sweep.results), sum(bool(result.failure) for result in sweep.results)
    yield f"{done} of {plural(sweep.planned, 'task')} ended, {failed or 'none'} of them failed."
    if done < sweep.planned:
        yield "The same command with the same folder runs the others."
    devices = _devices(sweep)
    if devices:
        yield f"Measured on {', '.join(devices)}."
    slowest = max(sweep.results, key=lambda result: result.wall_ns, default=None)
    if slowest is not None and done > 1:
        yield f"The longest task, {slowest.task.model}, took {text(slowest.wall_ns, 'ns')}."


def _devices(sweep: Sweep) -> Iterable[str]:
    """The devices of the results, each once."""
    return dict.fromkeys(result.device_name for result in sweep.results if result.device_name)


def _failure(result: SweepResult) -> str:
    batch = f", batch {result.task.batch}" if result.task.batch is not None else ""
    hint = f" ({result.hint})" if result.hint else ""
    return f"{result.task.model}{batch}: {result.failure}{hint}."
