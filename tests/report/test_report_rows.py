"""The join of counted and measured figures: nothing is lost, nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import count_only, counted, v0_cpu
from traced_runs import with_traced

from profiler_kit.errors import UsageError
from profiler_kit.records.counts import PSEUDO_PATHS, Cost, ModuleNode
from profiler_kit.records.report import Report
from profiler_kit.records.traces import TraceModule
from profiler_kit.report.rows import Counted, Layers, Timed, fold, layer_rows, merge, run_by_name


def joined(report: Report) -> Layers:
    return layer_rows(report, report.baseline())


def test_rows_add_up_to_the_totals(any_report: Report) -> None:
    layers = joined(any_report)
    rows = [*layers.rows, *([layers.unattributed] if layers.unattributed else [])]
    if any_report.static is not None:
        sums = sum((row.counted for row in rows if row.counted), start=Counted())
        static = any_report.static
        assert (sums.params, sums.saved_bytes) == (static.params, static.saved_bytes)
        assert (sums.forward, sums.loss, sums.backward, sums.recompute) == (
            static.forward,
            static.loss,
            static.backward,
            static.recompute,
        )
        assert layers.total.counted == sums
    run = any_report.baseline()
    if run is not None:
        sums_timed = sum((row.timed for row in rows if row.timed), start=Timed())
        assert sums_timed.step_ns == run.device_ns
        assert layers.total.timed == sums_timed


def test_every_owner_has_exactly_one_row(any_report: Report) -> None:
    paths = [row.path for row in joined(any_report).rows]
    run = any_report.baseline()
    owners = {node.path for node in any_report.static.modules} if any_report.static else set()
    owners |= {timing.path for timing in run.modules} if run else set()
    assert sorted(paths) == sorted(owners)


def test_pseudo_paths_stand_last_and_have_rows_of_their_own(v0_report: Report) -> None:
    rows = joined(v0_report).rows
    assert [row.path for row in rows][-2:] == ["(loss)", "(optimizer)"]
    optimizer = rows[-1]
    assert optimizer.counted is None
    assert optimizer.timed is not None
    assert optimizer.timed.step_ns == optimizer.timed.phase_ns("optimizer") > 0


def test_the_root_total_is_the_model_without_the_loss(v0_report: Report) -> None:
    layers = joined(v0_report)
    root = next(row for row in layers.rows if row.path == "")
    loss = next(row for row in layers.rows if row.path == "(loss)")
    assert root.counted_total is not None
    assert loss.counted is not None
    assert root.counted_total + loss.counted == layers.total.counted


def test_times_of_a_path_that_was_not_counted_are_kept(v0_cpu_report: Report) -> None:
    run = v0_cpu_report.runs[0]
    stray = TraceModule(path="conv9", phase="forward", kernel_ns=77)
    report = replace(v0_cpu_report, runs=(with_traced(run, modules=(*run.modules, stray)),))
    row = next(row for row in joined(report).rows if row.path == "conv9")
    assert row.counted is None
    assert row.timed is not None
    assert row.timed.step_ns == 77


def test_a_run_without_a_trace_gives_no_times(v0_cpu_report: Report) -> None:
    untraced = with_traced(v0_cpu_report.runs[0], modules=(), unattributed_ns=None, traced_steps=0)
    layers = joined(replace(v0_cpu_report, runs=(untraced,)))
    assert not layers.timed
    assert all(row.timed is None for row in layers.rows)


def test_a_trace_without_any_owner_is_all_unattributed(v0_cpu_report: Report) -> None:
    lost = with_traced(v0_cpu_report.runs[0], modules=(), unattributed_ns=5)
    layers = joined(replace(v0_cpu_report, static=None, runs=(lost,)))
    assert layers.rows == ()
    assert layers.total.timed is not None
    assert layers.total.timed.step_ns == 5


def test_fold_adds_children_into_the_ancestor_at_that_depth() -> None:
    leaf = Cost(macs=5, flops=10)
    nodes = tuple(
        ModuleNode(path=path, class_name=name, forward=cost, output_bytes=size)
        for path, name, cost, size in (
            ("", "Net", Cost(flops=1), 4),
            ("a", "Block", Cost(flops=2), 8),
            ("a.b", "Linear", leaf, 16),
            ("a.b.c", "Linear", leaf, 32),
            ("ab", "Linear", leaf, 64),
        )
    )
    rows = joined(replace(count_only(), static=counted(nodes))).rows
    folded = fold(rows, 1)
    assert [row.path for row in folded] == ["", "a", "ab"]
    block = folded[1]
    assert block.counted is not None
    assert block.counted.forward == Cost(macs=10, flops=22)
    assert (block.class_name, block.output_bytes) == ("Block", 8)
    folded = fold(rows, 0)
    assert [row.path for row in folded] == [""]
    assert folded[0].counted == joined(replace(count_only(), static=counted(nodes))).total.counted


PATHS = st.lists(
    st.lists(st.sampled_from("abc"), max_size=4).map(".".join) | st.sampled_from(PSEUDO_PATHS),
    unique=True,
    min_size=1,
    max_size=12,
)


@given(paths=PATHS, depth=st.integers(0, 4), data=st.data())
def test_folding_and_merging_keep_the_sum(paths: list[str], depth: int, data: st.DataObject) -> None:
    numbers = st.integers(0, 1000)
    nodes = tuple(
        ModuleNode(path=path, class_name="M", params=data.draw(numbers), forward=Cost(flops=data.draw(numbers)))
        for path in paths
    )
    timings = tuple(TraceModule(path=path, phase="forward", kernel_ns=data.draw(numbers)) for path in paths)
    base = v0_cpu()
    run = with_traced(base.runs[0], modules=timings, unattributed_ns=data.draw(numbers))
    layers = layer_rows(replace(base, static=counted(nodes), runs=(run,)), run)
    folded = fold(layers.rows, depth)
    assert all(row.depth <= depth for row in folded)
    assert merge("", folded).counted == layers.total.counted
    timed = merge("", folded).timed
    assert timed is not None
    assert timed.step_ns + (run.unattributed_ns or 0) == run.device_ns


def test_the_named_run_is_chosen_and_others_are_refused(v0_report: Report) -> None:
    chosen = run_by_name(v0_report, "no-tf32")
    assert chosen is not None
    assert chosen.config.name == "no-tf32"
    with pytest.raises(UsageError, match="'nonsense'") as error:
        run_by_name(v0_report, "nonsense")
    assert "default" in (error.value.hint or "")
    with pytest.raises(UsageError, match=r"'cudnn-off'.*failed"):
        run_by_name(v0_report, "cudnn-off")


def test_no_run_is_chosen_where_all_failed(failed_report: Report) -> None:
    assert run_by_name(failed_report) is None
