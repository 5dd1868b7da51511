"""Ranks of one job: late ones, the buckets of their gradients, a search for unused parameters."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from statistics import median
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.idle_time import COMMUNICATION_CLAIMS, LAUNCH_CAUSES
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent, phase_name, plural
from profiler_kit.diagnosis.recorded import rank_traces
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps
from profiler_kit.records.claims import Claim, idle_claims, phase_claims
from profiler_kit.records.parallel import DEFAULT_BUCKET_MIB
from profiler_kit.records.ranks import Ranks, Straggler
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# Below a fiftieth of the step, changing ranks arrive last, because of clocks and schedulers.
MIN_WAIT_SHARE: Final = 0.02
# Every rank loses a tenth of the step.
LARGE_DELAY_SHARE: Final = 0.10
MAX_FINDINGS: Final = 3  # the table of ranks lists all

PROFILER_SENTENCE: Final = "The profiler slows hosts too, and not all alike: compare with the step time without it."
IN_FOLDER: Final = ", in the report's folder"  # where the traces of a report are


def _stragglers(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield one finding for each of the latest ranks, where there are traces of several."""
    ranks = rank_traces(report).ranks
    if ranks is None or not ranks.step_ns:
        return
    latest_first = sorted(ranks.stragglers, key=lambda straggler: -straggler.late_ns)
    delaying = [straggler for straggler in latest_first if straggler.cost_ns > MIN_WAIT_SHARE * ranks.step_ns]
    if isinstance(report, Report):
        delaying = [straggler for straggler in delaying if not _is_slowed_by_profiler(straggler, ranks, report)]
    for straggler in delaying[:MAX_FINDINGS]:
        yield _straggler(straggler, ranks, IN_FOLDER if isinstance(report, Report) else "")


def _is_slowed_by_profiler(straggler: Straggler, ranks: Ranks, report: Report) -> bool:
    """Return whether the rank is late because of its host, by less than the profiler adds to the step."""
    base = report.baseline()
    if base is None or base.step_ns is None or ranks.step_ns is None:
        return False
    return _waits_for_host(straggler) and straggler.late_ns <= ranks.step_ns - base.step_ns.median


def _waits_for_host(straggler: Straggler) -> bool:
    """Return whether the device of the rank is idle for longer than others, because its host launches more slowly."""
    return straggler.doing.removesuffix(" (idle)") in LAUNCH_CAUSES


def _straggler(straggler: Straggler, ranks: Ranks, place: str) -> Finding:
    step_ns = ranks.step_ns or 1
    share = straggler.late_ns / step_ns
    waits_for_host = _waits_for_host(straggler)
    where = f"rank {straggler.rank}"
    excess_name = f"excess time in {straggler.doing}" if straggler.doing else "excess time"
    unit = "step" if ranks.common_steps else "trace"
    return new_finding(
        severity="high" if share >= LARGE_DELAY_SHARE and not waits_for_host else "medium",
        title=f"Rank {straggler.rank} is a straggler: it is {text(straggler.late_ns, 'ns')} late in each {unit} "
        f"({percent(share)}), and the other ranks wait",
        explanation=join_sentences(
            _excess(straggler),
            f"It is last in {straggler.last:,} of {straggler.collectives:,} collectives. The other ranks wait for "
            f"{text(straggler.cost_ns, 'ns')} ({percent(straggler.cost_ns / step_ns)}) of each {unit} without other work.",
            PROFILER_SENTENCE if waits_for_host else "",
        ),
        advice=_compare_ranks(straggler, ranks, place).then(
            "Look for longer sequences, larger images, work that only one rank does (logging, validation, checkpoints: if rank "
            "== 0), a slower data loader, a throttled or shared device."
        ),
        evidence=(
            Evidence(name="delay, share of the step", value=100.0 * share, unit="percent", where=where),
            Evidence(name="delay per step", value=straggler.late_ns, unit="ns", where=where),
            Evidence(name="wait of the other ranks", value=straggler.cost_ns, unit="ns", where=where),
            Evidence(name="last in collectives", value=straggler.last, unit="count", where=where),
            Evidence(name=excess_name, value=straggler.doing_excess_ns, unit="ns", where=where),
        ),
        weight=share,
        claims=(*COMMUNICATION_CLAIMS, *_late_claims(straggler)),
    )


def _compare_ranks(straggler: Straggler, ranks: Ranks, place: str) -> Advice:
    """Return a sentence with the command that compares the late rank with the one that waits longest."""
    waiting = [rank for rank in ranks.ranks if rank.rank != straggler.rank]
    late = next((rank for rank in ranks.ranks if rank.rank == straggler.rank), None)
    if late is None or not waiting:
        return Advice("")
    other = max(waiting, key=lambda rank: rank.wait_ns)
    command = f"profiler-kit compare {quote(other.file)} {quote(late.file)}"
    return advise(f"Compare rank {late.rank} with rank {other.rank}, which waits: `{{code}}`{place}.", command)


def _late_claims(straggler: Straggler) -> tuple[Claim, ...]:
    """Return a claim on the work or the idle time in which the late rank exceeds the others."""
    name, _, detail = straggler.doing.partition(" (")
    if detail == "idle)":
        return (Claim("idle", "cause", name),)
    return phase_claims(name) if name else ()


def _excess(straggler: Straggler) -> str:
    """Return a sentence about the work or the idle time in which the rank exceeds the median rank; empty if unknown."""
    if not straggler.doing:
        return ""
    excess = text(straggler.doing_excess_ns, "ns")
    name, _, detail = straggler.doing.partition(" (")
    if detail == "idle)":
        return f"Its device is idle for {excess} longer than that of the median rank, because of {name}."
    return f"It spends {excess} more on {phase_name(name)}{f' ({detail}' if detail else ''} than the median rank."


STRAGGLERS = Rule(
    "stragglers",
    f"""
Fires for traces of several ranks if one rank arrives at collectives so late that the median other rank waits for more than
{limit_percent(MIN_WAIT_SHARE)} of the step, without other work.

- `high`: the rank is late by at least {limit_percent(LARGE_DELAY_SHARE)} of the step.
- `medium`: below that, or if its device only waits for its host. The profiler slows hosts, and not all alike.

All ranks end a step together, so the delay is part of the step of every rank, even if the other ranks have work in the meantime.
It explains that share: in the late rank as work or idle time, in the others as waiting. The finding names the phase, module or
idle cause in which the late rank exceeds the median rank most. At most {MAX_FINDINGS} ranks have a finding.

In a report of `analyze --parallel`, which has steps with and without the profiler, a rank whose device waits for its host is not
named if it is late by less than the profiler adds to the step.
""",
    _stragglers,
    "cause",
    "both",
    states_share=False,
    needs_runs=False,
)

# A twentieth of the step is worth one argument of DistributedDataParallel.
MIN_BUCKETS_SHARE: Final = 0.05
MEDIUM_BUCKETS_SHARE: Final = 0.10
MIB: Final = 1 << 20
# A quarter and four times of the default. Closer sizes change the number of buckets too little to see.
SIZES_MIB: Final = (DEFAULT_BUCKET_MIB * 4, DEFAULT_BUCKET_MIB // 4)


def _gradient_buckets(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, on the baseline."""
    base = report.baseline()
    if base is None or report.ranks is None or report.ranks.ranks is None:
        return
    plan, ranks = report.target.parallel, report.ranks.ranks
    if plan is None or plan.strategy != "ddp" or not ranks.step_ns:
        return
    buckets = [row for row in ranks.collectives if row.kind == "all_reduce"]
    exposed_ns = round(median(max(0, rank.exposed_ns - rank.wait_ns) for rank in ranks.ranks))
    share = exposed_ns / ranks.step_ns
    sent_bytes = sum(bucket.bytes or 0 for bucket in buckets) or _counted_bytes(report)
    sizes = _other_sizes(sent_bytes)
    if not buckets or share < MIN_BUCKETS_SHARE or not sizes:
        return
    trials = find_trials(report, base, [f"bucket_mb={size}" for size in sizes])
    latest = max(buckets, key=lambda bucket: bucket.exposed_ns)
    yield new_finding(
        severity="medium" if share >= MEDIUM_BUCKETS_SHARE else "low",
        title=f"Gradients are exchanged without computation beside for {percent(share)} of the step: "
        f"{plural(len(buckets), 'all-reduce')}, {text(sent_bytes, 'bytes')}",
        explanation=join_sentences(
            f"No computation hides {text(exposed_ns, 'ns')} of the exchange in each step. Collective {latest.number} of the step "
            f"has the most of it, {text(latest.exposed_ns, 'ns')}.",
            trials.sentence(),
        ),
        advice="Try other buckets: {code}.",
        code=f"DistributedDataParallel(model, bucket_cap_mb={sizes[0]})",
        evidence=evidence_of(
            base.config.name,
            ("exposed exchange of gradients, of the step", 100.0 * share, "percent"),
            ("exposed exchange of gradients", exposed_ns, "ns"),
            ("all-reduces per step", len(buckets), "count"),
            ("gradients per step", sent_bytes, "bytes"),
        ),
        trials=trials,
        weight=share,
    )


def _other_sizes(sent_bytes: int) -> list[int]:
    """Return the sizes in MiB that would give another number of buckets: none for gradients that fit into the smallest."""

    def count(size_mib: int) -> int:
        return -(-sent_bytes // (size_mib * MIB))

    return [size for size in SIZES_MIB if count(size) != count(DEFAULT_BUCKET_MIB)]


def _counted_bytes(report: Report) -> int:
    """Return the predicted bytes of all gradients, for traces without the sizes of messages, such as gloo's."""
    memory = report.static.memory if report.static is not None else None
    estimates = memory.parallel if memory is not None else ()
    plans = (estimate for estimate in estimates if estimate.plan == report.target.parallel)
    return sum(
        sent.message_bytes for estimate in plans for sent in estimate.communication if sent.collective == "all-reduce"
    )


GRADIENT_BUCKETS = Rule(
    "gradient_buckets",
    f"""
Fires on a run of several ranks with `--parallel ddp` if all-reduces of gradients run without computation beside them for at
least {limit_percent(MIN_BUCKETS_SHARE)} of the step. Waiting for late ranks is not counted.

- `medium`: from {limit_percent(MEDIUM_BUCKETS_SHARE)} of the step, unless the trial shows no gain.
- `low`: otherwise.

DistributedDataParallel sends gradients in buckets of {DEFAULT_BUCKET_MIB} MiB. Larger ones send fewer messages, each of which
costs its latency. Smaller ones start earlier, so that less remains after backward. `--try` measures buckets of
{" and ".join(str(size) for size in SIZES_MIB)} MiB, those of which give another number of buckets.
""",
    _gradient_buckets,
    "remedy",
    needs_runs=False,
)

# Source: torch/csrc/distributed/c10d/reducer.cpp, Reducer::search_unused_parameters.
SEARCH: Final = "torch.distributed.ddp.reducer::search_unused_parameters"


def _unused_parameters(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    search = next((operator for operator in step.trace.operators if operator.name == SEARCH), None)
    if search is None or step.span_ns <= 0:
        return None
    return StepPart(
        ns=search.host_self_ns,
        share_name="search, share of the time",
        title=f"DDP searches for unused parameters: {percent(step.share(search.host_self_ns))} of the time on the host",
        sentences=(
            "find_unused_parameters=True makes DDP visit the graph in each step: "
            f"{plural(search.calls, 'search', 'searches')}, {text(search.host_self_ns, 'ns')}, and an extra all-reduce.",
        ),
        advice="If all parameters get gradients in each step: {code}. If the set of unused ones never changes: "
        "static_graph=True.",
        code="DistributedDataParallel(model, find_unused_parameters=False)",
        measures=(("searches", search.calls, "count"),),
        claims=idle_claims("op dispatch"),
    )


UNUSED_PARAMETERS = step_rule(
    "unused_parameters",
    _unused_parameters,
    Shares(0.0, medium=0.03, of="the span"),  # below, the option costs nothing that a user could measure
    f"""
Fires on a trace with `{SEARCH}`: `DistributedDataParallel` was created with `find_unused_parameters=True`.

The search visits the whole graph in every step, and an extra all-reduce follows. If each parameter gets a gradient in each step,
both are for nothing. The trace does not show whether parameters are unused.
""",
    steps=all_steps,
)
