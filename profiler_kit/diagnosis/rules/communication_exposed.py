"""Collectives that do not overlap with computation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.communication import CLAIMS, MIN_EXPOSED_SHARE, Exposed, worst_exposed
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import CollectiveTime, TraceSummary
from profiler_kit.units import percent, text

# Above a third of the span, an added process brings little more than two thirds of its cost.
HIGH_SHARE: Final = 1 / 3

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

DOC = f"""
Fires on a trace in which collectives run alone, with no computation at the same time, for more than
{limit_percent(MIN_EXPOSED_SHARE)} of the span. Without a device, it is the time in which collectives and no operators run.

- `high`: from a third of the span.
- `medium`: otherwise.

The advice depends on the main kind of collective: all-reduces are DDP's, all-gathers and reduce-scatters those of sharded
parameters. Any other collective overlaps if the program starts it with `async_op=True` and waits for it later. Without a
device, the threads of a process group run the collectives, and the advice names DDP only if the trace has operators of its
reducer.

A collective also lasts while it waits for the last rank to arrive. If the traces of all ranks are inspected together, this
waiting is not counted (rule `stragglers`). One trace alone cannot show whether the links are slow or another rank is late. It
shows the rate of the collectives: below {text(LINK_BYTES_PER_S, "bytes/s")} they are slower than the links within a host. Rules
`small_buckets` and `pipeline_bubbles` cover many small messages and messages between the stages of a pipeline.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest exposed share."""
    worst = worst_exposed(report)
    if worst is None:
        return
    exposed, trace = worst.match, worst.step.trace
    if exposed.small is not None or exposed.is_pipeline:
        return
    device = trace.clock == "device"
    kinds = [
        f"{_kind_text(kind)} ({text(kind.sum_ns, 'ns')})"
        for kind in (trace.communication.by_kind if trace.communication is not None else ())
    ]
    yield RULE.finding(
        severity="high" if exposed.share >= HIGH_SHARE else "medium",
        title=f"Exposed communication takes {percent(exposed.share)} of the time: no computation overlaps it",
        explanation=join_sentences(
            f"{worst.step.prefix}Collectives run for {text(exposed.union_ns, 'ns')}, and for "
            f"{text(exposed.exposed_ns, 'ns')} of it no other work runs."
            if device
            else f"{worst.step.prefix}Collectives run for {text(exposed.exposed_ns, 'ns')} of {text(trace.span_ns, 'ns')} "
            "while no operator runs.",
            f"Waiting for late ranks, {percent(exposed.wait_share)} of the time, is not counted."
            if exposed.wait_share
            else "",
            f"Collectives by kind: {join_list(kinds)}." if kinds else "",
            _rate_sentence(exposed.main),
            ""
            if report.ranks is not None
            else "One trace cannot show whether the links are slow or another rank is late.",
            worst.others_sentence(),
        ),
        advice=_advice(trace, exposed, is_alone=report.ranks is None),
        evidence=(
            Evidence(
                name="exposed communication, of the span",
                value=100.0 * exposed.share,
                unit="percent",
                where=worst.step.name,
            ),
            Evidence(name="exposed communication", value=exposed.exposed_ns, unit="ns", where=worst.step.name),
            Evidence(name="communication", value=exposed.union_ns, unit="ns", where=worst.step.name),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=worst.step.name),
        ),
        weight=exposed.share,
        claims=CLAIMS,
    )


def _advice(trace: TraceSummary, exposed: Exposed, *, is_alone: bool) -> Advice:
    """Return the advice for the main kind of collective. One trace does not show a late rank, so it starts with all of them."""
    advice = _own_advice(trace, exposed)
    return (
        advise(f"{_ALL_RANKS_ADVICE}{advice.text[0].lower()}{advice.text[1:]}", _ALL_RANKS_COMMAND)
        if is_alone
        else advice
    )


def _own_advice(trace: TraceSummary, exposed: Exposed) -> Advice:
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


RULE = Rule("communication_exposed", DOC, check, "cause", "both", needs_runs=False)
