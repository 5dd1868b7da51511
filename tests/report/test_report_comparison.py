from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gate_reports import MIB, node, peak, report, run

from profiler_kit.comparison.compare import compare
from profiler_kit.gate.budgets import parse_budget
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.check import CheckResult
from profiler_kit.records.document import Document, Paragraph, Section, Table
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.render._text import cell
from profiler_kit.report.check import check_document
from profiler_kit.report.comparison import comparison_document


def net(macs: int = 1000, extra: int = 0, **options: object) -> Report:
    nodes = [node("conv", macs=macs, params=1000, saved_bytes=4096, config="3, 8")]
    nodes += [node(f"added.layer{i}", macs=7, config="8, 8", params=3) for i in range(extra)]
    return report(nodes, **options)  # type: ignore[arg-type]


def result(*budgets: str, base: Report | None = None, head: Report | None = None) -> CheckResult:
    return check_reports(base or net(), head or net(1500, extra=2), [parse_budget(entry) for entry in budgets])


def section(document: Document, title: str) -> Section:
    return next(entry for entry in document.sections if entry.title == title)


def paragraphs(document: Document) -> str:
    blocks = [block for entry in document.sections for block in entry.blocks]
    return "\n".join(block.text for block in blocks if isinstance(block, Paragraph))


def markdown(document: Document) -> str:
    """What a forge is sent."""
    return renderer_by_name("markdown").render(document, RenderOptions())


def test_the_verdict_comes_first() -> None:
    document = check_document(result("flops=+10%", "params=+5%"))
    assert document.title == "net: 1 of 2 budgets broken"
    assert [entry.title for entry in document.sections][:4] == [
        "Budgets",
        "Why",
        "Edits and affected layers",
        "Layers",
    ]
    rows = next(block for block in section(document, "Budgets").blocks if isinstance(block, Table)).rows
    by_name = {row[0]: row for row in rows}
    assert by_name["FLOPs, step"] == ("FLOPs, step", "6 K", "9.084 K", "+51.4 %", "+10%", "BROKEN")


def test_broken_budgets_stand_above_the_table() -> None:
    blocks = section(check_document(result("flops=+10%", "params=+90%")), "Budgets").blocks
    broken = [at for at, block in enumerate(blocks) if isinstance(block, Paragraph) and block.role == "warning"]
    table = next(at for at, block in enumerate(blocks) if isinstance(block, Table))
    assert len(broken) == 1
    assert broken[0] < table


def test_why_names_the_edit_before_its_consequence() -> None:
    sentence = paragraphs(check_document(result("flops=+10%")))
    edit = "added.layer* added: 2 x Conv2d"
    assert f"Edited: {edit}." in sentence
    assert f"FLOPs, step +3.084 KFLOPs: {edit}: +84 FLOPs, +3 KFLOPs in 1 layer affected." in sentence
    assert sentence.index("Edited: ") < sentence.index("FLOPs, step +")
    assert "This change does 1.51x the work of the base" in sentence
    assert "--budget flops=+10%" in sentence
    assert "How to accept" not in sentence  # the command line that led to the result is not known here
    command = "profiler-kit check net.py --budget flops=10K"
    blocks = section(check_document(replace(result("flops=+10%"), accept=command)), "Budgets").blocks
    assert [block.text for block in blocks if isinstance(block, Paragraph) and block.role == "command"] == [command]


@pytest.mark.parametrize(
    ("budgets", "verdict"),
    [
        (("params=+5%",), "1 budget kept"),
        (("params=+5%", "saved=+5%"), "all 2 budgets kept"),
        (("flops=+1%", "macs=+1%", "params=+5%"), "2 of 3 budgets broken"),
        ((), "no budgets set"),
    ],
)
def test_headlines(budgets: tuple[str, ...], verdict: str) -> None:
    assert result(*budgets).verdict == verdict


def test_a_headline_for_what_cannot_be_judged() -> None:
    assert result("flops=+10%", head=net(mode="infer")).verdict == "1 of 1 budget could not be judged"
    assert check_reports(None, net(), []).verdict == "nothing comparable"


@pytest.mark.parametrize("long", [1, 60])
def test_a_comment_on_a_huge_change_stays_below_the_forge_s_limit(long: int) -> None:
    head = report(
        [node(f"{'deep_er.' * long}layer{i}", macs=i + 1, config="8->8, k_3|* " * 50, params=3) for i in range(3000)]
    )
    document = check_document(result("flops=+10%", "params=+10%", head=head))
    assert len(markdown(document)) < 65_536
    assert "layers with smaller changes are not shown" in paragraphs(document)
    table = next(block for block in section(document, "Layers").blocks if isinstance(block, Table))
    assert len(table.rows) >= 10
    assert len(json.loads(document.json)["comparison"]["layers"]) == 3001
    assert len(document.full[1].rows) == 3001


def test_nothing_is_left_out_of_a_small_change() -> None:
    document = check_document(result("flops=+10%"))
    assert "left out here" not in paragraphs(document)
    table = next(block for block in section(document, "Layers").blocks if isinstance(block, Table))
    assert {row[2] for row in table.rows} == {"conv", "added.layer0", "added.layer1"}
    groups = next(block for block in section(document, "Edits and affected layers").blocks if isinstance(block, Table))
    assert [(row[0], row[1], row[3]) for row in groups.rows] == [("edited", "added.layer*", 2), ("affected", "conv", 1)]


def test_a_check_as_json_has_its_stable_names() -> None:
    data = json.loads(check_document(result("flops=+10%")).json)
    assert (data["schema"], data["kind"], data["exit_code"]) == (1, "check", 1)
    assert data["budgets"][0]["metric"] == "flops"
    assert data["budgets"][0]["outcome"] == "broken"
    assert (
        data["budgets"][0]["base"],
        data["budgets"][0]["head"],
        data["budgets"][0]["allowed"],
    ) == (
        6000,
        9084,
        6600,
    )
    assert {entry["metric"] for entry in data["comparison"]["metrics"]} >= {
        "params",
        "macs",
        "flops",
        "saved",
        "peak",
    }
    assert json.loads(check_document(check_reports(None, net(), [])).json)["comparison"] is None


def test_a_comparison_shows_all_its_parts() -> None:
    layers = [("conv", 5.0)]
    a = net(1000, name="a", runs=[run(ms=10, layers=layers, memory=peak(10 * MIB, workspace=MIB))])
    b = net(2000, name="b", runs=[run(ms=40, layers=[("conv", 9.0)], memory=peak(12 * MIB, workspace=3 * MIB))])
    document = comparison_document(compare(a, b))
    titles = [entry.title for entry in document.sections]
    assert titles == [
        "Result",
        "Metrics",
        "Step time: work and efficiency",
        "Efficiency by layer",
        "Peak memory by category",
        "Usual explanations",
        "Edits and affected layers",
        "Layers",
        "Peak memory under the other configurations",
        "Notes",
    ]
    assert "b takes 4x the time of a: 2x the work at 0.5x the efficiency" in paragraphs(document)
    memory = section(document, "Peak memory by category").blocks[0]
    assert isinstance(memory, Table)
    assert ("workspace", 1 * MIB, 3 * MIB, 2 * MIB) in memory.rows
    assert cell(2 * MIB, memory.heads[-1]) == "+2 MiB"
    assert memory.totals == (("peak", 10 * MIB, 12 * MIB, 2 * MIB),)
    table = next(block for block in section(document, "Layers").blocks if isinstance(block, Table))
    assert cell(table.rows[0][-1], table.heads[-1]) == "+4 ms"
    assert json.loads(document.json)["kind"] == "comparison"


def test_top_limits_the_layers_and_says_so() -> None:
    document = comparison_document(compare(net(), net(1500, extra=9, name="b")), top=4)
    table = next(block for block in section(document, "Layers").blocks if isinstance(block, Table))
    assert len(table.rows) == 4
    assert "6 layers with smaller changes" in paragraphs(document)


def test_tables_have_a_cell_for_every_head() -> None:
    documents = [check_document(result("flops=+10%")), comparison_document(compare(net(), net(5, extra=1, name="b")))]
    for document in documents:
        tables = [block for entry in document.sections for block in entry.blocks if isinstance(block, Table)]
        for table in (*tables, *document.full):
            assert len({head.key for head in table.heads}) == len(table.heads)
            assert {len(row) for row in (*table.rows, *table.totals)} <= {len(table.heads)}


def test_the_same_comparison_gives_the_same_bytes() -> None:
    assert comparison_document(compare(net(), net(2, name="b"))) == comparison_document(
        compare(net(), net(2, name="b"))
    )


def test_the_root_is_called_as_in_reports() -> None:
    assert shown_path("") == "(root)"
    assert shown_path("a.b") == "a.b"


def test_every_wide_table_can_give_up_a_column_and_keeps_what_its_rows_are_told_apart_by() -> None:
    runs = [run(ms=10)]
    document = comparison_document(compare(net(runs=runs), net(1500, extra=2, runs=runs)))
    tables = [block for entry in document.sections for block in entry.blocks if isinstance(block, Table)]
    ranks = {table.name: {head.key: head.rank for head in table.heads} for table in tables}
    assert ranks["metrics"]["title"] == ranks["metrics"]["config"] == ranks["metrics"]["ratio"] == 0
    assert ranks["layers"]["layer"] == ranks["layers"]["kind"] == ranks["layers"]["flops_change"] == 0
    for name in ("metrics", "layers"):
        assert any(ranks[name].values())
