"""Two traces beside each other: sums, names, noise, sentences; and the published pair that differs in its loader alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_traces import PUBLISHED, published
from trace_reports import kernel, ms, trace

from profiler_kit.comparison.trace_alignment import (
    TimedEntry,
    align_entries,
    drop_outermost,
    operator_key,
    wrapper_depths,
)
from profiler_kit.comparison.trace_ranks import compare_ranks
from profiler_kit.comparison.traces import compare_traces
from profiler_kit.errors import NotComparableError
from profiler_kit.pipeline.trace_reading import summary
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.document import Table
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.records.traces import (
    IDLE_CAUSES,
    IdleTime,
    PhaseTime,
    ShapedOperator,
    SyncWait,
    TraceModule,
    TraceOperator,
    TraceStep,
    TraceSummary,
)
from profiler_kit.report.trace_comparison import trace_comparison_document


def steps(*kernel_ms: float) -> tuple[TraceStep, ...]:
    return tuple(
        TraceStep(number=i, host_ns=ms(10), device_ns=ms(10), kernel_ns=ms(each), idle_ns=0, steady=True)
        for i, each in enumerate(kernel_ms)
    )


def changed(one: TraceSummary, **fields: Any) -> TraceSummary:
    return replace(one, **fields)


def named(name: str, ns: int, phase: str = "") -> TimedEntry:
    return TimedEntry(name, ns, 1, phase)


def assert_sums_hold(compared: TraceComparison) -> None:
    """Every part sums to its whole on each side, so the differences do too."""
    for side in ("a_ns", "b_ns", "change_ns"):
        busy, idle = (sum(getattr(row, side) for row in rows) for rows in (compared.phases, compared.causes))
        assert busy == getattr(compared.busy, side)
        assert idle == getattr(compared.idle, side)
        assert busy + idle == getattr(compared.span, side)


times = st.integers(0, 10**12)


@st.composite
def summaries(draw: st.DrawFn) -> TraceSummary:
    phases = tuple(
        PhaseTime(phase=phase, host_ns=None, kernel_ns=draw(times), sum_ns=0, idle_ns=0, wait_ns=0, events=1)
        for phase in draw(st.lists(st.sampled_from(TRACE_PHASES), unique=True))
    )
    idle = tuple(
        IdleTime(cause=cause, phase=phase, ns=draw(times), gaps=1)
        for cause in draw(st.lists(st.sampled_from(IDLE_CAUSES), unique=True))
        for phase in draw(st.lists(st.sampled_from(TRACE_PHASES), unique=True, min_size=1, max_size=2))
    )
    lost = draw(st.integers(1, 10**9))
    busy = sum(one.kernel_ns for one in phases) + lost
    gaps = sum(one.ns for one in idle)
    return changed(
        trace(), phases=phases, idle=idle, busy_ns=busy, idle_ns=gaps, span_ns=busy + gaps, unattributed_ns=lost,
        steps=steps(*[1.0] * draw(st.integers(0, 7))),
    )  # fmt: skip


@given(summaries(), summaries())
def test_phases_and_causes_sum_to_the_span_whatever_the_steps(a: TraceSummary, b: TraceSummary) -> None:
    compared = compare_traces(a, b)
    assert_sums_hold(compared)
    per = bool(a.steps) and bool(b.steps) and len(a.steps) != len(b.steps)
    assert compared.per == ("step" if per else "trace")
    assert compared.span.a_ns == a.span_ns // (len(a.steps) if per else 1)
    assert compared.span.b_ns == b.span_ns // (len(b.steps) if per else 1)


entries = st.lists(
    st.builds(TimedEntry, st.sampled_from(["aten::a", "aten::cudnn_a", "aten::b_", "c", "d"]), st.integers(0, 99), st.just(1),
              st.sampled_from(["", "forward"]), st.sampled_from(["x", "y"])), max_size=8
)  # fmt: skip


@given(entries, entries)
def test_every_entry_stands_in_one_row(a: list[TimedEntry], b: list[TimedEntry]) -> None:
    for key in (None, operator_key):
        rows = align_entries(a, b, key)
        assert sum(row.a_ns for row in rows) == sum(one.ns for one in a)
        assert sum(row.b_ns for row in rows) == sum(one.ns for one in b)
        assert sum(row.a_calls for row in rows) == len(a)
        assert len({(row.name, row.phase, row.alike) for row in rows}) == len(rows)


def test_operators_of_2021_meet_those_of_now() -> None:
    a = [
        named("aten::cudnn_convolution_backward_input", 30),
        named("aten::cudnn_convolution_backward_weight", 20),
        named("aten::add_", 5),
    ]
    b = [named("aten::convolution_backward", 40), named("aten::add_", 5), named("aten::gelu", 1)]
    backward, gelu, same = align_entries(a, b, operator_key)
    assert (backward.name, backward.a_ns, backward.b_ns, backward.alike) == ("convolution_backward", 50, 40, "alike")
    assert backward.a_names == ("aten::cudnn_convolution_backward_input", "aten::cudnn_convolution_backward_weight")
    assert backward.b_names == ("aten::convolution_backward",)
    assert (gelu.name, gelu.alike) == ("aten::gelu", "only b")
    assert (same.name, same.alike, same.change_ns) == ("aten::add_", "same", 0)


def test_kernels_of_two_gpus_meet_by_what_they_do() -> None:
    a = trace(kernels=(kernel("conv:legacy_cask", 20, 4, op="fprop", name="volta_scudnn_128x64_relu"),))
    b = trace(kernels=(kernel("conv:xmma_igemm", 10, 4, op="fprop", name="sm90_xmma_fprop"),))
    row = next(row for row in compare_traces(a, b).kernels if row.alike == "alike")
    assert (row.name, row.a_ns, row.b_ns) == ("conv fprop", ms(20), ms(10))
    assert (row.a_names, row.b_names) == (("volta_scudnn_128x64_relu",), ("sm90_xmma_fprop",))


def test_module_paths_meet_below_what_wraps_the_model() -> None:
    inside = ["ResNet_0.Conv2d_0", "ResNet_0.Sequential_0.Conv2d_1"]
    wrapped = [f"DistributedDataParallel_0.{path}" for path in inside]
    assert wrapper_depths(inside, inside) == (0, 0)
    assert wrapper_depths(inside, wrapped) == (0, 1)
    assert wrapper_depths(wrapped, inside) == (1, 0)
    assert wrapper_depths(["A.x", "A.y"], ["B.x", "B.y"]) == (1, 1)
    assert wrapper_depths(["a"], ["b"]) == (0, 0)
    assert wrapper_depths([], []) == (0, 0)
    assert drop_outermost("a.b.c", 1) == "b.c"
    assert drop_outermost("a", 1) is None


def test_modules_are_compared_by_phase_under_their_common_names() -> None:
    def with_modules(root: str, forward: int, backward: int) -> TraceSummary:
        one = TraceModule(path=f"{root}.fc", class_name="Linear", phase="forward", kernel_ns=ms(forward), events=1)
        modules = (one, replace(one, phase="backward", kernel_ns=ms(backward)))
        return changed(trace(), modules=modules, has_modules=True)

    rows = compare_traces(with_modules("Net_0", 10, 20), with_modules("Wrapper_0.Net_0", 10, 35)).modules
    assert [(row.name, row.phase, row.change_ns, row.alike) for row in rows] == [
        ("Net_0.fc" if rows[0].name.startswith("Net") else "fc", "backward", ms(15), "same"),
        (rows[0].name, "forward", 0, "same"),
    ]


def test_the_same_work_is_said_to_be_so_and_the_cause_named() -> None:
    a = replace(trace("runs/before.json", idle={("waiting for data", "forward"): 280.0}), steps=steps(15, 15.1, 15.2))
    b = replace(trace("runs/after.json", idle={("waiting for data", "forward"): 3.0}), steps=steps(15, 15, 15))
    compared = compare_traces(a, b)
    assert compared.same_work
    assert compared.noise == pytest.approx(0.02)
    told = " ".join(compared.sentences)
    assert "Over 3 steps each, after takes 277 ms (75 %) less than before: 370 ms -> 93 ms" in told
    assert "The work on the device is the same: 90 ms and 90 ms" in told
    assert "waiting for data -277 ms (280 ms -> 3 ms)." in told
    assert any("single sample" in note for note in compared.notes)


def test_a_trace_beside_itself_differs_in_nothing() -> None:
    whole = replace(trace(idle={("python", "forward"): 5.0}), steps=steps(1, 1))
    compared = compare_traces(whole, whole)
    assert compared.same_work
    assert compared.span.change_ns == 0
    assert "the same time as" in compared.sentences[0]
    assert not any(row.change_ns for rows in (compared.phases, compared.causes, compared.kernels) for row in rows)


def test_ranks_are_compared_by_the_mean_of_those_that_both_have() -> None:
    """Of ranks that are all alike the mean is the one; what only one side has is left out, and said."""
    a, b = (changed(one, steps=steps(10, 10, 10)) for one in (trace(), trace(idle={("python", "forward"): 7.0})))
    alone = compare_traces(a, b)
    ranks = compare_ranks({0: a, 1: a, 2: a}, {1: b, 2: b, 5: b}, names=("runs/a", "runs/b"))
    assert_sums_hold(ranks)
    assert (ranks.a.label, ranks.b.label, ranks.a.ranks) == ("a", "b", 2)
    for part in ("span", "busy", "idle", "phases", "causes", "noise", "per"):
        assert getattr(ranks, part) == getattr(alone, part)
    assert ranks.a.steps == alone.a.steps
    assert "ranks 1, 2" in ranks.notes[0]
    assert "Ranks 0, 5" in ranks.notes[1]


@given(st.lists(summaries(), min_size=4, max_size=4), st.integers(0, 4))
def test_means_of_ranks_sum_to_the_span_too(each: list[TraceSummary], count: int) -> None:
    each = [changed(one, steps=steps(*[1.0] * (count if i < 2 else 3))) for i, one in enumerate(each)]
    compared = compare_ranks(dict(enumerate(each[:2])), dict(enumerate(each[2:])), names=("a", "b"))
    assert_sums_hold(compared)
    over = 2 * (count if compared.per == "step" else 1)
    assert compared.span.a_ns == (each[0].span_ns + each[1].span_ns) // over


def test_ranks_that_have_nothing_in_common_are_not_compared() -> None:
    with pytest.raises(NotComparableError, match="rank 0 and ranks 1, 2"):
        compare_ranks({0: trace()}, {1: trace(), 2: trace()}, names=("a", "b"))
    uneven = {0: changed(trace(), steps=steps(1, 1)), 1: changed(trace(), steps=steps(1))}
    with pytest.raises(NotComparableError, match=r"b: .* 1 to 2 steps"):
        compare_ranks({0: trace(), 1: trace()}, uneven, names=("a", "b"))


@pytest.mark.parametrize(
    ("a", "b", "noise", "said"),
    [
        ((10, 12), (10, 10, 10), 0.02, "fewer than three steady steps"),
        ((10, 10.1, 10), (10, 10, 10), 0.02, "the minimum for two runs"),
        ((10, 11, 10), (10, 10, 10), 0.1, "by up to 10 % and 0 %: the noise is 10 %."),
    ],
)
def test_the_noise_is_how_far_steps_differ_where_both_have_three(
    a: tuple[float, ...], b: tuple[float, ...], noise: float, said: str
) -> None:
    compared = compare_traces(changed(trace(), steps=steps(*a)), changed(trace(), steps=steps(*b)))
    assert compared.noise == pytest.approx(noise)
    assert any(said in note for note in compared.notes)


def test_steps_that_differ_widely_are_noise() -> None:
    a = replace(trace(phases={"forward": (None, 100.0, 0)}), steps=steps(40, 50, 60))
    b = replace(trace(phases={"forward": (None, 130.0, 0)}), steps=steps(50, 50, 50))
    compared = compare_traces(a, b)
    assert compared.a.spread == pytest.approx(0.4)
    assert compared.b.spread == 0
    assert compared.same_work
    assert not compare_traces(replace(a, steps=b.steps), b).same_work


def test_more_work_is_told_by_phase_module_operator_and_kernel() -> None:
    operators = (TraceOperator(name="aten::mm", family="gemm", calls=3, kernel_ns=ms(60), host_self_ns=0),)
    a = replace(trace("a/one.json", kernels=(kernel("gemm", 60, 3, name="sgemm"),)), operators=operators)
    more = replace(operators[0], kernel_ns=ms(90))
    b = trace(
        "a/two.json",
        phases={"forward": (None, 60.0, 0), "backward": (None, 60.0, 0)},
        kernels=(kernel("gemm", 90, 3, name="sgemm"),),
    )
    told = compare_traces(a, replace(b, operators=(more,))).sentences
    assert any("takes 30 ms (33 %) more than in one, 90 ms -> 120 ms: forward +30 ms" in one for one in told)
    assert "By operator: aten::mm +30 ms." in told
    assert "By kernel: sgemm +30 ms." in told


def test_waits_of_the_host_are_compared_whatever_the_phase() -> None:
    waits = tuple(
        SyncWait(name="aten::item", call="cudaStreamSynchronize", phase=phase, calls=2, wait_ns=ms(5), waited_for=())
        for phase in ("loss", "")
    )
    (row,) = compare_traces(replace(trace(), syncs=waits), trace()).waits
    assert (row.name, row.a_ns, row.a_calls, row.alike) == ("aten::item (cudaStreamSynchronize)", ms(10), 4, "only a")


def test_a_device_and_a_host_share_no_clock() -> None:
    with pytest.raises(NotComparableError, match="share no clock"):
        compare_traces(trace(), replace(trace(), clock="host"))
    with pytest.raises(NotComparableError, match="no timed work"):
        compare_traces(trace(), replace(trace(), span_ns=0))


@pytest.mark.parametrize(
    ("a", "b", "labels"),
    [
        ("x/slow.json.gz", "x/fast.json.gz", ("slow", "fast")),
        ("before/trace.json", "after/trace.json", ("before", "after")),
        ("w0/worker0.1623143089861.pt.trace.json.gz", "w4/worker0.1623212756351.pt.trace.json.gz", ("w0", "w4")),
        ("t.json", "t.json", ("a", "b")),
    ],
)  # fmt: skip
def test_sides_are_called_by_what_tells_them_apart(a: str, b: str, labels: tuple[str, str]) -> None:
    compared = compare_traces(trace(a), trace(b))
    assert (compared.a.label, compared.b.label) == labels


def test_the_document_holds_every_row_for_programs_and_the_largest_for_people() -> None:
    many = tuple(kernel("gemm", i + 1, 1, name=f"k{i}") for i in range(30))
    document = trace_comparison_document(compare_traces(trace(kernels=many), trace()), top=5)
    shown = next(block for section in document.sections if section.title == "Kernels" for block in section.blocks)
    assert isinstance(shown, Table)
    assert len(shown.rows) == 5
    written = json.loads(document.json)
    assert written["kind"] == "trace_comparison"
    changes, *parts = document.full
    assert [row for part in parts for row in part.rows] == list(changes.rows)
    kernels = [row for row in changes.rows if row[0] == "kernels"]
    assert len(kernels) == len(written["kernels"]) >= 30
    assert (
        sum(int(str(row[5])) for row in changes.rows if row[0] in ("phases", "causes"))
        == written["span"]["b_ns"] - written["span"]["a_ns"]
    )


def test_changes_know_their_sign() -> None:
    assert TimeChange(name="x", a_ns=5, b_ns=3).change_ns == -2


@published
def test_the_loader_s_workers_do_the_same_work_and_wait_less() -> None:
    a, b = (summary(next((PUBLISHED / "kineto" / f"resnet50_num_workers_{n}").glob("*.json.gz"))) for n in (0, 4))
    compared = compare_traces(a, b)
    assert_sums_hold(compared)
    assert (compared.a.label, compared.b.label) == ("resnet50_num_workers_0", "resnet50_num_workers_4")
    assert compared.per == "trace"
    assert compared.same_work
    data = next(row for row in compared.causes if row.name == "waiting for data")
    assert (data.a_ns // 10**6, data.b_ns // 10**6) == (283, 2)
    told = " ".join(compared.sentences)
    assert "The work on the device is the same: 603.6 ms and 614.4 ms" in told
    assert "waiting for data -280.9 ms (283.7 ms -> 2.77 ms)" in told


@published
def test_a_network_of_2021_beside_one_of_now() -> None:
    a = summary(next((PUBLISHED / "kineto" / "resnet50_num_workers_0").glob("*.json.gz")))
    b = summary(PUBLISHED / "h200_ddp" / "ddp_plain_rank0.json.gz")
    compared = compare_traces(a, b)
    assert_sums_hold(compared)
    assert compared.per == "step"
    assert not compared.same_work
    backward = next(row for row in compared.operators if row.name == "convolution_backward")
    assert backward.alike == "alike"
    assert backward.a_ns > 5 * backward.b_ns > 0
    conv = {row.name for row in compared.kernels if row.alike == "alike"}
    assert {"conv fprop", "conv dgrad", "conv wgrad"} <= conv
    assert any("devices differ" in note for note in compared.notes)


def shaped(name: str, *shapes: tuple[int, ...], each: float = 10.0) -> ShapedOperator:
    return ShapedOperator(
        name=name, family="conv", shapes=shapes, calls=1, kernel_ns=ms(each), forward_ns=ms(each), backward_ns=0, recompute_ns=0
    )  # fmt: skip


def test_the_first_sentence_names_what_differs_in_kind_and_the_cause_with_its_share() -> None:
    a = replace(
        trace("a/one.json", phases={"forward": (None, 60.0, 0)}, kernels=(kernel("gemm", 60, 3, name="sgemm", math="fp32"),)),
        devices=("V100",), world_size=1, shapes=(shaped("aten::conv2d", (64, 3, 8, 8), (4, 3, 3, 3)),),
    )  # fmt: skip
    b = replace(
        trace("a/two.json", phases={"forward": (None, 20.0, 0), "optimizer": (None, 10.0, 0)},
              kernels=(kernel("gemm", 30, 3, name="hgemm", math="bf16"),)),
        devices=("H100",), world_size=8, compiled=True, shapes=(shaped("aten::conv2d", (32, 3, 8, 8), (4, 3, 3, 3)),),
    )  # fmt: skip
    compared = compare_traces(a, b)
    assert [(change.kind, change.a, change.b) for change in compared.kinds] == [
        ("device", "V100", "H100"),
        ("world size", "1", "8"),
        ("mode", "inference", "training"),
        ("torch.compile", "no", "yes"),
        ("main arithmetic", "fp32 SIMT", "bf16"),
        ("batch size", "64", "32"),
    ]
    first = compared.sentences[0]
    assert first.startswith("The runs differ in kind: device V100 -> H100; world size 1 -> 8;")
    assert "Main cause: forward -40 ms, 100 % of the time saved. Other changes of +10 ms go the other way." in first


BATCH, ROWS = "batch size", "first dimension of the inputs"
IMAGES = shaped("aten::conv2d", (8, 3, 9, 9), (4, 3, 3, 3), each=90)


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ([shaped("aten::linear", (8, 5), (7, 5))], [shaped("aten::linear", (16, 5), (7, 5))], (ROWS, "8", "16")),
        ([shaped("aten::linear", (8, 5), (7, 5))], [shaped("aten::linear", (8, 5), (7, 5))], None),
        ([shaped("aten::linear", (8, 5), (7, 5))], [shaped("aten::linear", (16, 6), (7, 6))], None),
        ([shaped("aten::add", (8, 5), (8, 5))], [shaped("aten::add", (4, 5), (2, 5))], None),
        ([shaped("aten::linear", (8, 5)), shaped("aten::conv2d", (3, 4), each=90)],
         [shaped("aten::linear", (16, 5)), shaped("aten::conv2d", (3, 4), each=90)], None),
        # sequence first: the rows are positions times examples
        ([shaped("aten::mm", (106, 5), (5, 7))], [shaped("aten::mm", (228, 5), (5, 7))], (ROWS, "106", "228")),
        ([shaped("aten::linear", (53, 2, 5), (7, 5))], [shaped("aten::linear", (57, 2, 5), (7, 5))], (ROWS, "53", "57")),
        # packed: the rows are those of all sequences; heads: the first of three dimensions may be both
        ([shaped("aten::bmm", (16, 9, 5), (16, 5, 9))], [shaped("aten::bmm", (32, 9, 5), (32, 5, 9))], (ROWS, "16", "32")),
        ([shaped("aten::scaled_dot_product_attention", (16, 9, 5), (16, 9, 5))],
         [shaped("aten::scaled_dot_product_attention", (32, 9, 5), (32, 9, 5))], (ROWS, "16", "32")),
        ([shaped("aten::scaled_dot_product_attention", (2, 8, 9, 5), (2, 8, 9, 5))],
         [shaped("aten::scaled_dot_product_attention", (4, 8, 9, 5), (4, 8, 9, 5))], (BATCH, "2", "4")),
        # an image without a batch: the first dimension is that of the channels
        ([shaped("aten::conv2d", (3, 9, 9), (4, 3, 3, 3))], [shaped("aten::conv2d", (6, 9, 9), (4, 3, 3, 3))], (ROWS, "3", "6")),
        ([IMAGES, shaped("aten::linear", (8, 5), (7, 5))],
         [shaped("aten::conv2d", (16, 3, 9, 9), (4, 3, 3, 3)), shaped("aten::linear", (16, 5), (7, 5))], (BATCH, "8", "16")),
        ([IMAGES], [IMAGES], None),
    ],
)  # fmt: skip
def test_only_operators_that_define_a_batch_show_its_size(
    a: list[ShapedOperator], b: list[ShapedOperator], sizes: tuple[str, str, str] | None
) -> None:
    compared = compare_traces(replace(trace("x/a"), shapes=tuple(a)), replace(trace("x/b"), shapes=tuple(b)))
    assert [(change.kind, change.a, change.b) for change in compared.kinds] == ([sizes] if sizes else [])


def test_a_difference_within_the_noise_has_no_cause() -> None:
    a, b = trace("x/a"), trace("x/b", idle={("python", "forward"): 1.0})
    assert compare_traces(a, b).sentences[0] == "The difference in time is within the noise."


def test_long_file_names_get_short_labels_and_the_title_says_which() -> None:
    a, b = f"runs/{'long_name_' * 5}one.json", f"runs/{'long_name_' * 5}two.json"
    compared = compare_traces(trace(a), trace(b, phases={"forward": (None, 60.0, 0)}))
    assert (compared.a.label, compared.b.label) == ("A", "B")
    assert trace_comparison_document(compared).title == f"A is {a}, B is {b}"
    assert any("A" in sentence and a not in sentence for sentence in compared.sentences)


def test_a_trace_without_phases_is_not_said_to_run_inference() -> None:
    device_only = trace(phases={"other": (None, 90.0, 0.0)})
    trained = trace(phases={"forward": (30.0, 30.0, 0.0), "backward": (60.0, 60.0, 0.0), "recompute": (None, 5.0, 0.0)})
    assert compare_traces(device_only, changed(trained, compiled=True)).kinds == ()
    inference = trace(phases={"forward": (90.0, 90.0, 0.0)})
    assert [change.kind for change in compare_traces(inference, trained).kinds] == ["mode"]


def test_layout_conversions_are_not_the_main_arithmetic() -> None:
    product = kernel("conv: implicit gemm", 40.0, 3, math="bf16")
    a = trace(kernels=[kernel("conv:layout", 50.0, 3, math="f16"), product])
    assert compare_traces(a, trace(kernels=[product])).kinds == ()


def test_work_outside_the_steps_is_not_counted_into_them() -> None:
    outside = PhaseTime(phase="backward", host_ns=0, kernel_ns=ms(30), sum_ns=ms(30), idle_ns=0, wait_ns=0, events=3)
    a = changed(trace(), steps=steps(30, 30, 30), step_ns=ms(30))
    compared = compare_traces(a, changed(a, file="runs/other.json", outside_steps=(outside,)))
    (span,) = [line for line in compared.sentences if "step" in line]
    assert "Over 3 steps each" not in span
    assert "with work outside the steps; a step takes 30 ms and 30 ms" in span


def test_two_ranks_of_a_job_are_to_be_inspected_together() -> None:
    first = changed(trace("runs/rank0.json"), rank=0, world_size=2)
    second = changed(trace("runs/rank1.json"), rank=1, world_size=2)
    command = "profiler-kit inspect runs/rank0.json runs/rank1.json"
    assert any(command in note for note in compare_traces(first, second).notes)
    assert not any(command in note for note in compare_traces(first, changed(second, rank=0)).notes)
