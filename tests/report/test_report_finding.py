"""``--finding N``: one finding, and the rows of the report that its claims and paths name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sample_reports import v0_h100
from trace_reports import convnet, kernel, nested, trace, traces

from profiler_kit.errors import UsageError
from profiler_kit.records.claims import claim_of_text
from profiler_kit.records.document import Document, Table
from profiler_kit.records.report import Finding, Report, TraceReport
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import finding_document


def document(
    report: Report | TraceReport, *claims: str, paths: tuple[str, ...] = (), config: str | None = None
) -> Document:
    finding = Finding(
        rule="rule", severity="high", title="The title", explanation="First. Second.", advice="Do it. Then more.",
        evidence=(), claims=tuple(map(claim_of_text, claims)), paths=paths, config=config, weight=0.5, share=0.25,
    )  # fmt: skip
    return finding_document(replace(report, findings=(finding,)), 1)


def rows(of: Document, name: str) -> list[str]:
    """The first cell of each row of the table `name`; empty without the table."""
    tables = [block for section in of.sections for block in section.blocks if isinstance(block, Table)]
    keys = {"kernels": "name", "trace_kernels": "name"}
    table = next((table for table in tables if table.name == name), None)
    if table is None:
        return []
    column = next((i for i, head in enumerate(table.heads) if head.key == keys.get(name)), 0)
    return [str(row[column]) for row in table.rows]


def test_the_finding_is_shown_in_full_with_its_share() -> None:
    page = renderer_by_name("terminal").render(document(v0_h100(), "busy:module:conv2"), RenderOptions())
    assert page.startswith("Finding 1 of 1\n1. [high] The title\n")
    assert "Explains 25.0 % of the time. First. Second." in page
    assert "-> Do it. Then more." in page
    assert json.loads(document(v0_h100()).json)["title"] == "The title"


def test_a_layer_has_its_row_kernels_and_convolution_parts() -> None:
    of = document(v0_h100(), "busy:module:conv2")
    assert rows(of, "layers") == ["conv2"]
    assert set(rows(of, "convolutions")) == {"conv2"}
    assert any("xmma_dgrad" in name for name in rows(of, "kernels"))
    assert rows(document(v0_h100(), paths=("conv2",)), "layers") == ["conv2"]


def test_phases_kernels_configurations_and_memory_of_a_report() -> None:
    assert rows(document(v0_h100(), "busy:phase:optimizer"), "phases") == ["optimizer"]
    assert len(rows(document(v0_h100(), "busy"), "phases")) == 4
    assert rows(document(v0_h100(), "busy:kernel:Memset (Device)"), "kernels") == ["Memset (Device)"]
    assert rows(document(v0_h100(), config="benchmark"), "runs") == ["default", "benchmark"]
    assert rows(document(v0_h100(), "peak"), "memory")


def test_modules_kernels_and_idle_causes_of_a_trace() -> None:
    summary = trace(
        phases={"forward": (10.0, 30.0, 0.0), "optimizer": (1.0, 5.0, 0.0)},
        idle={("python", "forward"): 50.0, ("waiting for data", "forward"): 20.0},
        kernels=(kernel("gemm", 10.0, 5, name="gemm_kernel"),),
    )
    of = document(traces(summary), "idle:python", "busy:kernel:gemm_kernel")
    assert rows(of, "trace_causes") == ["python"]
    assert rows(of, "trace_kernels") == ["gemm_kernel"]
    assert rows(document(traces(summary), "host"), "trace_causes") == ["python", "waiting for data"]
    assert rows(document(traces(summary), "busy:phase:optimizer"), "trace_phases") == ["optimizer"]
    module = nested().modules[0].path
    assert module in rows(document(traces(nested()), f"busy:module:{module}"), "trace_modules")


def test_only_the_traces_that_the_evidence_names_are_shown() -> None:
    both = traces(convnet("a/one.json"), convnet("a/two.json"))
    of = document(both, "busy")
    assert [section.title for section in of.sections if section.title.startswith("Phases")] == [
        "Phases of one",
        "Phases of two",
    ]


def test_a_finding_without_rows_has_a_sentence() -> None:
    of = document(traces(trace()))
    assert "names no rows" in renderer_by_name("markdown").render(of, RenderOptions())


@pytest.mark.parametrize("number", [0, 3])
def test_a_number_out_of_range_is_an_error(number: int) -> None:
    report = v0_h100()
    with pytest.raises(UsageError, match=f"no finding {number}: the report has findings 1 to 2") as caught:
        finding_document(replace(report, findings=report.findings[:2]), number)
    assert caught.value.hint == "use --finding 2"
    with pytest.raises(UsageError, match="the report has no findings"):
        finding_document(replace(report, findings=()), 1)
