"""Device time of hand-written CUDA traces: its attribution, and that no time is lost or counted twice."""

from __future__ import annotations

import itertools
from pathlib import Path

import examples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_traces import (
    ENGINE,
    MAIN,
    TraceText,
    assert_busy_and_idle_are_the_span,
    attribute,
    by_owner,
    covered_ns,
    lanes,
)

from profiler_kit.errors import TraceError
from profiler_kit.records.sums import apportion


def training_step() -> TraceText:
    """One step of a model with layers a and b: forward and loss on the loop's thread, backward on the engine's."""
    t = TraceText()
    t.step(3, 0, 1000)
    t.phase("data", 0, 20)
    t.phase("transfer", 20, 40)
    t.kernel("Memcpy HtoD (Pinned -> Device)", 30, 45, launched=25, category="gpu_memcpy", launch="cudaMemcpyAsync")
    t.phase("forward", 40, 200)
    t.module("", 45, 190)
    t.module("a", 50, 100)
    t.op("aten::conv2d", 55, 95, sequence=1)
    t.op("aten::convolution", 56, 94, sequence=1)
    t.kernel("sm80_xmma_fprop_implicit_gemm_tf32f32", 100, 150, launched=60)
    t.module("b", 110, 150)
    t.op("aten::linear", 115, 145, sequence=2)
    t.op("aten::t", 116, 118, sequence=2)
    t.op("aten::addmm", 120, 144, sequence=3)
    t.kernel("ampere_sgemm_128x64_tn", 150, 170, launched=125)
    t.op("aten::relu", 160, 180, sequence=4)
    t.kernel("void at::native::vectorized_elementwise_kernel<4>(relu)", 170, 177, launched=165)
    t.phase("loss", 200, 300)
    t.op("aten::cross_entropy_loss", 205, 250, sequence=5)
    t.kernel("nll_loss_forward", 210, 212, launched=207)
    t.op("aten::item", 260, 290, sequence=6)
    t.kernel("Memcpy DtoH (Device -> Pinned)", 265, 266, launched=261, category="gpu_memcpy", launch="cudaMemcpyAsync")
    t.phase("backward", 300, 700)
    t.op("aten::ones_like", 305, 315)
    t.kernel("fill", 320, 321, launched=310)
    t.node("NllLossBackward0", 330, 360, 5)
    t.kernel("nll_loss_backward", 340, 345, launched=335, tid=ENGINE)
    t.node("ReluBackward0", 360, 390, 4)
    t.kernel("threshold_backward", 400, 408, launched=365, tid=ENGINE)
    t.node("AddmmBackward0", 400, 440, 3)
    t.kernel("gemm_dgrad", 410, 430, launched=405, tid=ENGINE)
    t.node("torch::autograd::AccumulateGrad", 441, 449)
    t.kernel("accumulate b", 431, 434, launched=445, tid=ENGINE)
    t.node("ConvolutionBackward0", 460, 500, 1)
    t.op("aten::convolution_backward", 462, 498, tid=ENGINE)
    t.kernel("wgrad_alg0_engine", 500, 600, launched=470, tid=ENGINE)
    t.node("torch::autograd::AccumulateGrad", 505, 515)
    t.kernel("accumulate a", 600, 604, launched=510, tid=ENGINE)
    t.kernel("bucket copy", 610, 611, launched=550, tid=ENGINE)  # the engine's thread, outside every node
    t.phase("optimizer", 700, 990)
    t.host("user_annotation", "Optimizer.step#SGD.step", 705, 900)
    t.op("aten::_foreach_add_", 710, 800)
    t.kernel("multi_tensor_apply_kernel", 1500, 1530, launched=720)
    return t


def test_a_whole_step(tmp_path: Path) -> None:
    result = training_step().attribute(tmp_path)
    assert (result.clock, result.traced_steps, result.unattributed_ns) == ("kernel", 1, 0)
    assert by_owner(result) == {
        ("(transfer)", "transfer"): 15,
        ("a", "forward"): 50,
        ("b", "forward"): 20,
        ("", "forward"): 7,
        ("(loss)", "loss"): 3,
        ("(loss)", "backward"): 6,
        ("", "backward"): 8,
        ("b", "backward"): 23,
        ("a", "backward"): 105,
        ("(optimizer)", "optimizer"): 30,
    }
    assert [layer.phase for layer in result.modules] == sorted(
        (layer.phase for layer in result.modules), key=["transfer", "forward", "loss", "backward", "optimizer"].index
    )
    assert result.kernels[0].name == "wgrad_alg0_engine"
    assert [k.kernel_ns for k in result.kernels] == sorted((k.kernel_ns for k in result.kernels), reverse=True)


def test_what_the_convolution_says_of_its_kernels(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 100)
    t.op("aten::convolution", 0, 20, sequence=1)
    t.kernel("implicit_convolve_sgemm<float>", 0, 10, launched=1)
    t.kernel("ampere_cgemm_32x64_tn", 10, 20, launched=2)
    t.op("aten::convolution_backward", 20, 40)
    t.kernel("void cudnn::cnn::conv2d_something<float>", 20, 30, launched=21)
    t.op("aten::matmul", 50, 60, sequence=2)
    t.kernel("volta_cgemm_32x32_nn", 50, 55, launched=51)
    kernels = {k.name: k for k in t.attribute(tmp_path).kernels}
    assert kernels["implicit_convolve_sgemm<float>"].op == "fprop"
    assert kernels["ampere_cgemm_32x64_tn"].family == "conv:fft"
    assert kernels["void cudnn::cnn::conv2d_something<float>"].op is None
    assert (kernels["volta_cgemm_32x32_nn"].family, kernels["volta_cgemm_32x32_nn"].op) == ("gemm:complex", None)


def test_a_kernel_belongs_to_its_launch_not_to_when_it_ran(tmp_path: Path) -> None:
    t = TraceText()
    for i in (0, 1):
        t.step(i, 100 * i, 100 * i + 90)
        t.phase("forward", 100 * i, 100 * i + 40)
        t.phase("loss", 100 * i + 40, 100 * i + 90)
    t.kernel("f0", 60, 160, launched=10)  # runs through the loss and into the next step
    t.kernel("l0", 160, 164, launched=50)
    t.kernel("f1", 500, 600, launched=110)  # after everything
    result = t.attribute(tmp_path)
    assert by_owner(result) == {("", "forward"): 100, ("(loss)", "loss"): 2}


def test_overlapping_streams_are_charged_once(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 50)
    t.module("a", 0, 20)
    t.module("b", 20, 40)
    t.kernel("first", 100, 200, launched=5, stream=7)
    t.kernel("beside", 150, 260, launched=25, stream=13)
    t.kernel("hidden", 160, 170, launched=26, stream=14)
    result = t.attribute(tmp_path)
    assert by_owner(result) == {("a", "forward"): 100, ("b", "forward"): 60}
    hidden = next(k for k in result.kernels if k.name == "hidden")
    assert (hidden.calls, hidden.kernel_ns) == (1, 0)
    assert any("counted once" in note for note in result.notes)


def test_devices_have_timelines_of_their_own(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 50)
    t.kernel("k", 100, 200, launched=5, device=0)
    t.kernel("k", 100, 200, launched=6, device=1)
    result = t.attribute(tmp_path)
    assert result.device_ns == 200
    assert {lane for lane in lanes(tmp_path / "trace.json.gz") if "phase" in lane} == {
        f"host thread {MAIN}: phase",
        "device 0: phase",
        "device 1: phase",
    }


def test_what_ran_before_the_first_step_is_left_out_and_unlinked_kernels_are_unattributed(tmp_path: Path) -> None:
    t = TraceText()
    t.kernel("warm-up, launch known", 1010, 1020, launched=10)
    t.kernel("warm-up, launch unknown", 900, 950, launched=None)
    t.step(0, 1000, 1100)
    t.phase("forward", 1000, 1100)
    t.kernel("ours", 1030, 1060, launched=1001)
    t.kernel("stranger", 1060, 1070, launched=None)
    t.kernel("later", 1300, 1320, launched=1200)
    result = t.attribute(tmp_path)
    assert (result.device_ns, result.unattributed_ns) == (40, 10)
    assert by_owner(result) == {("", "forward"): 30}
    assert any("1 of 2 events have no launch" in note and "25 %" in note for note in result.notes)
    assert any("3 device events" in note and "outside" in note for note in result.notes)
    assert "stranger" in {k.name for k in result.kernels}


def test_work_in_a_step_but_in_no_phase_is_shown_as_unattributed(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 50)
    t.kernel("k", 0, 10, launched=5)
    t.phase("backward", 50, 58)
    t.node("MulBackward0", 51, 57, 1, tid=MAIN)  # also where the loop's own thread runs nodes
    t.kernel("between", 60, 64, launched=60)
    result = t.attribute(tmp_path)
    assert (result.device_ns, result.unattributed_ns) == (14, 4)
    assert any(note.startswith("1 of 2") and "phase" in note for note in result.notes)


def test_a_launch_that_seems_to_outlast_its_operator_encloses_nothing(tmp_path: Path) -> None:
    """Runtime calls are stamped by another clock than operators; a few hundred ns of skew are common."""
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 900)
    t.module("", 0, 890)
    t.module("a", 10, 100)
    t.op("aten::conv2d", 20, 95)
    t.kernel("first", 100, 150, launched=90)
    t.events[-2]["dur"] = 80  # the launch seems to last until 170
    t.op("aten::relu", 120, 200)
    t.kernel("second", 160, 190, launched=150)
    assert by_owner(t.attribute(tmp_path)) == {("a", "forward"): 50, ("", "forward"): 30}


def test_kernels_of_one_graph_launch_share_their_owner(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 50)
    t.module("a", 0, 50)
    t.kernel("one", 10, 20, launched=5, launch="cudaGraphLaunch")
    for start in (20, 30):
        t.kernel("more", start, start + 5, launched=None)
        t.events[-1]["args"]["correlation"] = 1001  # the graph launch's
    assert by_owner(t.attribute(tmp_path)) == {("a", "forward"): 20}


def test_the_latest_op_with_the_number_is_the_one_that_made_the_node(tmp_path: Path) -> None:
    """Ops that make no node carry the next one's number: a buffer's update before its layer, the loss's item()."""
    t = TraceText()
    for step in (0, 1):
        at = 1000 * step
        t.step(step, at, at + 900)
        t.phase("forward", at, at + 100)
        t.module("early", at + 1, at + 20)
        t.op("aten::add_", at + 5, at + 8, sequence=10 + step)
        t.module("late", at + 30, at + 50)
        t.op("aten::batch_norm", at + 31, at + 49, sequence=10 + step)
        t.phase("loss", at + 100, at + 200)
        t.op("aten::item", at + 110, at + 120, sequence=11 + step)
        t.phase("backward", at + 200, at + 400)
        t.node("NativeBatchNormBackward0", at + 250, at + 300, 10 + step)
        t.kernel("bn", at + 300, at + 340, launched=at + 260, tid=ENGINE)
    assert by_owner(t.attribute(tmp_path)) == {("late", "backward"): 40}


def test_a_node_beyond_an_ops_first_belongs_to_that_op(tmp_path: Path) -> None:
    """An in-place op on a view makes two nodes and carries the first's number only."""
    t = TraceText()
    t.step(0, 0, 900)
    t.phase("forward", 0, 100)
    t.module("a", 1, 20)
    t.op("aten::mul_", 5, 8, sequence=10)
    t.module("b", 30, 50)
    t.op("aten::relu", 31, 49, sequence=12)
    t.phase("backward", 200, 400)
    t.node("ReluBackward0", 210, 220, 12)
    t.node("torch::autograd::CopySlices", 250, 300, 11)
    t.kernel("copy", 300, 340, launched=260, tid=ENGINE)
    assert by_owner(t.attribute(tmp_path)) == {("a", "backward"): 40}


def test_threads_count_their_nodes_each_for_itself(tmp_path: Path) -> None:
    """A reentrant checkpoint makes nodes on the engine's thread, with numbers that the loop's thread has used too."""
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("", 0, 99)
    t.module("stem", 1, 20)
    t.op("aten::convolution", 2, 18, sequence=1)
    t.module("block", 21, 60)
    t.op("CheckpointFunction", 22, 58, sequence=2)
    t.module("block.inner", 23, 57)
    t.op("aten::mul", 24, 56)
    t.kernel("mul fwd", 30, 40, launched=25)
    t.phase("backward", 200, 900)
    t.node("CheckpointFunctionBackward", 210, 400, 2)
    t.module("block.inner", 220, 260, tid=ENGINE)
    t.op("aten::mul", 225, 255, sequence=1, tid=ENGINE)
    t.kernel("mul again", 230, 240, launched=230, tid=ENGINE)
    t.op("aten::add", 270, 275, sequence=2, tid=ENGINE)  # in the checkpointed function, in no module
    t.kernel("add again", 270, 273, launched=271, tid=ENGINE)
    t.node("AddBackward0", 300, 310, 2, forward_thread=2)
    t.kernel("add bwd", 300, 305, launched=301, tid=ENGINE)
    t.node("MulBackward0", 320, 360, 1, forward_thread=2)
    t.kernel("mul bwd", 330, 350, launched=325, tid=ENGINE)
    t.node("torch::autograd::AccumulateGrad", 362, 370)
    t.kernel("mul accumulate", 362, 363, launched=363, tid=ENGINE)
    t.node("ConvolutionBackward0", 410, 450, 1)
    t.kernel("conv bwd", 500, 600, launched=420, tid=ENGINE)
    assert by_owner(t.attribute(tmp_path)) == {
        ("block.inner", "forward"): 10,
        ("block.inner", "recompute"): 10,
        ("block", "recompute"): 3,
        ("block", "backward"): 5,
        ("block.inner", "backward"): 21,
        ("stem", "backward"): 100,
    }


def test_recomputing_without_reentry(tmp_path: Path) -> None:
    """The forward of a checkpointed stretch runs inside the first node that needs it, then that node does its own work."""
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("", 0, 99)
    for i, name in enumerate(("layers.0", "layers.1")):
        t.module(name, 10 + 20 * i, 25 + 20 * i)
        t.op("aten::convolution", 11 + 20 * i, 24 + 20 * i, sequence=1 + i)
    t.phase("backward", 200, 900)
    t.node("ConvolutionBackward0", 210, 400, 2)
    for i, name in enumerate(("layers.0", "layers.1")):
        t.module(name, 220 + 20 * i, 235 + 20 * i, tid=ENGINE)
        t.op("aten::convolution", 221 + 20 * i, 234 + 20 * i, sequence=7 + i, tid=ENGINE)
        t.kernel(f"{name} again", 220 + 20 * i, 230 + 20 * i, launched=225 + 20 * i, tid=ENGINE)
    t.op("aten::relu", 270, 280, sequence=9, tid=ENGINE)
    t.kernel("relu again", 270, 272, launched=271, tid=ENGINE)
    t.op("aten::convolution_backward", 300, 390, tid=ENGINE)
    t.kernel("bwd 1", 300, 350, launched=310, tid=ENGINE)
    t.node("ConvolutionBackward0", 410, 450, 1)
    t.kernel("bwd 0", 410, 440, launched=420, tid=ENGINE)
    assert by_owner(t.attribute(tmp_path)) == {
        ("layers.0", "recompute"): 10,
        ("layers.1", "recompute"): 10,
        ("", "recompute"): 2,  # "layers" is a container that is never called
        ("layers.1", "backward"): 50,
        ("layers.0", "backward"): 30,
    }


def test_work_redone_outside_modules_belongs_to_who_asked_for_it(tmp_path: Path) -> None:
    """The root checkpoints a function that calls block.inner and adds: "block" encloses the module called, not the addition."""
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("", 0, 99)
    t.module("block", 5, 9)
    t.op("CheckpointFunction", 22, 58, sequence=2)
    t.module("block.inner", 23, 57)
    t.phase("backward", 200, 900)
    t.node("CheckpointFunctionBackward", 210, 400, 2)
    t.module("block.inner", 220, 260, tid=ENGINE)
    t.op("aten::add", 270, 275, sequence=2, tid=ENGINE)
    t.kernel("add again", 270, 273, launched=271, tid=ENGINE)
    assert by_owner(t.attribute(tmp_path)) == {("", "recompute"): 3}


def test_a_backward_pass_inside_a_redone_module_is_backward(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("a", 0, 99)
    t.op("CheckpointFunction", 22, 58, sequence=2)
    t.phase("backward", 200, 900)
    t.node("CheckpointFunctionBackward", 210, 400, 2)
    t.module("a.b", 220, 300, tid=ENGINE)
    t.op("aten::mul", 230, 240, sequence=1, tid=ENGINE)
    t.node("MulBackward0", 250, 290, 1, forward_thread=2)
    t.kernel("mul bwd", 260, 270, launched=255, tid=ENGINE)
    assert by_owner(t.attribute(tmp_path)) == {("a.b", "backward"): 10}


def test_what_the_engine_launches_before_its_first_node_does_not_follow_the_last_step(tmp_path: Path) -> None:
    t = TraceText()
    for i in (0, 1):
        at = 1000 * i
        t.step(i, at, at + 900)
        t.phase("forward", at, at + 100)
        t.module("a", at, at + 50)
        t.op("aten::mul", at + 10, at + 20, sequence=1 + i)
        t.phase("backward", at + 200, at + 800)
        t.kernel("early", at + 210, at + 212, launched=at + 205, tid=ENGINE)
        t.node("MulBackward0", at + 250, at + 290, 1 + i)
    assert by_owner(t.attribute(tmp_path)) == {("(loss)", "backward"): 2}


def test_lanes_have_a_span_of_their_own_for_each_step(tmp_path: Path) -> None:
    t = TraceText()
    for i in (0, 1):
        t.step(i, 100 * i, 100 * i + 90)
        t.phase("forward", 100 * i, 100 * i + 90)
        for start in (10, 30):
            t.kernel("k", 100 * i + start, 100 * i + start + 10, launched=100 * i + start)
    spans = lanes(t.save(tmp_path))["device: phase"]
    assert [(s.start_ns, s.end_ns) for s in spans] == [(10, 40), (110, 140)]


def test_modules_called_on_a_replicas_thread(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 100)
    t.module("a", 10, 50, tid=300)
    t.kernel("k", 10, 20, launched=15, tid=300)
    t.kernel("lost", 20, 25, launched=60, tid=400)  # a thread nothing is known about
    result = t.attribute(tmp_path)
    assert by_owner(result) == {("a", "forward"): 10}
    assert result.unattributed_ns == 5


def test_per_step_figures_are_divided_exactly(tmp_path: Path) -> None:
    t = TraceText()
    for i in range(3):
        at = 1000 * i
        t.step(i, at, at + 900)
        t.phase("forward", at, at + 500)
        for j, name in enumerate("abc"):
            t.module(name, at + 10 * j, at + 10 * j + 9)
            t.kernel("k", at + 10 * j, at + 10 * j + 1 + (i == 0), launched=at + 10 * j + 1)
    result = t.attribute(tmp_path)  # 12 ns over 3 steps, 4/3 ns each layer
    assert (result.traced_steps, result.device_ns) == (3, 4)
    assert sorted(by_owner(result).values()) == [1, 1, 2]
    assert [k.calls for k in result.kernels] == [3]


@given(st.dictionaries(st.integers(), st.integers(0, 10**9), max_size=30), st.integers(1, 50))
def test_apportioning_is_exact_and_fair(totals: dict[int, int], steps: int) -> None:
    shares = apportion(totals, steps)
    assert sum(shares.values()) == (2 * sum(totals.values()) + steps) // (2 * steps)
    assert all(0 <= share - totals[key] // steps <= 1 for key, share in shares.items())
    assert all(share == totals[key] / steps for key, share in shares.items() if totals[key] % steps == 0)


owners = st.sampled_from(["a", "b", "loss", "unlinked", "backward", "engine"])
kernels = st.lists(st.tuples(owners, st.integers(0, 500), st.integers(0, 80), st.integers(7, 9)), max_size=15)


@settings(max_examples=examples.count(60))
@given(kernels, st.integers(1, 4))
def test_whatever_overlaps_the_parts_sum_to_the_busy_time(drawn: list[tuple[str, int, int, int]], steps: int) -> None:
    import tempfile

    t = TraceText()
    launches = {"a": 15, "b": 35, "loss": 55, "backward": 72, "unlinked": None, "engine": 85}
    for i in range(steps):
        at = 1000 * i
        t.step(i, at, at + 99)
        t.phase("forward", at, at + 50)
        t.module("a", at + 10, at + 29)
        t.op("aten::mul", at + 12, at + 20, sequence=i)
        t.module("b", at + 30, at + 49)
        t.phase("loss", at + 50, at + 70)
        t.phase("backward", at + 70, at + 99)
        t.node("MulBackward0", at + 80, at + 90, i)
    intervals = []
    for n, (owner, start, duration, stream) in enumerate(drawn):
        launch = launches[owner]
        at = 1000 * (n % steps)
        t.kernel(
            f"{owner} {n % 3}", start, start + duration, launched=None if launch is None else at + launch,
            stream=stream, tid=ENGINE if owner == "engine" else MAIN,
        )  # fmt: skip
        intervals.append((start, start + duration))
    if not drawn:
        t.kernel("only", 5, 5, launched=15)
    with tempfile.TemporaryDirectory() as folder:
        result = t.attribute(Path(folder))
    assert result.device_ns == (2 * covered_ns(intervals) + steps) // (2 * steps)
    if not any(owner == "unlinked" for owner, *_ in drawn):
        assert result.unattributed_ns == 0
        assert_busy_and_idle_are_the_span(result)


def test_lanes_never_overlap_and_cover_the_work(tmp_path: Path) -> None:
    result = lanes(training_step().save(tmp_path))
    assert list(result) == [
        f"host thread {MAIN}: phase", f"host thread {ENGINE}: phase",
        "device: phase", "device: module", "device: kernels", "device: idle",
    ]  # fmt: skip
    for spans in result.values():
        assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(spans))
    assert [s.name for s in result["device: phase"]] == ["transfer", "forward", "loss", "backward", "optimizer"]
    assert (result["device: phase"][1].start_ns, result["device: phase"][1].end_ns) == (100, 177)
    assert [s.name for s in result["device: module"]] == [
        "(transfer)", "a", "b", "(root)", "(loss)", "(loss)", "(root)", "b", "a", "(optimizer)",
    ]  # fmt: skip
    assert {s.family for s in result["device: module"]} == {"transfer", "forward", "loss", "backward", "optimizer"}


def test_a_trace_without_our_marks(tmp_path: Path) -> None:
    t = TraceText()
    t.host("user_annotation", "ProfilerStep#3", 0, 100)
    t.kernel("k", 0, 10, launched=5)
    with pytest.raises(TraceError, match="pk:step:") as caught:
        attribute(t.save(tmp_path))
    assert "analyze" in (caught.value.hint or "")


def test_the_kernel_clock_needs_device_work(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 10)
    t.op("aten::relu", 1, 2)
    with pytest.raises(TraceError, match="no device work"):
        attribute(t.save(tmp_path), clock="kernel")
    assert attribute(t.save(tmp_path)).clock == "operator"


def test_malformed_events_are_told(tmp_path: Path) -> None:
    t = training_step()
    del t.events[5]["name"]
    assert any("1 malformed" in note for note in t.attribute(tmp_path).notes)


def test_the_same_trace_gives_the_same_record(tmp_path: Path) -> None:
    path = training_step().save(tmp_path)
    assert attribute(path) == attribute(path)
