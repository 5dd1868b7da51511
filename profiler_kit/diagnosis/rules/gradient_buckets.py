"""The size of DistributedDataParallel's buckets, where the exchange of gradients is not hidden behind backward."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.records.parallel import DEFAULT_BUCKET_MIB
from profiler_kit.records.report import Finding, Report
from profiler_kit.units import percent, text

# A twentieth of the step is worth one argument of DistributedDataParallel.
MIN_EXPOSED_SHARE: Final = 0.05
MEDIUM_EXPOSED_SHARE: Final = 0.10
MIB: Final = 1 << 20
# A quarter and four times of the default. Closer sizes change the number of buckets too little to see.
SIZES_MIB: Final = (DEFAULT_BUCKET_MIB * 4, DEFAULT_BUCKET_MIB // 4)

DOC = f"""
Fires on a run of several ranks with `--parallel ddp` if all-reduces of gradients run without computation beside them for at
least {limit_percent(MIN_EXPOSED_SHARE)} of the step. Waiting for late ranks is not counted.

- `medium`: from {limit_percent(MEDIUM_EXPOSED_SHARE)} of the step, unless the trial shows no gain.
- `low`: otherwise.

DistributedDataParallel sends gradients in buckets of {DEFAULT_BUCKET_MIB} MiB. Larger ones send fewer messages, each of which
costs its latency. Smaller ones start earlier, so that less remains after backward. `--try` measures buckets of
{" and ".join(str(size) for size in SIZES_MIB)} MiB, those of which give another number of buckets.
"""


def check(report: Report) -> Iterator[Finding]:
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
    if not buckets or share < MIN_EXPOSED_SHARE or not sizes:
        return
    trials = find_trials(report, base, [f"bucket_mb={size}" for size in sizes])
    latest = max(buckets, key=lambda bucket: bucket.exposed_ns)
    yield RULE.finding(
        severity="medium" if share >= MEDIUM_EXPOSED_SHARE else "low",
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


RULE = Rule("gradient_buckets", DOC, check, "remedy", needs_runs=False)
