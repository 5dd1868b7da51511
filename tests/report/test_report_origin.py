"""The head of a page: a name without folders, device, date and version."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_reports import v0_h100, v1_h100
from trace_reports import trace, traces

from profiler_kit.comparison.compare import compare
from profiler_kit.report import report_document, traces_document
from profiler_kit.report.comparison import comparison_document
from profiler_kit.report.origin import short_path


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("/home/me/net.py:Net", "net.py:Net"),
        ("C:\\work\\net.py", "net.py"),
        ("models/net.py", "models/net.py"),
        ("torchvision:resnet50", "torchvision:resnet50"),
        ("/logs/run/", "run/"),
    ],
)
def test_an_absolute_path_loses_its_folders(written: str, shown: str) -> None:
    assert short_path(written) == shown


def test_a_page_names_its_device_and_date_and_no_absolute_path() -> None:
    report = v0_h100()
    document = report_document(replace(report, target=replace(report.target, spec="/home/me/net.py")))
    assert "/home" not in document.title
    run = report.baseline()
    assert run is not None
    assert run.environment is not None
    assert document.origin.split(" · ") == [
        run.environment.device_name, report.created[:10], f"{report.tool.name} {report.tool.version}"
    ]  # fmt: skip
    inspected = traces(trace("/logs/run/rank0.json.gz"))
    assert traces_document(inspected).title == "rank0.json.gz"
    files = ("/logs/run/rank0.json.gz", "/logs/run/rank1.json.gz")
    assert traces_document(traces(*map(trace, files))).title == "run: 2 traces"
    assert traces_document(traces(trace("a/rank0.json"), trace("b/rank0.json"))).title == "2 traces"
    assert traces_document(traces(trace("rank0.json"), trace("rank1.json"))).title == "2 traces"
    assert inspected.created[:10] in traces_document(inspected).origin


def test_a_comparison_names_each_device_date_and_version_once() -> None:
    before = v0_h100()
    after = replace(v1_h100(), created="2027-01-02T03:04:05+00:00", tool=before.tool)
    run = before.baseline()
    assert run is not None
    assert run.environment is not None
    assert comparison_document(compare(before, after)).origin.split(" · ") == [
        run.environment.device_name,
        f"{before.created[:10]} and 2027-01-02",
        f"{before.tool.name} {before.tool.version}",
    ]
