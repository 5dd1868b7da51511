"""Handwritten reports of inspected traces. Most figures come from real traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from profiler_kit.records.counts import Phase
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.records.report import Tool, TraceReport
from profiler_kit.records.traces import (
    CollectiveTime,
    Communication,
    IdleCause,
    IdleTime,
    PhaseTime,
    Queue,
    StreamTime,
    SyncWait,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TraceStep,
    TraceSummary,
    WaitByPhase,
)

MS = 1_000_000
US = 1_000
# phase -> host ms, device ms, ms of the host's that are waiting
Phases = Mapping[Phase, tuple[float | None, float, float]]
Idle = Mapping[tuple[IdleCause, Phase], float]
XMMA = "sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_cudnn"


def ms(value: float) -> int:
    return round(value * MS)


def kernel(
    family: str, total_ms: float, calls: int, *, math: str | None = None, op: str | None = None, name: str = ""
) -> TraceKernel:
    return TraceKernel(
        name=name or f"{family}_kernel<{math or 'float'}>",
        family=family,
        op=op,
        math=math,
        calls=calls,
        kernel_ns=ms(total_ms),
        sum_ns=ms(total_ms),
    )


def trace(
    file: str = "runs/trace.json.gz",
    *,
    phases: Phases | None = None,
    idle: Idle | None = None,
    kernels: Sequence[TraceKernel] = (),
    unattributed_ms: float = 0.0,
    overlap_ms: float = 0.0,
    events: int = 1000,
    **more: Any,
) -> TraceSummary:
    """Return a summary whose parts sum to the total. Kernel time not in `kernels` gets a kernel of another family."""
    spent: Phases = {"forward": (10.0, 30.0, 0.0), "backward": (20.0, 60.0, 0.0)} if phases is None else phases
    gaps: Idle = {} if idle is None else idle
    busy = sum(ms(device) for _, device, _ in spent.values()) + ms(unattributed_ms)
    idle_ns = sum(ms(gap) for gap in gaps.values())
    remaining_ns = busy - sum(kernel.kernel_ns for kernel in kernels)
    if remaining_ns > 0:
        other = TraceKernel(
            name="other_kernel",
            family="other",
            op=None,
            math=None,
            calls=events,
            kernel_ns=remaining_ns,
            sum_ns=remaining_ns,
        )
        kernels = (*kernels, other)
    summary = TraceSummary(
        file=file,
        clock="device",
        events=10 * events,
        device_events=events,
        span_ns=busy + idle_ns,
        busy_ns=busy,
        idle_ns=idle_ns,
        sum_ns=busy + ms(overlap_ms),
        linked=events,
        unlinked_ns=0,
        aligned_ns=0,
        unattributed_ns=ms(unattributed_ms),
        moduleless_ns=0,
        step_ns=None,
        host_step_ns=None,
        devices=("NVIDIA H100 80GB HBM3",),
        phases=tuple(
            PhaseTime(
                phase=phase,
                host_ns=None if host is None else ms(host),
                kernel_ns=ms(device),
                sum_ns=ms(device),
                idle_ns=sum(ms(gap) for (_, before), gap in gaps.items() if before == phase),
                wait_ns=ms(wait),
                events=events // len(spent),
            )
            for phase, (host, device, wait) in spent.items()
        ),
        idle=tuple(
            IdleTime(cause=cause, phase=before, ns=ms(gap), gaps=3) for (cause, before), gap in gaps.items() if gap
        ),
        streams=(StreamTime(device="0", stream="7", events=events, busy_ns=busy, communication=False),),
        kernels=tuple(kernels),
    )
    return replace(summary, **more)


def traces(*summaries: TraceSummary, ranks: Ranks | None = None) -> TraceReport:
    return TraceReport(
        tool=Tool(name="profiler_kit", version="0"),
        created="2026-01-01T00:00:00+00:00",
        traces=summaries,
        ranks=ranks,
    )


def steps(count: int, device_ms: float, host_ms: float) -> dict[str, Any]:
    """Return the fields of a trace with `count` equal steps."""
    made = tuple(
        TraceStep(
            number=number,
            host_ns=ms(host_ms),
            device_ns=ms(device_ms) if number < count else None,
            kernel_ns=ms(device_ms),
            idle_ns=0 if number < count else None,
            steady=number < count,
        )
        for number in range(1, count + 1)
    )
    return {"steps": made, "step_ns": ms(device_ms), "host_step_ns": ms(host_ms)}


def convnet(file: str = "h100/convnet_v0.json.gz") -> TraceSummary:
    """Three steps of V0 on an H100. ``.item()`` reads the loss; the large layer launches three kernels per step."""
    return trace(
        file,
        phases={
            "transfer": (0.6, 0.9, 0.0),
            "forward": (2.1, 29.4, 0.0),
            "loss": (77.0, 0.05, 76.4),
            "backward": (1.8, 49.7, 0.0),
            "optimizer": (0.7, 0.16, 0.0),
        },
        idle={("synchronization", "forward"): 0.8, ("op dispatch", "loss"): 0.1},
        kernels=[
            kernel("conv:xmma_igemm", 27.39, 3, math="tf32", op="dgrad", name=XMMA),
            kernel("conv:xmma_igemm", 26.38, 3, math="tf32", op="fprop", name="sm80_xmma_fprop_implicit_gemm_cudnn"),
            kernel("conv:cutlass_igemm", 17.54, 3, math="tf32", op="wgrad", name="cutlass__5x_cudnn::Kernel<wgrad>"),
            kernel("conv:layout", 2.14, 38, name="cudnn::nchwToNhwcKernel<float>"),
            kernel("conv:legacy_direct", 0.57, 4, math="fp32", op="wgrad", name="wgrad_alg0_engine<float>"),
        ],
        events=321,
        operators=(
            TraceOperator(
                name="aten::convolution_backward", family="conv", calls=12, kernel_ns=ms(47.0), host_self_ns=ms(0.9)
            ),
            TraceOperator(
                name="aten::cudnn_convolution", family="conv", calls=12, kernel_ns=ms(28.0), host_self_ns=ms(0.8)
            ),
            TraceOperator(name="aten::copy_", family="cat/copy", calls=6, kernel_ns=ms(0.9), host_self_ns=ms(0.1)),
        ),
        syncs=(
            SyncWait(
                name="aten::item",
                call="cudaStreamSynchronize",
                phase="loss",
                calls=3,
                wait_ns=ms(76.4),
                waited_for=(WaitByPhase(phase="backward", ns=ms(47.0)), WaitByPhase(phase="forward", ns=ms(29.4))),
            ),
        ),
        queue=Queue(max_depth=64, median_depth=20.0, delay_ns=9 * MS, full=False, growing=False, blocked_ns=0),
        **steps(3, 27.1, 29.0),
    )


def full_queue() -> TraceSummary:
    """Five steps of a ResNet on a V100. The launch queue is full, so the host clock shows only the wait for it."""
    return trace(
        "v100/resnet_ddp.json.gz",
        phases={"forward": (145.9, 150.4, 0.0), "backward": (120.7, 316.5, 0.0), "optimizer": (4.8, 5.6, 0.0)},
        idle={("launch latency", "forward"): 7.57},
        kernels=[kernel("norm", 180.0, 600, math="fp32"), kernel("pointwise", 160.0, 3000)],
        events=6095,
        devices=("Tesla V100-SXM2-16GB",),
        queue=Queue(max_depth=1022, median_depth=800.0, delay_ns=77 * MS, full=True, growing=False, blocked_ns=ms(90)),
        **steps(5, 95.6, 95.5),
    )


def waits_for_data() -> TraceSummary:
    """Six steps of a ResNet-50 whose DataLoader runs in the training process."""
    return trace(
        "resnet50_num_workers_0.pt.trace.json",
        phases={
            "data": (410.0, 0.0, 0.0),
            "forward": (120.0, 196.0, 0.0),
            "backward": (180.0, 400.0, 0.0),
            "optimizer": (60.0, 7.5, 0.0),
        },
        idle={("waiting for data", "transfer"): 284.0, ("op dispatch", "optimizer"): 60.0, ("synchronization", "forward"): 48.9},
        kernels=[kernel("conv:legacy_direct", 300.0, 400, math="fp32")],
        events=9096,
        devices=("Tesla V100-DGXS-32GB",),
        **steps(6, 176.0, 176.2),
    )  # fmt: skip


def nested() -> TraceSummary:
    """A trace with Python stacks: nested modules, recompute, two streams, partly exposed collectives."""
    modules = (
        ("DDP_0.ResNet_0.Sequential_0.Block_0.Conv2d_0", "Conv2d", "forward", 9.0),
        ("DDP_0.ResNet_0.Sequential_0.Block_0.Conv2d_0", "Conv2d", "backward", 15.0),
        ("DDP_0.ResNet_0.Sequential_0.Block_0", "Block", "forward", 1.0),
        ("DDP_0.ResNet_0.Sequential_0.Block_1.Conv2d_1", "Conv2d", "forward", 5.0),
        ("DDP_0.ResNet_0.Sequential_0.Block_1.Conv2d_1", "Conv2d", "recompute", 5.0),
        ("DDP_0.ResNet_0.Linear_0", "Linear", "forward", 1.5),
        ("", "", "optimizer", 3.5),
    )
    return trace(
        "mi300/ddp_checkpoint.json.gz",
        phases={
            "forward": (9.0, 16.5, 0.0),
            "backward": (14.0, 15.0, 0.0),
            "recompute": (None, 5.0, 0.0),
            "optimizer": (3.0, 3.5, 0.0),
            "communication": (None, 9.0, 0.0),
        },
        idle={("communication", "backward"): 1.0},
        unattributed_ms=1.0,
        overlap_ms=9.0,
        devices=("AMD Instinct MI300X",) * 8,
        rank=0,
        world_size=8,
        modules=tuple(
            TraceModule(path=path, class_name=kind, phase=phase, kernel_ns=ms(time), events=5)  # type: ignore[arg-type]
            for path, kind, phase, time in modules
        ),
        streams=(
            StreamTime(device="0", stream="0", events=900, busy_ns=ms(41.0), communication=False),
            StreamTime(device="0", stream="11", events=100, busy_ns=ms(18.0), communication=True),
        ),
        communication=Communication(
            events=100,
            sum_ns=ms(18.0),
            union_ns=ms(18.0),
            exposed_ns=ms(9.0),
            by_kind=(CollectiveTime(kind="all_reduce", events=100, sum_ns=ms(18.0), bytes=2_550_000_000),),
        ),
        has_modules=True,
        moduleless_ns=ms(3.5),
        unlinked_ns=ms(1.0),
        linked=980,
    )


def host_only() -> TraceSummary:
    """A trace without a device: self times of operators."""
    return trace(
        "cpu.json",
        phases={"forward": (40.0, 35.0, 0.0), "backward": (60.0, 55.0, 0.0)},
        clock="host",
        devices=(),
        device_events=0,
        linked=0,
        streams=(),
        kernels=(),
        operators=(
            TraceOperator(
                name="aten::mkldnn_convolution", family="conv", calls=4, kernel_ns=ms(80.0), host_self_ns=ms(80.0)
            ),
        ),
    )


def empty() -> TraceSummary:
    """A trace without events."""
    return trace("empty.json", phases={}, events=0, streams=(), devices=(), clock="host")


def two_ranks() -> TraceReport:
    """Two ranks; the second does extra work in backward."""
    pair = [replace(nested(), file=f"ddp/rank{rank}.json.gz", rank=rank, world_size=2) for rank in (0, 1)]
    ranks = Ranks(
        ranks=tuple(
            RankTime(
                rank=rank,
                file=pair[rank].file,
                steps=10,
                step_ns=ms(31.0),
                compute_ns=ms(20.0 + 6.0 * rank),
                communication_ns=ms(9.0 - 6.0 * rank),
                exposed_ns=ms(8.0 - 6.0 * rank),
                wait_ns=ms(6.0 - 6.0 * rank),
                idle_ns=ms(2.0),
            )
            for rank in (0, 1)
        ),
        common_steps=10,
        step_ns=ms(31.0),
        imbalance=0.13,
        stragglers=(
            Straggler(
                rank=1, last=270, collectives=300, late_ns=ms(6.5), cost_ns=ms(6.1), doing="backward", doing_excess_ns=ms(5.9)
            ),
        ),
    )  # fmt: skip
    return traces(*pair, ranks=ranks)


CASES = {
    "convnet": traces(convnet()),
    "full queue": traces(full_queue()),
    "waits for data": traces(waits_for_data()),
    "nested": traces(nested()),
    "host only": traces(host_only()),
    "empty": traces(empty()),
    "two ranks": two_ranks(),
    "three": traces(convnet(), full_queue(), waits_for_data()),
}
