"""What a step saves without the parts that a finding claims: hand-made traces whose savings follow by arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inspection_traces import ENGINE, MAIN, Event, call, kernel, launch, mark, node, op, table

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.launch_sites import launch_sites
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.diagnosis.step_savings import StepSavings
from profiler_kit.diagnosis.work_sites import removable_sites
from profiler_kit.records.claims import claim_of_text, idle_claims, kernel_claims
from profiler_kit.records.report import Finding
from profiler_kit.simulation.from_trace import TraceGraph, trace_graph
from profiler_kit.simulation.graph import NONE, Link
from profiler_kit.simulation.host_pieces import host_pieces
from profiler_kit.simulation.profiler_cost import ProfilerCost
from profiler_kit.simulation.repaired_step import repaired_step
from profiler_kit.simulation.replayed_trace import replayed
from profiler_kit.simulation.step_model import Change, StepModel, step_model
from profiler_kit.traces.reader import read

FREE = ProfilerCost(operator_ns=0, frame_ns=0, range_ns=0, call_ns=0, shapes_ns=0, kept_share=1.0)
STEP_US = 1_000


def change(share: float, *claims: str) -> Change:
    """The change that removes `share` of the traced step from the parts of it in `claims`."""
    return Change(tuple(map(claim_of_text, claims)), share)


def model(tmp_path: Path, events: list[Event]) -> StepModel:
    """The model of a trace whose profiler takes no time."""
    attribution = attribute(table(tmp_path, events))
    return step_model(attribution, trace_graph(attribution), FREE)


def steps(rows: list[tuple[str, float, float, float, str]], count: int = 4, behind_us: float = 0.0) -> list[Event]:
    """Four steps or more, which end on the host with their last operator. Each operator launches a kernel at its end.

    Rows: the operator, its start and end on the host, and the time and the name of its kernel, which runs after the kernel
    before it.
    """
    events, free, number, length = [], behind_us, 0, max(row[2] for row in rows)
    for i in range(count):
        begin = i * length
        events.append(mark(f"ProfilerStep#{i + 1}", begin, begin + length))
        for name, start, end, kernel_us, kernel_name in rows:
            number += 1
            events += [op(name, begin + start, begin + end), launch(number, begin + end - 2, begin + end - 1)]
            free = max(free, begin + end)
            events.append(kernel(kernel_name, free, free + kernel_us, number))
            free += kernel_us
    return events


# The device is the limit: two kernels of 500 us in each step, which the host launches in 20 us.
DEVICE_BOUND = [("aten::mm", 0, 10, 500, "gemm"), ("aten::add", 10, 20, 500, "elementwise_kernel")]
# The host is the limit: 900 us in an operator, and 100 us in the other; kernels take 10 us each.
HOST_BOUND = [("aten::mm", 0, 100, 10, "gemm"), ("aten::add", 100, 1000, 10, "elementwise_kernel")]


def test_device_work_is_saved_where_the_device_is_the_limit(tmp_path: Path) -> None:
    step = model(tmp_path, steps(DEVICE_BOUND))
    assert step.saving(change(0.5, "busy:kernel:gemm")) == pytest.approx(0.5, abs=0.02)
    assert step.saving(change(0.25, "busy:kernel:gemm")) == pytest.approx(0.25, abs=0.02)
    assert step.saving(change(1.0, "busy")) > 0.9


def test_work_of_steps_before_the_trace_is_no_part_of_a_step(tmp_path: Path) -> None:
    """The device is 2 ms behind when the trace begins. Half of the work of each step saves half of it all the same."""
    step = model(tmp_path, [*steps(DEVICE_BOUND, behind_us=2_000), kernel("gemm", 10, 2_010, 900)])
    assert step.saving(change(0.5, "busy:kernel:elementwise_kernel")) == pytest.approx(0.5, abs=0.02)


def test_a_share_is_that_of_the_step_without_the_profiler(tmp_path: Path) -> None:
    """The profiler takes most of the step. Three fifths of a kernel of the rest are no more than that, and its launch stays."""
    attribution = attribute(table(tmp_path, steps(HOST_BOUND)))
    trace = trace_graph(attribution)
    step = step_model(attribution, trace, replace(FREE, operator_ns=400_000, kept_share=0.1))
    kernel_share = 10 * STEP_US * 3 / step.steps_ns[0]
    assert kernel_share > 0.018, "of the traced step it is 1 %"
    assert step.saving(change(0.6 * kernel_share, "busy:kernel:elementwise_kernel")) == pytest.approx(0.0, abs=0.01)
    assert step.saving(change(kernel_share, "busy:kernel:elementwise_kernel")) > 0.3, "all of it goes with its launch"


def test_device_work_saves_its_launch_alone_where_the_host_is_the_limit(tmp_path: Path) -> None:
    step = model(tmp_path, steps(HOST_BOUND))
    assert step.saving(change(0.01, "busy:kernel:gemm")) == pytest.approx(0.1, abs=0.02)
    assert step.saving(change(0.01, "busy:kernel:elementwise_kernel")) == pytest.approx(0.9, abs=0.02)


def test_host_work_is_saved_where_the_device_waited_for_it(tmp_path: Path) -> None:
    waiting = model(tmp_path, steps(HOST_BOUND))
    assert waiting.saving(change(1.0, "host")) > 0.9
    assert waiting.saving(change(0.49, "idle:op dispatch")) == pytest.approx(0.49, abs=0.05)
    assert model(tmp_path, steps(DEVICE_BOUND)).saving(change(1.0, "host")) == pytest.approx(0.0, abs=0.03)


def test_the_steps_before_and_after_a_repair_differ_by_its_saving(tmp_path: Path) -> None:
    step, repair = model(tmp_path, steps(DEVICE_BOUND)), change(0.5, "busy:kernel:gemm")
    drawn = repaired_step(step, repair, finding=3)
    assert (drawn.finding, drawn.steps) == (3, 3), "the end of the recording lengthens the fourth step"
    assert 1.0 - drawn.after_ns / drawn.before_ns == pytest.approx(step.saving(repair))
    for spans, steps_ns in ((drawn.before, drawn.before_ns), (drawn.after, drawn.after_ns)):
        assert list(dict.fromkeys(span.lane for span in spans)) == ["host", "device: stream 7"]
        assert all(0 <= span.start_ns < span.end_ns <= steps_ns for span in spans)
        device_ns = sum(span.end_ns - span.start_ns for span in spans if span.lane != "host")
        assert device_ns == pytest.approx(steps_ns, rel=0.02), "the device is the limit"


def test_a_saving_after_another_adds_up_to_that_of_both(tmp_path: Path) -> None:
    step = model(tmp_path, steps(DEVICE_BOUND))
    first, second = change(0.5, "busy:kernel:gemm"), change(0.5, "busy:kernel:elementwise_kernel")
    both = Change((*first.claims, *second.claims), 1.0)
    assert step.saving(first) + step.saving(second, (first,)) == pytest.approx(step.saving(both), abs=0.01)
    assert step.saving(first, (first,)) == pytest.approx(0.0, abs=0.01)


def test_claims_that_nothing_matches_save_nothing(tmp_path: Path) -> None:
    step = model(tmp_path, steps(DEVICE_BOUND))
    for name in ("busy:kernel:other", "busy:module:none", "idle:communication", "site:function:none", "unknown"):
        assert step.saving(change(1.0, name)) == 0.0


def test_the_host_does_not_wait_for_what_is_claimed(tmp_path: Path) -> None:
    """A step that waits for its kernel of 500 us, and then takes 500 us on the host: without the wait, both overlap."""
    events = []
    for i in range(4):
        begin = i * STEP_US
        events += [
            mark(f"ProfilerStep#{i + 1}", begin, begin + STEP_US),
            op("aten::mm", begin, begin + 10),
            launch(i + 1, begin + 8, begin + 9),
            kernel("gemm", begin + 10, begin + 500, i + 1),
            op("aten::item", begin + 10, begin + 502),
            launch(100 + i, begin + 12, begin + 501, name="cudaStreamSynchronize"),
            op("aten::cos", begin + 502, begin + 999),
        ]
    saved = model(tmp_path, events).saving(change(0.5, "idle:synchronization", "idle:op dispatch"))
    assert saved == pytest.approx(0.49, abs=0.05)


def test_work_on_the_cpu_goes_with_the_copies_to_it_and_their_waits(tmp_path: Path) -> None:
    """A step of 1,000 us: 200 us of a copy to the host, and 300 us of an operator that launches nothing."""
    events = []
    for i in range(4):
        begin, number = i * STEP_US, 10 * i + 1
        events += [
            mark(f"ProfilerStep#{i + 1}", begin, begin + STEP_US),
            op("aten::mm", begin, begin + 500),
            launch(number, begin + 498, begin + 499),
            kernel("gemm", begin + 500, begin + 510, number),
            op("aten::to", begin + 500, begin + 700),
            launch(number + 1, begin + 510, begin + 520, name="cudaMemcpyAsync"),
            kernel("Memcpy DtoH (Device -> Pageable)", begin + 520, begin + 690, number + 1),
            launch(number + 2, begin + 520, begin + 700, name="cudaStreamSynchronize"),
            op("aten::argmax", begin + 700, begin + STEP_US),
        ]
    step = model(tmp_path, events)
    assert step.saving(change(1.0, "site:cpu:cpu")) == pytest.approx(0.5, abs=0.03)
    without = [event for event in events if event["name"] != "aten::argmax"]
    assert model(tmp_path, without).saving(change(1.0, "site:cpu:cpu")) == 0.0, "a copy alone is no work on the CPU"


def training_steps() -> list[Event]:
    """Steps of 1,000 us on the host: a product of 100 us with a backward pass of 100 us, 500 us of `clip`, 300 us of the loop."""
    events = []
    for i in range(4):
        begin, number = i * STEP_US, 3 * i + 1
        events += [
            mark(f"ProfilerStep#{i + 1}", begin, begin + STEP_US),
            call("train.py(1): step", begin, begin + STEP_US),
            op("aten::mm", begin, begin + 100, sequence=10 + i),
            launch(number, begin + 98, begin + 99),
            kernel("gemm", begin + 100, begin + 110, number),
            node("MmBackward0", begin + 100, begin + 200, 10 + i),
            launch(number + 1, begin + 198, begin + 199, thread=ENGINE),
            kernel("gemm", begin + 200, begin + 210, number + 1),
            call("train.py(3): clip", begin + 500, begin + STEP_US),
            op("aten::add", begin + 900, begin + STEP_US),
            launch(number + 2, begin + 998, begin + 999),
            kernel("elementwise_kernel", begin + STEP_US, begin + STEP_US + 10, number + 2),
        ]
    return events


def test_places_have_their_launches_and_savings(tmp_path: Path) -> None:
    """The 300 us before `clip` belong to the loop, not to `clip`, whose launch ends them."""
    attribution = attribute(table(tmp_path, training_steps()))
    rows = replayed(attribution, summarize(attribution))[0].sites
    places = {site.source or site.operator or site.phase: site for site in rows if site.has_gradient}
    clip, product = places["train.py(3): clip"], places["aten::mm"]
    assert clip.saving.low <= clip.saving.median <= clip.saving.high
    assert clip.saving.median == pytest.approx(0.5, abs=0.03)
    assert (clip.launches, clip.launch_share) == (1.0, pytest.approx(1 / 3))
    assert clip.product_share == 0.0
    assert product.product_share == 1.0
    assert product.launches == 2.0, "the operator and its backward"
    assert product.saving.median == pytest.approx(0.0, abs=0.01), "a step needs its products"
    (apart,) = [site for site in rows if not site.has_gradient]
    assert apart.launches == 1.0
    assert apart.saving.median == pytest.approx(0.1, abs=0.03), "the operators alone"


def test_a_function_around_all_launches_is_the_step_and_no_place_in_it(tmp_path: Path) -> None:
    """`step` launches both kernels of each step, one of them in `clip`."""
    events = steps(HOST_BOUND)
    for i in range(4):
        events.append(call("train.py(1): step", i * STEP_US, i * STEP_US + 1000))
        events.append(call("train.py(3): clip", i * STEP_US + 100, i * STEP_US + 1000))
    attribution = attribute(table(tmp_path, events))
    launches = attribution.device.launch[attribution.device.launch != NONE]
    found = launch_sites(attribution, launches, launches)
    assert {(site.source, site.call) for site in found.sites} == {
        ("train.py(1): step", ""),
        ("train.py(3): clip", "train.py(3): clip"),
    }
    assert found.loops == {"train.py(1): step"}


def training(i: int, *, evaluates: bool) -> list[Event]:
    """A training step whose model runs twice: with a backward pass, and in `evaluate`, unless that has one as well."""
    begin, numbers, engine = i * STEP_US, range(3 * i, 3 * i + 3), {"thread": ENGINE}
    at = [begin + 100, begin + 300, begin + 600]
    events = [
        mark(f"ProfilerStep#{i + 1}", begin, begin + 1000),
        call("train.py(1): step", begin, begin + 1000),
        call("net.py(5): forward", at[0], at[0] + 100),
        op("aten::mm", at[0], at[0] + 100, sequence=10 + 2 * i),
        call("train.py(9): evaluate", at[1], at[1] + 200),
        call("net.py(5): forward", at[1], at[1] + 200),
        op("aten::mm", at[1], at[1] + 200, sequence=None if evaluates else 11 + 2 * i),
        node("MmBackward0", at[2], at[2] + 100, 10 + 2 * i),
        *([] if evaluates else [node("MmBackward0", at[2] + 100, at[2] + 200, 11 + 2 * i)]),
    ]
    for start, number, where in zip(at, numbers, ({}, {}, engine), strict=True):
        events += [
            launch(number + 1, start + 50, start + 51, **where),
            kernel("gemm", start + 60, start + 260, number + 1),
        ]
    return events


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_call_of_the_loop_without_a_backward_pass_is_a_place_with_all_that_it_calls(
    tmp_path: Path, evaluates: bool
) -> None:
    events = [event for i in range(4) for event in training(i, evaluates=evaluates)]
    attribution = attribute(table(tmp_path, events))
    rows = replayed(attribution, summarize(attribution))[0].sites
    (evaluation,) = [site for site in rows if site.call == "train.py(9): evaluate"]
    (forward,) = [site for site in rows if site.source == "net.py(5): forward"]
    assert evaluation.product_share == pytest.approx(0.0 if evaluates else 1.0, abs=0.01)
    assert evaluation.launches == 1.0
    assert evaluation.saving.median > 0.1
    assert forward.product_share > 0.5
    assert (evaluation in removable_sites(rows, 0.1)) is evaluates


def test_work_of_backward_belongs_to_the_place_of_its_forward_operator(tmp_path: Path) -> None:
    path = (
        Path(__file__).resolve().parents[1]
        / "fixtures"
        / "diagnosis"
        / "back_and_forth_between_layouts.cuda.stacks.json.gz"
    )
    attribution = attribute(read(path, details=False))
    places = replayed(attribution, summarize(attribution))[0].sites
    flips = next(site for site in places if site.source.endswith("(22): forward"))
    assert flips.launches == pytest.approx(48, abs=1)  # 16 copies in forward, and 32 kernels of their backward
    assert not flips.product_share


def test_removed_work_that_waits_for_nothing_is_in_no_step(tmp_path: Path) -> None:
    """A single step whose first launch goes: the rest keeps its time."""
    events = [
        mark("ProfilerStep#1", 0, 200),
        op("aten::cos", 0, 100),
        launch(1, 98, 99),
        kernel("cos", 100, 110, 1),
        op("aten::sin", 100, 200),
        launch(2, 198, 199),
        kernel("sin", 200, 210, 2),
    ]
    step = model(tmp_path, events)
    assert step.saving(change(1.0, "busy:kernel:cos")) == pytest.approx(0.5, abs=0.05)


def looping(*, rounds: int, weights: int) -> list[Event]:
    """Steps with rounds of a product of 20 us and a sum of 20 us, and gradients of `weights` parameters."""
    events, number = [], 0
    for i in range(4):
        begin, sequence = i * 10_000, i * 1_000
        events.append(mark(f"ProfilerStep#{i + 1}", begin, begin + 10_000))
        for at in range(rounds):
            for name, kernel_name, start in (
                ("aten::mm", "gemm", 40 * at),
                ("aten::add", "elementwise_kernel", 40 * at + 20),
            ):
                number += 1
                events += [
                    op(name, begin + start, begin + start + 20, sequence=sequence + 2 * at + (name == "aten::add")),
                    launch(number, begin + start + 17, begin + start + 18),
                    kernel(kernel_name, begin + start + 20, begin + start + 22, number),
                ]
        events += [node("MmBackward0", begin + 9_000, begin + 9_010, sequence)]
        for at in range(weights):
            events.append(node("torch::autograd::AccumulateGrad", begin + 9_100 + 5 * at, begin + 9_102 + 5 * at, None))
    return events


@pytest.mark.parametrize(("rounds", "weights", "is_loop"), [(20, 2, True), (20, 20, False), (7, 2, False)])
def test_rounds_of_the_same_operators_are_a_loop_unless_they_are_layers(
    tmp_path: Path, rounds: int, weights: int, is_loop: bool
) -> None:
    attribution = attribute(table(tmp_path, looping(rounds=rounds, weights=weights)))
    loops = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.loop]
    assert bool(loops) is is_loop
    for site in loops:
        assert (site.loop, site.rounds, site.launches) == ("aten::add, aten::mm", rounds, 2 * rounds)
        assert site.saving.median == pytest.approx(0.04 * (rounds - 1) / 10, abs=0.02)


def test_operators_in_a_row_between_products_are_a_place(tmp_path: Path) -> None:
    """Of three kernels of 140 us in a row, the longest stays; two in a row after the next product all stay."""
    events = []
    names = ("aten::mm", "aten::sub", "aten::pow", "aten::sum", "aten::mm", "aten::add", "aten::mul")
    for i in range(4):
        begin, work = i * 500, i * 980
        events.append(mark(f"ProfilerStep#{i + 1}", begin, begin + 500))
        for at, name in enumerate(names):
            number = 10 * i + at + 1
            events += [
                op(name, begin + 10 * at, begin + 10 * at + 8, sequence=number),
                launch(number, begin + 10 * at + 4, begin + 10 * at + 5),
                kernel(
                    "gemm" if name == "aten::mm" else "elementwise_kernel",
                    work + 140 * at + 10,
                    work + 140 * at + 150,
                    number,
                ),
            ]
        for at, name in ((1, "Sub"), (2, "Pow"), (3, "Sum"), (5, "Add"), (6, "Mul")):
            events.append(node(f"{name}Backward0", begin + 200 + 20 * at, begin + 210 + 20 * at, 10 * i + at + 1))
    attribution = attribute(table(tmp_path, events))
    rows = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.row]
    assert [(site.row, site.launches) for site in rows] == [("aten::sub, aten::pow, aten::sum", 3.0)]
    assert rows[0].saving.median == pytest.approx(2 / 7, abs=0.03)
    core = change(1.0, f"site:core:{rows[0].row}")
    assert model(tmp_path, events).saving(core) == pytest.approx(3 / 7, abs=0.03), "one kernel with the products"


def test_the_pieces_of_host_work_sum_to_it(tmp_path: Path) -> None:
    for events in (training_steps(), steps(HOST_BOUND), looping(rounds=20, weights=2)):
        attribution = attribute(table(tmp_path, events))
        trace = trace_graph(attribution)
        pieces = host_pieces(attribution, trace)
        total = np.bincount(pieces.node, pieces.ns, minlength=len(trace.graph))
        host = ~trace.graph.is_device
        assert total[host].tolist() == (trace.end_ns - trace.begin_ns)[host].tolist()
        assert not total[~host].any()


def test_the_middle_of_a_long_trace_gives_the_same_savings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attribution = attribute(table(tmp_path, steps(HOST_BOUND)))
    whole, whole_model, *_ = replayed(attribution, summarize(attribution))
    monkeypatch.setattr("profiler_kit.simulation.replayed_trace.MAX_NODES", 12)
    part, part_model, *_ = replayed(attribution, summarize(attribution))
    assert whole_model is not None
    assert part_model is not None
    assert (whole_model.traced.steps, part_model.traced.steps) == (4, 2)
    assert len(part_model.traced) < len(whole_model.traced)
    assert [(s.operator, s.launches) for s in part.sites] == [(s.operator, s.launches) for s in whole.sites]
    for few, many in zip(part.sites, whole.sites, strict=True):
        assert few.saving.median == pytest.approx(many.saving.median, abs=0.05)


@pytest.mark.parametrize("count", [30, 31])
def test_the_graph_of_a_long_trace_is_that_of_its_middle(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attribution = attribute(table(tmp_path, steps(DEVICE_BOUND, count)))
    monkeypatch.setattr("profiler_kit.simulation.replayed_trace.MAX_NODES", 24)
    sizes: list[int] = []

    def counted(attribution: Attribution) -> TraceGraph:
        sizes.append(len(attribution.host.rows))
        return trace_graph(attribution)

    monkeypatch.setattr("profiler_kit.simulation.replayed_trace.trace_graph", counted)
    part, part_model, _ = replayed(attribution, summarize(attribution))
    monkeypatch.setattr("profiler_kit.simulation.replayed_trace._around_the_middle", lambda attribution: attribution)
    whole, whole_model, _ = replayed(attribution, summarize(attribution))
    assert sizes[0] < sizes[1] / 2
    assert part_model is not None
    assert whole_model is not None
    assert part_model.traced.duration_ns.tolist() == whole_model.traced.duration_ns.tolist()
    assert (part.untraced_step_ns, part.sites) == (whole.untraced_step_ns, whole.sites)


def test_host_work_between_the_middle_steps_keeps_them_in_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiler takes time between the steps of this trace. In the middle, each host node but the first follows another."""
    path = Path(__file__).resolve().parents[1] / "fixtures" / "diagnosis" / "useless_autocast.cuda.plain.json.gz"
    attribution = attribute(read(path, details=False))
    monkeypatch.setattr("profiler_kit.simulation.replayed_trace.MAX_NODES", 600)
    _, step, _ = replayed(attribution, summarize(attribution))
    assert step is not None
    graph = step.traced
    assert (graph.step == NONE).any()
    assert graph.steps == 2
    sequence = graph.target[graph.link == Link.SEQUENCE]
    host = np.flatnonzero(~graph.is_device)
    assert np.isin(host[graph.lane[host] == 0][1:], sequence).all()


def test_a_step_that_is_too_long_to_ask_often_has_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attribution = attribute(table(tmp_path, steps(HOST_BOUND)))
    monkeypatch.setattr("profiler_kit.simulation.replayed_trace.MAX_STEP_NODES", 5)
    summary, step, *_ = replayed(attribution, summarize(attribution))
    assert step is None
    assert summary.untraced_step_ns is not None
    assert summary.sites == ()


def test_of_several_traces_the_one_that_a_finding_affects_most_counts(tmp_path: Path) -> None:
    models = [model(tmp_path, steps(rows)) for rows in (DEVICE_BOUND, HOST_BOUND)]
    one = Finding(
        rule="x", severity="low", title="", explanation="", advice="", evidence=(), weight=0.5,
        claims=kernel_claims(["gemm"]),
    )  # fmt: skip
    alone = [step.saving(Change(one.claims, one.weight)) for step in models]
    assert alone[0] > alone[1] + 0.2
    assert StepSavings(models).saving(one).median == alone[0]
    assert StepSavings(models[::-1]).shares([one]) == [alone[0]]


def test_backward_of_an_operator_after_its_first_one_is_repeated_work(tmp_path: Path) -> None:
    """Two losses share two operators: the second pass, of 100 us each on the device, goes with its products."""
    events = []
    for i in range(4):
        begin, work = i * 100, i * 700
        events.append(mark(f"ProfilerStep#{i + 1}", begin, begin + 100))
        rows = [("aten::mm", None), ("aten::sin", None), *(2 * [("SinBackward0", 1), ("MmBackward0", 0)])]
        for at, (name, forward) in enumerate(rows):
            number, start = 10 * i + at + 1, begin + 10 * at
            sequence = 10 * i + (at if forward is None else forward)
            make = op if forward is None else node
            events += [
                make(name, start, start + 8, sequence=sequence),
                launch(number, start + 4, start + 5, thread=MAIN if forward is None else ENGINE),
                kernel("gemm" if "m" in name.lower() else "sin", work + 100 * at + 10, work + 100 * at + 110, number),
            ]
    attribution = attribute(table(tmp_path, events))
    (site,) = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.repeated]
    assert (site.repeated, site.launches) == ("backward", 2.0)
    assert site.saving.median == pytest.approx(2 / 6, abs=0.05)


@pytest.mark.parametrize(("shape", "is_repeated"), [([64, 64, 3], True), ([8, 64, 100], False)])
def test_work_on_weights_of_a_program_that_trains_nothing_goes_with_its_calls(
    tmp_path: Path, shape: list[int], is_repeated: bool
) -> None:
    """In each step, a Python call of 40 us computes a tensor of 10 us on the device, before a convolution of 20 us."""
    events = []
    for i in range(4):
        begin, number = i * 100, 2 * i + 1
        convolution = op("aten::conv1d", begin + 50, begin + 90)
        convolution["args"]["Input Dims"] = [[8, 64, 100], [64, 64, 3], [64]]
        normalization = op("aten::_weight_norm", begin + 30, begin + 45)
        normalization["args"]["Input Dims"] = [shape, [64, 1, 1], []]
        events += [
            mark(f"ProfilerStep#{i + 1}", begin, begin + 100),
            call("torch/nn/utils/parametrize.py(1): weight", begin + 5, begin + 48),
            normalization,
            launch(number, begin + 40, begin + 42),
            kernel("norm", begin + 45, begin + 55, number),
            convolution,
            launch(number + 1, begin + 80, begin + 82),
            kernel("cudnn_convolve_gemm", begin + 85, begin + 105, number + 1),
        ]
    attribution = attribute(table(tmp_path, events))
    sites = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.repeated]
    assert [(site.repeated, site.launches) for site in sites] == ([("weights", 1.0)] if is_repeated else [])
    for site in sites:
        assert site.saving.median == pytest.approx(0.43, abs=0.08)


@pytest.mark.parametrize(
    ("name", "sizes", "is_repeated"),
    [
        ("aten::linear", [10, 11, 12, 13], True),
        ("aten::linear", [10, 12, 14, 16, 3], True),
        ("aten::linear", [10, 10, 10, 10], False),
        ("aten::linear", [10, 11, 13, 14], False),
        ("aten::linear", [10, 11, 9, 10], False),
        ("aten::matmul", [10, 11, 12, 13], False),
    ],
    ids=["one position", "a new beginning", "equal", "other lengths", "several lengths", "scores of a cache"],
)
def test_work_on_inputs_that_grow_is_repeated_but_for_the_shortest_kernel(
    tmp_path: Path, name: str, sizes: list[int], is_repeated: bool
) -> None:
    """In each step, two kernels of 60 and 20 us work on an input with one position more."""
    events = []
    for i, size in enumerate(sizes):
        begin, number, work = i * 30, 2 * i + 1, i * 80 + 12
        layer = op(name, begin + 5, begin + 15)
        layer["args"]["Input Dims"] = [[8, size, 64], [64, 64]]
        add = op("aten::add", begin + 20, begin + 25)
        add["args"]["Input Dims"] = [[8, size, 64], [8, size, 64], []]
        events += [
            mark(f"ProfilerStep#{i + 1}", begin, begin + 30),
            layer, launch(number, begin + 8, begin + 10), kernel("gemm", work, work + 60, number),
            add, launch(number + 1, begin + 22, begin + 24), kernel("add", work + 60, work + 80, number + 1),
        ]  # fmt: skip
    attribution = attribute(table(tmp_path, events))
    sites = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.repeated]
    assert [(site.repeated, site.launches) for site in sites] == ([("growing", 2.0)] if is_repeated else [])
    for site in sites:  # a step is as long as its kernels: 40 of 80 us go
        assert site.saving.median == pytest.approx(0.45, abs=0.1)


@pytest.mark.parametrize(
    ("second", "between", "launched", "is_repeated"),
    [
        ("nn.Module: Net_0", False, 8, True),
        ("nn.Module: Net_0", True, 8, False),
        ("nn.Module: Net_1", False, 8, False),
        ("nn.Module: Net_0", False, 7, False),
    ],
    ids=["the same", "work between", "another module", "another number of launches"],
)
def test_a_module_that_is_called_twice_in_a_row_can_be_called_once(
    tmp_path: Path, second: str, between: bool, launched: int, is_repeated: bool
) -> None:
    """Each call launches eight kernels of 2 us, one every 10 us. The host limits the step."""
    events, number = [], 0
    for i in range(4):
        begin = i * 200
        events.append(mark(f"ProfilerStep#{i + 1}", begin, begin + 200))
        for module, start, count in (("nn.Module: Net_0", begin + 5, 8), (second, begin + 100, launched)):
            events.append(call(module, start, start + 85))
            for at in range(start, start + 10 * count, 10):
                number += 1
                events += [
                    op("aten::mul", at + 1, at + 8),
                    launch(number, at + 3, at + 5),
                    kernel("mul", at + 6, at + 8, number),
                ]
        if between:
            number += 1
            at = begin + 92
            events += [
                op("aten::add", at + 1, at + 6),
                launch(number, at + 2, at + 4),
                kernel("add", at + 5, at + 6, number),
            ]
    attribution = attribute(table(tmp_path, events))
    sites = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.repeated]
    assert [(site.repeated, site.launches) for site in sites] == ([("calls", 8.0)] if is_repeated else [])
    for site in sites:
        assert site.saving.median == pytest.approx(0.45, abs=0.1)


def test_the_wait_with_which_the_first_step_begins_counts_as_well(tmp_path: Path) -> None:
    """In each of three steps, 80 us pass in Python before a kernel of 10 us: without them, a step takes 20 us."""
    events = []
    for i in range(3):
        begin = i * 100
        events += [
            mark(f"ProfilerStep#{i + 1}", begin, begin + 100),
            call("train.py(3): prepare", begin, begin + 80),
            op("aten::mul", begin + 82, begin + 88), launch(i + 1, begin + 84, begin + 86),
            kernel("mul", begin + 88, begin + 98, i + 1),
        ]  # fmt: skip
    steps_model = model(tmp_path, events)
    assert steps_model.saving(Change(idle_claims("python"), 1.0)) == pytest.approx(0.85, abs=0.1)


@pytest.mark.parametrize("is_shared", [True, False])
def test_heads_with_parameters_of_their_own_are_a_loop_and_layers_are_not(is_shared: bool, tmp_path: Path) -> None:
    """Ten products of 80 us on the host, with 100 us of backward each. Autograd adds up gradients if they share an input."""
    events, heads, step_us = [], 10, 2_000
    for i in range(4):
        begin = i * step_us
        events.append(mark(f"ProfilerStep#{i + 1}", begin, begin + step_us))
        for head in range(heads):
            at, back, number = begin + 80 * head, begin + 900 + 100 * (heads - head - 1), 100 * i + 3 * head + 1
            sequence = heads * i + head + 1
            events += [
                op("aten::linear", at, at + 80, sequence=sequence),
                launch(number, at + 76, at + 78),
                kernel("gemm", at + 80, at + 84, number),
                node("AddmmBackward0", back, back + 60, sequence),
                launch(number + 1, back + 10, back + 12, thread=ENGINE),
                kernel("gemm", back + 14, back + 18, number + 1),
                node("torch::autograd::AccumulateGrad", back + 60, back + 90, 0),
            ]
            if is_shared:
                events.append(op("aten::add_", back + 30, back + 50, thread=ENGINE))
    attribution = attribute(table(tmp_path, events))
    sites = [site for site in replayed(attribution, summarize(attribution))[0].sites if site.loop]
    assert [(site.loop, site.rounds) for site in sites] == ([("aten::linear", heads)] if is_shared else [])
    for site in sites:
        assert site.saving.median == pytest.approx(0.63, abs=0.08), "nine of ten rounds, without accumulations"
