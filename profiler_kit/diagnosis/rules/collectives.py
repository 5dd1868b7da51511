"""Communication that no computation hides, without the time in which a rank waits for another rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.idle_time import COMMUNICATION_CLAIMS
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, plural
from profiler_kit.diagnosis.recorded import rank_traces
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import CollectiveTime, TraceSummary
from profiler_kit.units import percent, text

# The last bucket of gradients cannot overlap; a tenth of the span is more than that.
MIN_EXPOSED_SHARE: Final = 0.10
# NCCL needs about 20 us for any message, and messages of several megabytes to use the bandwidth of the links.
SMALL_MESSAGE_BYTES: Final = 2 << 20
MIN_SMALL_MESSAGES: Final = 20  # per step: a few small ones are statistics of batch norms, or a loss
# The kinds that send activations from stage to stage of a pipeline.
_PIPELINE_KIND: Final = "send_recv"
_SEND: Final = re.compile(r"\Ac10d::(send|recv|recv_|recv_any_source_)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exposed:
    """The exposed communication of a trace. `share`: its part of the span, without waiting for late ranks.

    `wait_share`: that waiting. `main`: the kind of collectives with the largest sum of durations, or None. `small`: the main
    kind if its messages are small. `is_pipeline`: the stages of a pipeline wait for each other.
    """

    exposed_ns: int
    union_ns: int
    share: float
    wait_share: float
    main: CollectiveTime | None
    small: CollectiveTime | None
    is_pipeline: bool


def _rank_steps(report: Report | TraceReport) -> Iterator[StepWork]:
    return idle_steps(rank_traces(report))


def _exposed(report: Report | TraceReport, step: StepWork) -> _Exposed | None:
    """Return the exposed communication of `step`; None below the limit.

    Without a device, it is the time in which the host waits for other ranks and no operator runs.
    """
    trace, communication = step.trace, step.trace.communication
    if step.on_device and communication is not None:
        exposed_ns, union_ns, kinds = communication.exposed_ns, communication.union_ns, communication.by_kind
    elif not step.on_device:
        exposed_ns = union_ns = step.idle_ns("communication")
        kinds = ()
    else:
        return None
    wait_share = _wait_share(rank_traces(report), trace)
    share = min(1.0, exposed_ns / trace.span_ns) - wait_share
    if share <= MIN_EXPOSED_SHARE:
        return None
    small = (
        kind
        for kind in kinds
        if kind.bytes is not None
        and kind.events >= MIN_SMALL_MESSAGES * step.steps
        and kind.bytes < SMALL_MESSAGE_BYTES * kind.events
        and 2 * kind.sum_ns >= sum(other.sum_ns for other in kinds)
    )
    main = max(kinds, key=lambda kind: kind.sum_ns, default=None)
    return _Exposed(
        exposed_ns=exposed_ns,
        union_ns=union_ns,
        share=share,
        wait_share=wait_share,
        main=main,
        small=next(small, None),
        is_pipeline=main is not None and main.kind == _PIPELINE_KIND and _sends(trace),
    )


def _sends(trace: TraceSummary) -> bool:
    """Return whether the program sends to single ranks. NCCL's kernels of an all-to-all look the same."""
    return any(_SEND.match(operator.name) for operator in trace.operators)


def _wait_share(report: TraceReport, trace: TraceSummary) -> float:
    """Return the share of the step in which the rank of `trace` waits for later ranks; 0 where no rank is a straggler."""
    if report.ranks is None or not report.ranks.stragglers:
        return 0.0
    rank = next((rank for rank in report.ranks.ranks if rank.file == trace.file), None)
    return min(1.0, rank.wait_ns / rank.step_ns) if rank is not None and rank.step_ns > 0 else 0.0


# Collectives of sharded parameters (FSDP, ZeRO); those of replicated ones are all-reduces.
_SHARDED_KINDS: Final = frozenset({"all_gather", "reduce_scatter"})
_SHARDED_ADVICE: Final = advise(
    "Overlap it with computation, in larger units: fully_shard with {code}, or "
    "FullyShardedDataParallel(model, forward_prefetch=True). Or send less: MixedPrecisionPolicy(param_dtype=torch.bfloat16), or "
    "fully_shard(module, reshard_after_forward=False), which gathers parameters once per step and keeps them.",
    "module.set_modules_to_forward_prefetch([...])",
)
_REPLICATED_ADVICE: Final = advise(
    "Send less, in DDP with float32 gradients: `{code}`, from torch.distributed.algorithms.ddp_comm_hooks. And send less often: "
    "all but the last of several batches inside model.no_sync().",
    "model.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)",
)
# DDP reduces a bucket as soon as its gradients are complete. A single bucket is complete only after the whole backward pass.
_LARGE_BUCKET_ADVICE: Final = advise(
    "Overlap it with computation, in smaller buckets: {code}. One large bucket starts only when backward ends.",
    "DistributedDataParallel(model, bucket_cap_mb=25, gradient_as_bucket_view=True)",
)
# Buckets of DDP's default size, 25 MiB, are at most a parameter larger.
LARGE_BUCKET_BYTES: Final = 64 << 20
# A single trace does not show whether a rank is late, and then sending less does not help.
_ALL_RANKS_ADVICE: Final = (
    "Inspect the traces of all ranks together, to see which rank waits for which: `{code}`. If no rank is late, "
)
_ALL_RANKS_COMMAND: Final = "profiler-kit inspect FOLDER"
# A PCIe link moves about 10 GB/s, NVLink and Infinity Fabric move more. Slower collectives wait, or cross a slow network.
LINK_BYTES_PER_S: Final = 5e9
# The calls of kinds that neither DDP nor FSDP makes. They return at once with async_op=True.
_ASYNC_CALLS: Final = {
    "all_to_all": "all_to_all_single(output, input, async_op=True)",
    "broadcast": "broadcast(tensor, src=0, async_op=True)",
    "gather": "gather(tensor, tensors, async_op=True)",
    "scatter": "scatter(tensor, tensors, async_op=True)",
    "reduce": "reduce(tensor, dst=0, async_op=True)",
    "send_recv": "isend(tensor, dst=1)",
    "barrier": "barrier(async_op=True)",
}
_ALL_REDUCE_CALL: Final = "all_reduce(tensor, async_op=True)"
# The operators that DDP's reducer runs beside its all-reduces.
# The operators of fully_shard beside its collectives, whose kinds a trace of gloo does not show.
_FSDP_OPERATOR: Final = re.compile(r"\Afsdp::|\AFSDP::")
_DDP_OPERATOR: Final = re.compile(r"distributed.*reducer::")


def _communication(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    exposed, trace, is_alone = _exposed(report, step), step.trace, rank_traces(report).ranks is None
    if exposed is None or exposed.small is not None or exposed.is_pipeline:
        return None
    by_kind = trace.communication.by_kind if trace.communication is not None else ()
    kinds = [f"{_kind_text(kind)} ({text(kind.sum_ns, 'ns')})" for kind in by_kind]
    return StepPart(
        share=exposed.share,
        share_name="exposed communication, of the span",
        title=f"Exposed communication takes {percent(exposed.share)} of the time: no computation overlaps it",
        sentences=(
            f"Collectives run for {text(exposed.union_ns, 'ns')}, and for {text(exposed.exposed_ns, 'ns')} of it no other work "
            "runs."
            if step.on_device
            else f"Collectives run for {text(exposed.exposed_ns, 'ns')} of {text(trace.span_ns, 'ns')} while no operator runs.",
            f"Waiting for late ranks, {percent(exposed.wait_share)} of the time, is not counted."
            if exposed.wait_share
            else "",
            f"Collectives by kind: {join_list(kinds)}." if kinds else "",
            _rate_sentence(exposed.main),
            "One trace cannot show whether the links are slow or another rank is late." if is_alone else "",
        ),
        advice=_advice(trace, exposed, is_alone=is_alone),
        measures=(
            ("exposed communication", exposed.exposed_ns, "ns"),
            ("communication", exposed.union_ns, "ns"),
            ("span", trace.span_ns, "ns"),
        ),
        claims=COMMUNICATION_CLAIMS,
    )


def _advice(trace: TraceSummary, exposed: _Exposed, *, is_alone: bool) -> Advice:
    """Return the advice for the main kind of collective. One trace does not show a late rank, so it starts with all of them."""
    advice = _own_advice(trace, exposed)
    return (
        advise(f"{_ALL_RANKS_ADVICE}{advice.text[0].lower()}{advice.text[1:]}", _ALL_RANKS_COMMAND)
        if is_alone
        else advice
    )


def _own_advice(trace: TraceSummary, exposed: _Exposed) -> Advice:
    main = exposed.main
    kind = main.kind if main is not None else ""
    if kind in _SHARDED_KINDS or any(_FSDP_OPERATOR.match(operator.name) for operator in trace.operators):
        return _SHARDED_ADVICE
    is_ddp = trace.clock == "device" or any(_DDP_OPERATOR.search(operator.name) for operator in trace.operators)
    if kind in _ASYNC_CALLS or not is_ddp:
        call = _ASYNC_CALLS.get(kind, _ALL_REDUCE_CALL)
        return advise(
            "Overlap it with computation: `{code}`, then other work, and `work.wait()` before the result is used. Or send less: "
            "a smaller dtype, or larger batches.",
            f"work = torch.distributed.{call}",
        )
    is_large = main is not None and main.bytes is not None and main.bytes > LARGE_BUCKET_BYTES * main.events
    return _LARGE_BUCKET_ADVICE if is_large else _REPLICATED_ADVICE


def _kind_text(kind: CollectiveTime) -> str:
    return (
        f"{kind.events:,} of unknown kind"
        if kind.kind == "collective"
        else plural(kind.events, kind.kind.replace("_", "-"))
    )


def _rate_sentence(main: CollectiveTime | None) -> str:
    """Return a sentence about the rate of the main kind of collectives; empty where the trace records no sizes."""
    if main is None or main.bytes_per_s is None:
        return ""
    kind, rate = main.kind.replace("_", "-").capitalize(), text(main.bytes_per_s, "bytes/s")
    if main.bytes_per_s >= LINK_BYTES_PER_S:
        return f"{kind}s move {rate}."
    return (
        f"{kind}s move {rate}. The links within a host move more than {text(LINK_BYTES_PER_S, 'bytes/s')}, so they mostly wait "
        "for other ranks, or use a slow network."
    )


COMMUNICATION_EXPOSED = step_rule(
    "communication_exposed",
    _communication,
    Shares(MIN_EXPOSED_SHARE, high=1 / 3, of="the span"),  # an added process then brings two thirds of its cost
    f"""
Fires on a trace in which collectives run alone, with no computation at the same time. Without a device, it is the time in which
collectives and no operators run.

The advice depends on the main kind of collective: all-reduces are DDP's, all-gathers and reduce-scatters those of sharded
parameters. Any other collective overlaps if the program starts it with `async_op=True` and waits for it later. Without a
device, the threads of a process group run the collectives, and the advice names DDP only if the trace has operators of its
reducer.

A collective also lasts while it waits for the last rank to arrive. If the traces of all ranks are inspected together, this
waiting is not counted (rule `stragglers`). One trace alone cannot show whether the links are slow or another rank is late. It
shows the rate of the collectives: below {text(LINK_BYTES_PER_S, "bytes/s")} they are slower than the links within a host. Rules
`small_buckets` and `pipeline_bubbles` cover many small messages and messages between the stages of a pipeline.
""",
    steps=_rank_steps,
    needs_runs=False,
)


def _small_messages(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    exposed = _exposed(report, step)
    if exposed is None or (small := exposed.small) is None or small.bytes is None:
        return None
    kind, mean_bytes, per_step = small.kind.replace("_", "-"), small.bytes / small.events, small.events / step.steps
    return StepPart(
        share=exposed.share,
        share_name="exposed communication, of the span",
        title=f"Small messages: {text(per_step, 'count')} {kind}s per step send {text(mean_bytes, 'bytes')} each",
        sentences=(
            f"{plural(small.events, kind)} take {text(small.sum_ns, 'ns')}. Exposed communication takes "
            f"{percent(exposed.share)} of the time.",
            "A collective costs its latency whatever its size.",
        ),
        advice="Send fewer and larger messages: {code}, or larger units in FSDP.",
        code="DistributedDataParallel(model, bucket_cap_mb=25)",
        measures=(("mean size of a message", mean_bytes, "bytes"), ("messages per step", per_step, "count")),
        claims=COMMUNICATION_CLAIMS,
    )


SMALL_BUCKETS = step_rule(
    "small_buckets",
    _small_messages,
    Shares(MIN_EXPOSED_SHARE, of="the span"),
    f"""
Fires on a trace with exposed communication, if most of it is collectives of one kind with fewer than
{text(SMALL_MESSAGE_BYTES, "bytes")} on average, at least {MIN_SMALL_MESSAGES} per step.

A collective costs its latency whatever its size. Fewer and larger ones use the bandwidth of the links. The trace has to state the
sizes of collectives.
""",
    steps=_rank_steps,
    states_share=False,
    needs_runs=False,
)


def _pipeline(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    exposed = _exposed(report, step)
    if exposed is None or (main := exposed.main) is None or not exposed.is_pipeline:
        return None
    return StepPart(
        share=exposed.share,
        share_name="waiting for stages, of the span",
        title=f"Pipeline bubbles: the stage waits for other stages for {percent(exposed.share)} of the time",
        sentences=(
            f"{plural(main.events, 'send or receive', 'sends and receives')} take {text(main.sum_ns, 'ns')}, and no computation "
            f"overlaps {text(exposed.exposed_ns, 'ns')} of it.",
        ),
        advice="Use more micro-batches, for example {code} with twice the number; a schedule with smaller bubbles (Schedule1F1B, "
        "ScheduleInterleaved1F1B); stages of equal duration.",
        code="ScheduleGPipe(stage, n_microbatches=8)",
        measures=(("sends and receives", main.events, "count"),),
        claims=COMMUNICATION_CLAIMS,
    )


PIPELINE_BUBBLES = step_rule(
    "pipeline_bubbles",
    _pipeline,
    Shares(MIN_EXPOSED_SHARE, high=1 / 3, of="the span"),
    """
Fires on a trace with exposed communication, if most of it is sends and receives between two ranks. NCCL's kernels of an
all-to-all have the same name, so the trace also has to hold the operators `c10d::send` or `c10d::recv_`.

A receive lasts until the other stage has sent. With `m` micro-batches and `p` stages, a pipeline idles for
`(p - 1) / (m + p - 1)` of its time, even if the stages take equally long.
""",
    steps=_rank_steps,
    needs_runs=False,
)
