"""Collectives: time, exposure, kind and size."""

from __future__ import annotations

import pytest
from inspection_written import Written

from profiler_kit.attribution.summary import summarize
from profiler_kit.records.traces import Communication
from profiler_kit.traces.names import collective_kind, operator_family
from profiler_kit.traces.table import Kind


def communication_of(trace: Written) -> Communication:
    result = summarize(trace.attribution()).communication
    assert result is not None
    return result


def collective(
    trace: Written, start: int, end: int, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", **more: str | int
) -> None:
    trace.work(start, end, name=name, stream=9, phase="communication", **more)


def test_exposed_is_what_no_other_kernel_covers() -> None:
    trace = Written()
    collective(trace, 0, 100)
    collective(trace, 90, 150)  # beside the first for 10
    trace.work(40, 95, phase="backward")
    trace.work(120, 130, phase="transfer", kind=Kind.MEMCPY)  # a copy computes nothing
    trace.work(140, 200, phase="backward")
    result = communication_of(trace)
    assert (result.events, result.sum_ns, result.union_ns) == (2, 160, 150)
    assert result.exposed_ns == 150 - 55 - 10


def test_sizes_are_elements_times_what_one_takes() -> None:
    trace = Written()
    collective(
        trace,
        0,
        10,
        "ncclDevKernel_Generic",
        **{"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float"},
    )
    collective(
        trace,
        10,
        30,
        "ncclDevKernel_Generic",
        **{"Collective name": "allreduce", "In msg nelems": 7, "dtype": "BFloat16"},
    )
    collective(trace, 30, 40, "ncclDevKernel_Generic", **{"Collective name": "_allgather_base", "dtype": "Float"})
    result = communication_of(trace)
    assert [(kind.kind, kind.events, kind.sum_ns, kind.bytes) for kind in result.by_kind] == [
        ("all_reduce", 2, 30, 414),
        ("all_gather", 1, 10, None),
    ]


def test_the_rate_is_that_of_large_messages() -> None:
    trace = Written()
    for start, end, elements in ((0, 1000, 1 << 20), (1000, 3000, 1 << 18), (3000, 9000, 100)):
        message = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float"}
        collective(trace, start, end, "ncclDevKernel_Generic", **message)
    collective(trace, 9000, 9900, "ncclDevKernel_AllReduce")
    (reduced,) = communication_of(trace).by_kind
    assert reduced.bytes is None
    assert reduced.bytes_per_s == 1e9 * ((4 << 20) + (1 << 20)) / 3000


def test_a_kernel_that_does_every_collective_is_named_by_the_call_around_its_launch() -> None:
    trace = Written()
    trace.op("c10d::allreduce_", 0, 100)
    trace.host("nccl:all_reduce", 10, 90, Kind.ANNOTATION)
    trace.work(200, 210, trace.launch(20, 30), name="ncclDevKernel_Generic", phase="communication")
    collective(trace, 300, 310, "ncclDevKernel_Generic")
    assert [(kind.kind, kind.events) for kind in communication_of(trace).by_kind] == [
        ("all_reduce", 1),
        ("collective", 1),
    ]


def test_the_call_states_the_kind_before_the_kernel_which_may_be_one_for_all() -> None:
    trace = Written()
    trace.op("c10d::alltoall_base_", 0, 100)
    generic = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"
    trace.work(200, 210, trace.launch(20, 30), name=generic, phase="communication")
    collective(trace, 300, 310, generic)
    assert [kind.kind for kind in communication_of(trace).by_kind] == ["all_to_all", "send_recv"]


def test_operators_of_collectives_are_communication() -> None:
    for name in ("c10d::_allgather_base_", "record_param_comms", "nccl:all_reduce", "_c10d_functional::all_reduce"):
        assert operator_family(name) == "comm"
    assert operator_family("aten::gather") == "index"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "send_recv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("nccl:all_to_all", "all_to_all"),
        ("c10d::reduce_scatter_tensor", "reduce_scatter"),
        ("ncclDevKernel_Generic", None),
    ],
)
def test_kinds_by_name(name: str, kind: str | None) -> None:
    assert collective_kind(name) == kind


def test_without_collectives_nothing_is_said() -> None:
    trace = Written()
    trace.work(0, 10, phase="forward")
    assert summarize(trace.attribution()).communication is None


def test_a_stream_of_collectives_alone_is_marked() -> None:
    trace = Written()
    collective(trace, 0, 10)
    trace.work(0, 20, phase="forward")
    assert {stream.stream: stream.communication for stream in summarize(trace.attribution()).streams} == {
        "0": False,
        "9": True,
    }
