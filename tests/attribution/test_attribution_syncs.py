"""The host's waits by caller, and by the phase whose kernels they waited for."""

from __future__ import annotations

from inspection_written import Written

from profiler_kit.attribution.summary import summarize
from profiler_kit.traces.table import Kind

US = 1000


def test_the_wait_of_an_item_in_the_loss_is_split_over_the_kernels_it_waited_for() -> None:
    trace = Written()
    forward = trace.op("aten::conv2d", 0, 10 * US, phase="forward")
    trace.work(20 * US, 60 * US, trace.launch(2 * US, 6 * US))
    trace.op("aten::nll_loss", 12 * US, 18 * US, phase="loss")
    trace.work(65 * US, 70 * US, trace.launch(13 * US, 15 * US))
    trace.op("autograd::engine::evaluate_function: N", 20 * US, 25 * US, thread=1, phase="backward")
    trace.work(70 * US, 100 * US, trace.launch(21 * US, 24 * US, thread=1))
    trace.op("aten::item", 30 * US, 112 * US, phase="loss")
    trace.op("aten::_local_scalar_dense", 31 * US, 111 * US)
    trace.call("cudaStreamSynchronize", 40 * US, 105 * US)
    assert forward.phase == "forward"
    (wait,) = summarize(trace.attribution()).syncs
    assert (wait.name, wait.call, wait.phase, wait.calls) == ("aten::item", "cudaStreamSynchronize", "loss", 1)
    assert wait.wait_ns == 65 * US
    assert {part.phase: part.ns for part in wait.waited_for} == {
        "forward": 20 * US,
        "backward": 30 * US,
        "loss": 5 * US,
        "": (5 + 5) * US,  # the device was idle from 60 to 65 and after 100
    }


def test_waits_of_one_kind_are_added_up_and_the_longest_come_first() -> None:
    trace = Written()
    trace.work(0, 100 * US, trace.launch(-5 * US, -1 * US))
    for start in (10, 30):
        trace.op("aten::item", start * US, (start + 12) * US)
        trace.call("cudaStreamSynchronize", (start + 1) * US, (start + 11) * US)
    trace.host("torch/cuda/__init__.py(1): synchronize", 50 * US, 90 * US, Kind.PYTHON)
    trace.call("cudaDeviceSynchronize", 51 * US, 88 * US)
    trace.launch(90 * US, 91 * US)
    trace.work(100 * US, 101 * US, trace.launch(92 * US, 93 * US))
    result = [(wait.name, wait.calls, wait.wait_ns) for wait in summarize(trace.attribution()).syncs]
    assert result == [("torch/cuda/__init__.py(1): synchronize", 1, 37 * US), ("aten::item", 2, 20 * US)]


def test_a_call_without_operator_or_python_is_named_by_itself() -> None:
    trace = Written()
    trace.work(0, 50 * US, trace.launch(60 * US, 61 * US))
    trace.call("hipMemcpyWithStream", 10 * US, 20 * US)
    assert [(wait.name, wait.phase) for wait in summarize(trace.attribution()).syncs] == [("hipMemcpyWithStream", "")]


def test_a_wait_within_an_autograd_node_is_its_operators_not_the_nodes() -> None:
    trace = Written()
    trace.work(0, 50 * US, trace.launch(60 * US, 61 * US))
    trace.op("autograd::engine::evaluate_function: IndexBackward0", 10 * US, 30 * US, phase="backward")
    trace.op("aten::nonzero", 11 * US, 29 * US)
    trace.call("cudaStreamSynchronize", 12 * US, 28 * US)
    assert [(wait.name, wait.phase) for wait in summarize(trace.attribution()).syncs] == [("aten::nonzero", "backward")]


def test_the_profilers_own_synchronization_at_the_end_is_nobodys_wait() -> None:
    trace = Written()
    trace.step(1, 0, 20 * US)
    trace.work(10 * US, 500 * US, trace.launch(1 * US, 5 * US))
    trace.call("cudaDeviceSynchronize", 25 * US, 501 * US)
    assert summarize(trace.attribution()).syncs == ()
    trace.step(2, 20 * US, 600 * US)  # within a step it is the loop's
    assert [wait.wait_ns for wait in summarize(trace.attribution()).syncs] == [476 * US]


def test_waiting_is_part_of_the_phases_host_time() -> None:
    trace = Written()
    trace.work(0, 100 * US, trace.launch(-5 * US, -1 * US))
    trace.op("aten::item", 10 * US, 120 * US, phase="loss")
    trace.call("cudaStreamSynchronize", 20 * US, 110 * US)
    loss = next(phase for phase in summarize(trace.attribution()).phases if phase.phase == "loss")
    assert (loss.host_ns, loss.wait_ns, loss.kernel_ns) == (110 * US, 90 * US, 0)


def test_a_call_within_another_waiting_call_counts_once() -> None:
    trace = Written()
    trace.work(0, 100 * US, trace.launch(200 * US, 201 * US))
    trace.call("hipMemcpyWithStream", 10 * US, 60 * US)
    trace.call("hipStreamSynchronize", 20 * US, 50 * US)
    waits = summarize(trace.attribution()).syncs
    assert [(wait.call, wait.wait_ns) for wait in waits] == [("hipMemcpyWithStream", 50 * US)]
