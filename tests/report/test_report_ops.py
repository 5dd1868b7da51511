"""Ops: the same total as the modules', cut the other way; what is unknown is a dash and adds nothing."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from sample_reports import count_only

from profiler_kit.errors import UsageError
from profiler_kit.records.counts import COUNT_PHASES, ZERO, Cost, OpTotal
from profiler_kit.records.document import Document, Table
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import report_document

CONV = Cost(macs=100, flops=210, read_bytes=60, write_bytes=10)
BACKWARD = CONV + CONV
RELU = Cost(flops=30, read_bytes=120, write_bytes=120)


def report() -> Report:
    """Convolution in both directions, an activation in forward and loss, a view, and an op without a formula."""
    ops = (
        OpTotal(op="aten.convolution", phase="forward", calls=2, cost=CONV),
        OpTotal(op="aten.relu", phase="forward", calls=3, cost=RELU),
        OpTotal(op="aten.view", phase="forward", calls=7, cost=ZERO),
        OpTotal(op="lib.mystery", phase="forward", calls=1, cost=None),
        OpTotal(op="aten.relu", phase="loss", calls=1, cost=RELU),
        OpTotal(op="aten.convolution", phase="backward", calls=4, cost=BACKWARD),
    )
    sample = count_only()
    assert sample.static is not None
    costs = {
        phase: sum((o.cost for o in ops if o.cost is not None and o.phase == phase), start=ZERO)
        for phase in COUNT_PHASES
    }
    return replace(sample, static=replace(sample.static, ops=ops, **costs))  # type: ignore[arg-type]


def ops_of(document: Document) -> Table:
    section = next(s for s in document.sections if s.title == "Ops")
    return next(block for block in section.blocks if isinstance(block, Table))


def values(table: Table, key: str) -> dict[object, object]:
    index = [head.key for head in table.heads].index(key)
    return {row[0]: row[index] for row in table.rows}


def test_ops_add_up_to_the_step() -> None:
    sample = report()
    assert sample.static is not None
    table = ops_of(report_document(sample, by="op"))
    total = dict(zip([head.key for head in table.heads], table.totals[0], strict=True))
    assert total["flops"] == sample.static.step.flops == 210 * 3 + 60
    assert total["traffic_bytes"] == sample.static.step.bytes_moved
    for key in ("calls", "macs", "flops", "traffic_bytes", "flops_share_percent"):
        parts = [value for value in values(table, key).values() if value is not None]
        assert sum(parts) == pytest.approx(total[key])  # type: ignore[arg-type]
    assert values(table, "phase")["aten.relu"] == "forward, loss"
    assert values(table, "calls")["aten.convolution"] == 6


def test_unknown_is_no_zero() -> None:
    flops = values(ops_of(report_document(report(), by="op")), "flops")
    assert flops["lib.mystery"] is None
    assert flops["aten.view"] == 0


def test_intensity_is_flops_per_byte() -> None:
    table = ops_of(report_document(report(), by="op"))
    assert values(table, "intensity")["aten.convolution"] == pytest.approx(630 / 210)
    assert values(table, "intensity")["aten.view"] is None


def test_ops_are_sorted_and_cut() -> None:
    sample = report()
    assert list(values(ops_of(report_document(sample, by="op")), "flops"))[:2] == ["aten.convolution", "aten.relu"]
    by_calls = ops_of(report_document(sample, by="op", sort="calls"))
    assert next(iter(values(by_calls, "calls"))) == "aten.view"
    by_bytes = ops_of(report_document(sample, by="op", sort="bytes", top=1))
    assert list(values(by_bytes, "calls").items()) == [("aten.relu", 4), ("(3 more)", 14)]
    in_order = ops_of(report_document(sample, by="op", sort="model"))
    assert list(values(in_order, "op")) == ["aten.convolution", "aten.relu", "aten.view", "lib.mystery"]
    with pytest.raises(UsageError, match="'params'"):
        report_document(sample, by="op", sort="params")


def test_the_csv_is_the_table_by_op_and_phase() -> None:
    text = renderer_by_name("csv").render(report_document(report(), by="op"), RenderOptions())
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["op"], row["phase"], row["flops"]) for row in rows][-1] == ("aten.convolution", "backward", "420")
    assert len(rows) == 6
    layers = renderer_by_name("csv").render(report_document(report()), RenderOptions())
    assert layers.startswith("path,")
