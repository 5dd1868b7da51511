"""A column's values are of the type that its unit says, on every kind of document and on rows with everything in them."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import sample_reports
import trace_reports

from profiler_kit._family import members
from profiler_kit.comparison.compare import compare
from profiler_kit.comparison.traces import compare_traces
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.counts import PHASES, Cost, Phase
from profiler_kit.records.document import Document, Table, Value
from profiler_kit.records.serde import read_report
from profiler_kit.report import columns, report_document, traces_document
from profiler_kit.report.check import check_document
from profiler_kit.report.columns.column import Column
from profiler_kit.report.columns.runs import NEVER
from profiler_kit.report.comparison import comparison_document
from profiler_kit.report.trace_comparison import trace_comparison_document
from profiler_kit.units import Unit

FIXTURES = Path(__file__).parent.parent / "fixtures" / "reports"
# A word instead of a number: no count of steps pays the tuning back.
WORDS: dict[str, set[Value]] = {"break_even_steps": {NEVER}}


def fits(key: str, unit: Unit, value: Value) -> bool:
    if value is None or value in WORDS.get(key, set()):
        return True
    if unit in ("text", "bool"):
        return isinstance(value, {"text": str, "bool": bool}[unit])
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def documents() -> Iterator[Document]:
    for file in sorted(FIXTURES.glob("*.json")):
        report = read_report(file)
        for by in typing.get_args(Literal["tree", "layer", "op", "what-if"]):
            yield report_document(report, by=by)
        yield report_document(report, unit="mac")
    summaries = [
        trace_reports.convnet(),
        trace_reports.full_queue(),
        trace_reports.waits_for_data(),
        trace_reports.nested(),
        trace_reports.host_only(),
    ]
    yield from (traces_document(trace_reports.traces(summary)) for summary in summaries)
    yield traces_document(trace_reports.two_ranks())
    yield trace_comparison_document(compare_traces(summaries[0], summaries[2]))
    a, b = sample_reports.v0_h100(), sample_reports.v1_h100()
    yield comparison_document(compare(a, b))
    yield check_document(check_reports(a, b, ()))


def test_values_in_documents_are_of_their_columns_units() -> None:
    for document in documents():
        tables = [block for section in document.sections for block in section.blocks if isinstance(block, Table)]
        for table in (*tables, *document.full):
            for row in (*table.rows, *table.totals):
                for head, value in zip(table.heads, row, strict=True):
                    assert fits(head.key, head.unit, value), f"{table.name}: {head.key} in {head.unit} is {value!r}"


def whole(kind: Any, of: Mapping[Any, Any]) -> Any:
    """A `kind` with a value in every field. `of` says what type variables stand for."""
    kind = of.get(kind, kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Cost:
        return Cost(macs=3, flops=7, read_bytes=3, write_bytes=3)
    if kind == Phase:
        return "forward"
    if kind == tuple[int, ...]:
        return tuple(range(len(PHASES)))
    if kind is str:
        return "module"
    if kind in (int, float, bool):
        return kind(3)
    if kind is Any or kind is type(None):
        return None
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if origin is Literal:
        return args[0]
    if origin in (typing.Union, types.UnionType):
        return whole(next(arg for arg in args if arg is not type(None)), of)
    if origin is tuple:
        return tuple(whole(arg, of) for arg in args if arg is not ...)
    if origin is not None and issubclass(origin, Mapping):
        return {whole(args[0], of): whole(args[1], of)}
    record = origin or kind
    inner = dict(zip(getattr(record, "__parameters__", ()), args, strict=False))
    hints = typing.get_type_hints(record)
    return record(**{field.name: whole(hints[field.name], inner) for field in dataclasses.fields(record)})


def families() -> dict[str, tuple[Any, tuple[Column[Any], ...]]]:
    """By the names of all tuples of columns: the type of their rows, and they."""
    result = {}
    for module in members(columns):
        for name, written in vars(module).get("__annotations__", {}).items():
            if name.endswith("_COLUMNS"):
                column, _ = typing.get_args(eval(written, vars(module)))
                result[name] = (typing.get_args(column)[0], getattr(module, name))
    return result


@pytest.mark.parametrize("name", sorted(families()))
def test_values_of_whole_rows_are_of_their_columns_units(name: str) -> None:
    kind, of = families()[name]
    row = whole(kind, {})
    filled = 0
    for column in of:
        value = column.value(row)
        filled += value is not None
        assert fits(column.key, column.unit, value), f"{column.key} in {column.unit} is {value!r}"
    assert 2 * filled >= len(of), "a row with everything in it shows next to nothing"
