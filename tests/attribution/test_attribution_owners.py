"""Each rule that attributes work to a step, a phase and a module, on hand-written traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspection_traces import (
    ENGINE,
    MAIN,
    Event,
    call,
    copy,
    device_attribution,
    host_attribution,
    kernel,
    launch,
    mark,
    node,
    op,
    span,
    table,
)

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.traces.table import NONE, Kind


def attribution(tmp_path: Path, events: list[Event]) -> Attribution:
    return attribute(table(tmp_path, events))


def a_step() -> list[Event]:
    """One step of a small network with stacks: two layers, a loss, backward on a thread of its own, an optimizer."""
    return [
        mark("ProfilerStep#4", 0, 1000),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 40),
        op("aten::stack", 5, 20),
        op("aten::to", 50, 70),
        op("aten::copy_", 52, 68),
        launch(1, 55, name="cudaMemcpyAsync"),
        copy("Memcpy HtoD (Pageable -> Device)", 60, 65, 1),
        mark("Optimizer.zero_grad#SGD.zero_grad", 80, 90),
        launch(2, 82),
        kernel("zero", 84, 86, 2),
        call("nn.Module: Net_0", 100, 200),
        call("nn.Module: Linear_0", 110, 130),
        op("aten::addmm", 112, 128, sequence=10),
        launch(3, 115),
        kernel("first", 120, 140, 3),
        call("nn.Module: Linear_1", 140, 160),
        op("aten::addmm", 142, 158, sequence=11),
        launch(4, 145),
        kernel("second", 150, 170, 4),
        op("aten::mul", 170, 190, sequence=12),
        launch(5, 175),
        kernel("scaled", 180, 182, 5),
        call("nn.Module: MSELoss_0", 210, 240),
        op("aten::mse_loss", 212, 238, sequence=13),
        launch(6, 215),
        kernel("loss", 220, 222, 6),
        op("aten::ones_like", 250, 260),
        launch(7, 252),
        kernel("seed", 254, 256, 7),
        node("MseLossBackward0", 300, 310, 13),
        launch(8, 302, thread=ENGINE),
        kernel("d loss", 305, 306, 8),
        node("MulBackward0", 310, 320, 12),
        launch(9, 312, thread=ENGINE),
        kernel("d scaled", 315, 316, 9),
        node("AddmmBackward0", 320, 340, 11),
        launch(10, 322, thread=ENGINE),
        kernel("d second", 325, 330, 10),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 340, 350, thread=ENGINE),
        launch(11, 342, thread=ENGINE),
        kernel("add second", 345, 346, 11),
        launch(12, 355, thread=ENGINE),
        kernel("bucket", 356, 358, 12),
        node("AddmmBackward0", 360, 380, 10),
        launch(13, 362, thread=ENGINE),
        kernel("d first", 365, 370, 13),
        mark("Optimizer.step#SGD.step", 400, 430),
        op("aten::add_", 405, 415),
        launch(14, 407),
        kernel("update", 410, 412, 14),
        op("aten::rand", 500, 510),
        launch(15, 502),
        kernel("stray", 505, 506, 15),
    ]


def test_a_step_with_stacks(tmp_path: Path) -> None:
    result = attribution(tmp_path, a_step())
    by_name = {
        name: (row.phase, row.module, row.evidence)
        for name, row in device_attribution(result).items()
        if row.within == row.phase and row.step == 0
    }
    assert by_name == {
        "Memcpy HtoD (Pageable -> Device)": ("transfer", "", "COPY"),
        "zero": ("optimizer", "", "MARK"),
        "first": ("forward", "Net_0.Linear_0", "MODULE"),
        "second": ("forward", "Net_0.Linear_1", "MODULE"),
        "scaled": ("forward", "Net_0", "MODULE"),
        "loss": ("loss", "MSELoss_0", "MARK"),
        "seed": ("backward", "", "WINDOW"),
        "d loss": ("backward", "MSELoss_0", "NODE"),
        "d scaled": ("backward", "Net_0", "NODE"),
        "d second": ("backward", "Net_0.Linear_1", "NODE"),
        "add second": ("backward", "Net_0.Linear_1", "NODE"),
        "bucket": ("backward", "", "NODE"),
        "d first": ("backward", "Net_0.Linear_0", "NODE"),
        "update": ("optimizer", "", "MARK"),
        "stray": ("other", "", "NONE"),
    }
    host = host_attribution(result)
    assert host["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == ("data", "")
    assert host["aten::stack"] == ("data", "")
    assert host["aten::to"] == ("transfer", "")
    assert host["ProfilerStep#4"] == ("", "")
    assert [(step.number, step.end_ns - step.start_ns) for step in result.steps] == [(4, 1_000_000)]
    assert {module.class_name for module in result.modules} == {"Net", "Linear", "MSELoss"}
    assert result.notes == ()


def test_without_stacks_forward_is_a_window(tmp_path: Path) -> None:
    events = [event for event in a_step() if event["cat"] != "python_function"]
    result = attribution(tmp_path, events)
    by_name = {name: (row.phase, row.module, row.evidence) for name, row in device_attribution(result).items()}
    assert by_name["first"] == by_name["scaled"] == ("forward", "", "WINDOW")
    assert by_name["loss"] == ("loss", "", "MARK")
    assert by_name["seed"] == ("backward", "", "WINDOW")
    assert by_name["d first"] == ("backward", "", "NODE")
    assert by_name["Memcpy HtoD (Pageable -> Device)"] == ("transfer", "", "COPY")
    assert by_name["stray"] == ("other", "", "NONE")
    assert any("with_stack=True" in note for note in result.notes)


def test_a_window_ends_where_something_else_begins(tmp_path: Path) -> None:
    """What was called forward before: the next batch's collectives, the step before, what no op of this pass makes."""
    events = [
        mark("ProfilerStep#1", 0, 100),
        op("aten::embedding", 10, 14, sequence=1),
        launch(1, 11),
        kernel("early", 12, 13, 1),
        mark("ProfilerStep#2", 100, 1000),
        op("aten::sort", 110, 120),
        launch(2, 111),
        kernel("preparing", 112, 113, 2),
        op("aten::addmm", 200, 220, sequence=2),
        launch(3, 205),
        kernel("forward", 206, 207, 3),
        op("aten::sum", 230, 240, sequence=3),
        op("aten::argmax", 245, 250),
        launch(4, 246),
        kernel("between", 247, 248, 4),
        op("c10d::alltoall_base_", 260, 270),
        launch(5, 261),
        kernel("ncclDevKernel_SendRecv(x)", 262, 300, 5),
        op("aten::clone", 275, 280),
        launch(6, 276),
        kernel("next batch", 277, 278, 6),
        op("aten::ones_like", 290, 295),
        launch(7, 291),
        kernel("seed", 292, 293, 7),
        node("SumBackward0", 300, 310, 3),
        node("AddmmBackward0", 310, 320, 2),
        node("EmbeddingBackward0", 320, 330, 1),
        op("aten::log2", 400, 410),
        launch(8, 401),
        kernel("metrics", 402, 403, 8),
    ]
    result = device_attribution(attribution(tmp_path, events))
    assert {name: row.within for name, row in result.items()} == {
        "early": "forward",
        "preparing": "other",
        "forward": "forward",
        "between": "forward",
        "ncclDevKernel_SendRecv(x)": "other",
        "next batch": "other",
        "seed": "backward",
        "metrics": "other",
    }
    assert result["ncclDevKernel_SendRecv(x)"].phase == "communication"


def test_reading_the_loss_is_the_losses(tmp_path: Path) -> None:
    events = [
        op("aten::addmm", 0, 10, sequence=1),
        op("aten::cross_entropy_loss", 10, 30, sequence=2),
        op("aten::nll_loss2d", 12, 28, sequence=2),
        op("aten::item", 40, 60),
        launch(1, 45, name="cudaMemcpyAsync"),
        copy("Memcpy DtoH (Device -> Pageable)", 50, 51, 1),
        node("NllLoss2DBackward0", 100, 110, 2),
        node("AddmmBackward0", 110, 120, 1),
    ]
    result = attribution(tmp_path, events)
    assert device_attribution(result)["Memcpy DtoH (Device -> Pageable)"][:3] == ("loss", "", "WINDOW")
    assert host_attribution(result)["aten::nll_loss2d"] == ("loss", "")


def test_ddp_names_its_forward_and_collectives_are_apart(tmp_path: Path) -> None:
    events = [
        mark("DistributedDataParallel.forward", 0, 100),
        op("aten::relu", 10, 20),
        launch(1, 12),
        kernel("relu", 15, 16, 1),
        launch(2, 30),
        kernel("ncclDevKernel_Broadcast_RING_LL(x)", 40, 50, 2, stream=20),
        launch(3, 60),
        kernel("rcclGenericKernel<1>", 65, 66, 3, stream=20),
    ]
    result = device_attribution(attribution(tmp_path, events))
    assert result["relu"][:3] == ("forward", "", "MODULE")
    for name in ("ncclDevKernel_Broadcast_RING_LL(x)", "rcclGenericKernel<1>"):
        assert result[name][:4] == ("communication", "(communication)", "NAME", "forward")


@pytest.mark.parametrize("sequence_of_node", [20, 77])
def test_work_done_again_in_a_node(tmp_path: Path, sequence_of_node: int) -> None:
    """Both kinds of checkpoint: the reentrant one makes nodes on autograd's thread, numbered from that thread's own start."""
    events = [
        call("nn.Module: Net_0", 0, 100),
        call("nn.Module: Block_0", 10, 90),
        op("CheckpointFunction", 15, 85, sequence=20),
        call("nn.Module: Conv2d_0", 20, 50),
        op("aten::conv2d", 22, 48),
        node("CheckpointFunctionBackward", 200, 400, 20),
        call("nn.Module: Conv2d_0", 210, 240, thread=ENGINE),
        op("aten::conv2d", 212, 238, sequence=0, thread=ENGINE),
        launch(1, 220, thread=ENGINE),
        kernel("again", 225, 230, 1),
        op("aten::relu", 245, 250, sequence=1, thread=ENGINE),
        launch(2, 246, thread=ENGINE),
        kernel("relu again", 247, 248, 2),
        node("ReluBackward0", 300, 310, 1, forward_thread=2),
        launch(3, 302, thread=ENGINE),
        kernel("d relu", 305, 306, 3),
        node("ConvolutionBackward0", 310, 330, 0, forward_thread=2),
        launch(4, 312, thread=ENGINE),
        kernel("d conv", 315, 316, 4),
        launch(5, 390, thread=ENGINE),
        kernel("rest", 391, 392, 5),
        node("TBackward0", 500, 510, sequence_of_node),
    ]
    result = {name: row[:3] for name, row in device_attribution(attribution(tmp_path, events)).items()}
    assert result == {
        "again": ("recompute", "Net_0.Block_0.Conv2d_0", "NODE"),
        "relu again": ("recompute", "Net_0.Block_0", "NODE"),
        "d relu": ("backward", "Net_0.Block_0", "NODE"),
        "d conv": ("backward", "Net_0.Block_0.Conv2d_0", "NODE"),
        "rest": ("backward", "Net_0.Block_0", "NODE"),
    }


def test_a_node_belongs_to_the_latest_op_of_its_number_on_its_thread(tmp_path: Path) -> None:
    """Other threads number for themselves; ops that make no node carry the next one's number; a second step begins anew."""
    other = 300
    events: list[Event] = []
    for start, first in ((0, 5), (1000, 7)):
        events += [
            mark("ProfilerStep#1" if start == 0 else "ProfilerStep#2", start, start + 1000),
            call("nn.Module: Linear_0", start + 10, start + 30),
            op("aten::detach", start + 11, start + 12, sequence=first),
            op("aten::addmm", start + 15, start + 29, sequence=first),
            call("nn.Module: GELU_0", start + 40, start + 60),
            op("aten::gelu", start + 41, start + 59, sequence=first + 1),
            call("nn.Module: Elsewhere_0", start + 40, start + 60, thread=other),
            op("aten::sigmoid", start + 41, start + 59, sequence=first + 1, thread=other),
            op("aten::sigmoid", start + 45, start + 50, sequence=first, thread=other),
            node("GeluBackward0", start + 100, start + 110, first + 1),
            launch(start + 1, start + 102, thread=ENGINE),
            kernel(f"d gelu {start}", start + 105, start + 106, start + 1),
            node("AddmmBackward0", start + 110, start + 120, first),
            launch(start + 2, start + 112, thread=ENGINE),
            kernel(f"d linear {start}", start + 115, start + 116, start + 2),
        ]
    result = device_attribution(attribution(tmp_path, events))
    for start in (0, 1000):
        assert result[f"d gelu {start}"].module == "GELU_0"
        assert result[f"d linear {start}"].module == "Linear_0"


def test_several_nodes_of_one_op_and_one_of_none(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#1", 0, 1000),
        call("nn.Module: LSTM_0", 10, 50),
        op("aten::lstm", 12, 48, sequence=3),
        op("aten::mul", 60, 70, sequence=9),
        node("MulBackward0", 90, 95, 9),
        node("MiopenRnnBackward0", 100, 110, 5),
        launch(1, 105, thread=ENGINE),
        kernel("d lstm", 106, 107, 1),
        node("FooBackward", 120, 130, 1),
        launch(2, 125, thread=ENGINE),
        kernel("d foo", 126, 127, 2),
    ]
    result = attribution(tmp_path, events)
    assert device_attribution(result)["d lstm"].module == "LSTM_0"
    assert device_attribution(result)["d foo"][:2] == ("backward", "")
    assert any("1 of 3 backward nodes" in note for note in result.notes)


def test_a_loop_that_runs_ahead(tmp_path: Path) -> None:
    """Forward of the next batch stands in the step before; a number of that step whose name is another's is not its node's."""
    events = [
        mark("ProfilerStep#1", 0, 100),
        call("nn.Module: Linear_0", 10, 50),
        op("aten::addmm", 12, 20, sequence=1),
        op("aten::relu", 22, 30, sequence=2),
        mark("Optimizer.step#SGD.step", 60, 90),
        op("aten::add_", 62, 70, sequence=3),
        mark("ProfilerStep#2", 100, 1000),
        node("CustomBackward", 200, 210, 3),
        launch(1, 205, thread=ENGINE),
        kernel("d custom", 206, 207, 1),
        node("ReluBackward0", 210, 220, 2),
        node("AddmmBackward0", 220, 230, 1),
        launch(2, 225, thread=ENGINE),
        kernel("d linear", 226, 227, 2),
    ]
    result = device_attribution(attribution(tmp_path, events))
    assert result["d linear"][:2] == ("backward", "Linear_0")
    assert result["d linear"].step == 1
    assert result["d custom"][:2] == ("backward", "")


def test_2021s_names(tmp_path: Path) -> None:
    """Marks were operators, nodes had plain names, categories began with a capital."""

    def old(name: str, start: float, end: float, thread: int = MAIN, **args: int) -> Event:
        return span("Operator", name, start, end, thread=thread, **args)

    def run(correlation: int, at: int, thread: int = MAIN) -> Event:
        return span("Runtime", "cudaLaunchKernel", at, at + 1, thread=thread, correlation=correlation)

    events = [
        old("ProfilerStep#5", 0, 500),
        old("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 20),
        old("aten::conv2d", 100, 120, Sequence_number=1),
        run(1, 105),
        kernel("conv", 110, 111, 1, category="Kernel"),
        old("aten::nll_loss", 130, 140, Sequence_number=2),
        old("NllLossBackward", 200, 210, ENGINE, Sequence_number=2, Fwd_thread_id=1),
        old("CudnnConvolutionBackward", 210, 230, ENGINE, Sequence_number=1, Fwd_thread_id=1),
        run(2, 215, ENGINE),
        kernel("d conv", 220, 221, 2, category="Kernel"),
        old("Optimizer.step#SGD.step", 300, 400),
        run(3, 310),
        kernel("update", 320, 321, 3, category="Kernel"),
    ]
    result = attribution(tmp_path, events)
    assert {name: row[:3] for name, row in device_attribution(result).items()} == {
        "conv": ("forward", "", "WINDOW"),
        "d conv": ("backward", "", "NODE"),
        "update": ("optimizer", "", "MARK"),
    }
    assert host_attribution(result)["aten::nll_loss"] == ("loss", "")
    assert [step.number for step in result.steps] == [5]


def test_regions_of_the_compiler_have_one_name_both_ways(tmp_path: Path) -> None:
    events = [
        call("nn.Module: OptimizedModule_0", 0, 100),
        op("Torch-Compiled Region: 0/0", 10, 90),
        op("CompiledFunction", 20, 80, sequence=4),
        mark("## Call CompiledFxGraph fal4xpiah2v6 ##", 25, 75),
        launch(1, 30),
        kernel("triton_poi_fused_relu_0", 35, 36, 1),
        node("CompiledFunctionBackward", 200, 300, 4),
        mark("## Call CompiledFxGraph backwards123 ##", 210, 290, thread=ENGINE),
        launch(2, 220, thread=ENGINE),
        kernel("triton_red_fused_sum_1", 225, 226, 2),
    ]
    result = attribution(tmp_path, events)
    region = "OptimizedModule_0.Torch-Compiled Region: 0/0"
    assert result.compiled
    assert any("torch.compile" in note for note in result.notes)
    assert device_attribution(result)["triton_poi_fused_relu_0"][:2] == ("forward", region)
    assert device_attribution(result)["triton_red_fused_sum_1"][:2] == ("backward", region)


def test_inference_is_forward_in_modules_and_steps_alone(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#0", 0, 100),
        call("nn.Module: Net_0", 10, 40),
        op("aten::addmm", 12, 38),
        launch(1, 20),
        kernel("inside", 25, 26, 1),
        op("aten::argmax", 50, 60),
        launch(2, 52),
        kernel("beside", 55, 56, 2),
        op("aten::argmax", 150, 160),
        launch(3, 152),
        kernel("after", 155, 156, 3),
    ]
    result = device_attribution(attribution(tmp_path, events))
    assert result["inside"][:2] == ("forward", "Net_0")
    assert result["beside"][:3] == ("forward", "", "WINDOW")
    assert result["after"][:3] == ("other", "", "NONE")


def test_work_of_the_optimizer_outside_of_its_marks(tmp_path: Path) -> None:
    """With stacks, clipping and the scaler are known by their calls; so is who asks for backward."""
    events = [
        call("torch/nn/utils/clip_grad.py(100): clip_grad_norm_", 0, 50),
        launch(1, 10),
        kernel("norm", 15, 16, 1),
        call("torch/amp/grad_scaler.py(200): unscale_", 60, 90),
        launch(2, 70),
        kernel("unscale", 75, 76, 2),
        call("torch/_tensor.py(500): backward", 100, 200),
        op("aten::ones_like", 110, 120),
        launch(3, 112),
        kernel("seed", 115, 116, 3),
    ]
    result = device_attribution(attribution(tmp_path, events))
    assert result["norm"][:3] == result["unscale"][:3] == ("optimizer", "", "MARK")
    assert result["seed"][:3] == ("backward", "", "MARK")


def test_steps_that_only_the_optimizer_ends(tmp_path: Path) -> None:
    events = [op("aten::addmm", 0, 10), launch(1, 5), kernel("k", 6, 7, 1)]
    for start in (100, 200, 300):
        events += [mark("Optimizer.step#Adam.step", start, start + 50), op("aten::addmm", start + 60, start + 70)]
    result = attribution(tmp_path, events)
    assert [(step.number, step.end_ns // 1000) for step in result.steps] == [(0, 150), (1, 250), (2, 350)]
    assert device_attribution(result)["k"].step == 0
    assert summarize(result).steps_inferred
    assert any("3 steps" in note and "profiler.step()" in note for note in result.notes)


# ---- launches


def test_a_graphs_launch_is_shared_and_the_outer_call_is_the_launch(tmp_path: Path) -> None:
    events = [
        op("aten::graph", 0, 100),
        launch(1, 10, 50, name="cudaGraphLaunch"),
        launch(1, 20, 30, name="cuGraphLaunch"),
        *(kernel(f"k{i}", 60 + i, 60.5 + i, 1) for i in range(5)),
    ]
    result = attribution(tmp_path, events)
    launches = {int(position) for position in result.device.launch}
    assert len(launches) == 1
    row = result.host.rows[launches.pop()]
    assert result.table.names[result.table.name[row]] == "cudaGraphLaunch"
    assert result.graph_launches == 1


def test_a_correlation_that_is_used_again_joins_the_latest_call_before(tmp_path: Path) -> None:
    events = [
        launch(9, 10),
        kernel("a", 20, 21, 9),
        launch(9, 100, thread=ENGINE),
        kernel("b", 120, 121, 9),
        launch(9, 200),
        kernel("c", 210, 211, 9),
        kernel("too early", 5, 6, 9),
        kernel("unknown", 300, 301, 10),
        kernel("none", 310, 311),
    ]
    result = attribution(tmp_path, events)
    starts = {
        result.table.names[result.table.name[row]]: (
            int(result.table.start_ns[result.host.rows[launched]]) // 1000 if launched != NONE else None
        )
        for row, launched in zip(result.device.rows.tolist(), result.device.launch.tolist(), strict=True)
    }
    assert starts == {"a": 10, "b": 100, "c": 200, "too early": 10, "unknown": None, "none": None}


def test_an_operators_id_helps_only_where_no_correlation_does(tmp_path: Path) -> None:
    def with_id(event: Event, number: int) -> Event:
        return {**event, "args": {**event["args"], "External id": number}}

    events = [
        call("nn.Module: Linear_0", 0, 50),
        with_id(op("aten::addmm", 10, 40), 7),
        with_id(op("aten::mul", 60, 70), 8),
        with_id(op("aten::mul", 80, 90), 8),
        with_id(op("aten::late", 500, 510), 9),
        with_id(kernel("known", 20, 21), 7),
        with_id(kernel("ambiguous", 100, 101), 8),
        with_id(kernel("before it began", 400, 401), 9),
        with_id(kernel("of another window", 410, 411, 1234), 7),
    ]
    result = attribution(tmp_path, events)
    row = device_attribution(result)
    assert row["known"][:3] == ("forward", "Linear_0", "MODULE")
    for name in ("ambiguous", "before it began", "of another window"):
        assert row[name][:3] == ("", "", "NONE")
    assert (result.device.launch == NONE).all()


def test_positions_of_the_host_point_at_what_they_say(tmp_path: Path) -> None:
    result = attribution(tmp_path, a_step())
    host, of = result.host, result.table
    for position, row in enumerate(host.rows.tolist()):
        for column, kind in ((host.operator, Kind.OPERATOR), (host.python, Kind.PYTHON), (host.node, Kind.OPERATOR)):
            at = column[position]
            while at != NONE and of.kind[host.rows[at]] != kind:
                pytest.fail(of.names[of.name[row]])
            assert at == NONE or at <= position


@pytest.mark.parametrize(
    ("category", "name", "phase"),
    [
        ("python_function", "nn.Module: CrossEntropyLoss_0", "loss"),
        ("python_function", "nn.Module: FocalLoss_3", "loss"),
        ("python_function", "nn.Module: ModelWithLoss_0", "forward"),
        ("python_function", "nn.Module: LossWrapper_0", "forward"),
        ("python_function", "nn.Module: LosslessEncoder_0", "forward"),
        ("python_function", "torch/nn/functional.py(3000): cross_entropy", "loss"),
        ("python_function", "torch/nn/functional.py(3000): linear", "other"),
        ("python_function", "train.py(10): compute_loss", "other"),
        ("cpu_op", "aten::cross_entropy_loss", "loss"),
        ("cpu_op", "aten::nll_loss2d", "loss"),
        ("cpu_op", "aten::_cudnn_ctc_loss", "loss"),
        ("cpu_op", "LigerFusedLinearCrossEntropyFunction", "loss"),
        ("cpu_op", "aten::log_softmax", "other"),
        ("user_annotation", "MyLoss", "other"),
        ("user_annotation", "## forward ##", "forward"),
        ("user_annotation", "## forward:over_arch ##", "forward"),
        ("user_annotation", "Backward 3", "backward"),
        ("user_annotation", "train/optimizer_step", "optimizer"),
        ("user_annotation", "wait_for_batch", "data"),
        ("user_annotation", "data", "data"),
        ("user_annotation", "## data ##", "data"),
        ("user_annotation", "transfer", "transfer"),
        ("user_annotation", "data_parallel", "other"),
        ("user_annotation", "data_parallel_forward", "forward"),
        ("user_annotation", "## alltoall_fwd_single ##", "other"),
        ("user_annotation", "forward_backward", "other"),
        ("cpu_op", "## forward ##", "other"),
        ("user_annotation", "FullyShardedDataParallel.forward", "forward"),
        ("user_annotation", "FSDP::post_backward_reduce", "backward"),
    ],
)
def test_what_a_name_says(tmp_path: Path, category: str, name: str, phase: str) -> None:
    events = [
        span(category, name, 0, 50),
        launch(1, 10),
        kernel("k", 15, 16, 1),
        mark("Optimizer.step#SGD.step", 100, 110),
    ]
    assert device_attribution(attribution(tmp_path, events))["k"].phase == phase
