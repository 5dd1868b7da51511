"""The same report gives the same bytes on every Python: from 3.12 on, `sum` of floats compensates rounding errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.comparison.compare import compare
from profiler_kit.diagnosis import diagnose
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps, read_report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import report_document
from profiler_kit.report.comparison import comparison_document

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ("convnet_v0_h100", "convnet_v1_h100")
TRACES = ("train.cuda.json.gz", "train.cpu.json.gz", "checkpoint.cuda.json.gz")


def plain_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """As before Python 3.12."""
    for value in values:
        start = start + value
    return start


def compensated_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """As from Python 3.12 on."""
    items = list(values)
    if any(type(item) is float for item in items) and all(type(item) in (int, float) for item in items):
        return math.fsum([start, *items])
    return plain_sum(items, start)


def texts() -> list[str]:
    """The findings, tables and pages of measured reports, of a comparison, and of traces."""

    def explained(name: str) -> Report:
        report = read_report(ROOT / "docs" / "measured" / f"{name}.json")
        return with_verdict(replace(report, findings=diagnose(report), verdict=None))

    reports = [explained(name) for name in REPORTS]
    documents = [*map(report_document, reports), comparison_document(compare(*reports))]
    options = RenderOptions(detail=True)
    rendered = [
        str(renderer_by_name(name).render(document, options))
        for document in documents
        for name in ("csv", "json", "html")
    ]
    traces = [inspect(ROOT / "tests" / "fixtures" / "traces" / name).report for name in TRACES]
    return rendered + [dumps(replace(report, created="now")) for report in traces]


@pytest.mark.parametrize("other_sum", [plain_sum, compensated_sum])
def test_no_text_depends_on_the_sum_of_floats(other_sum: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = texts()
    monkeypatch.setattr("builtins.sum", other_sum)
    assert sum([0.1] * 10) == (1.0 if other_sum is compensated_sum else 0.9999999999999999)
    assert texts() == expected
