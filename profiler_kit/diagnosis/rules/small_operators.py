"""Operators on a CPU that are so short that their dispatch takes most of their time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import has_batch, larger_batch, trials_of
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.rules.optimizer_bound import optimizer_time
from profiler_kit.diagnosis.step_work import StepWork, step_works, total_calls, total_ns, work_claims, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# The dispatch of an operator takes 1 to 10 us on a CPU, whatever its size.
MAX_MEAN_NS: Final = 10_000
# A step of fewer operators is not slow because of their number.
MIN_CALLS: Final = 50
# The gaps between the calls of operators and modules are of this length. Longer gaps are other Python code.
MAX_MEAN_GAP_NS: Final = 30_000
# From this batch on, fewer calls come before more examples.
LARGE_BATCH: Final = 32
MIN_SHARE: Final = 0.20
MEDIUM_SHARE: Final = 0.30
LARGE_SHARE: Final = 0.50

DOC = f"""
Fires on a CPU if operators with a mean self time of at most {MAX_MEAN_NS // 1000} us, and the short gaps of Python between
operators, take at least {limit_percent(MIN_SHARE)} of the step, in at least {MIN_CALLS} calls. Operators that make batches do not
count: rule `data_bound` covers them.

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that. The profiler adds about a microsecond to each call, so a small share is uncertain.

Each call of an operator costs some microseconds of dispatch, autograd and Python, whatever its size. This part of the step is the
same for any batch size, so a larger batch costs less for each example. An optimizer that has a finding of its own (rule
`optimizer_bound`) does not count. In a trace the same limits hold. Rule `launch_bound` covers devices.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallOperators:
    """Short operators per step: their calls, their time, that of the gaps between them, and the share of both of the step."""

    claims: tuple[str, ...]
    calls: int
    ns: int
    gaps_ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of short operators."""
    if (worst := worst_step(step_works(report), small_operators, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    advice, words = _advice(report)
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium" if match.share >= MEDIUM_SHARE else "low",
        title=f"Short operators{_AND_PYTHON if match.gaps_ns else ''} take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}{match.calls:,} calls{work.facts.each} take {text(match.ns // match.calls, 'ns')} each.",
            f"Python between them takes {text(match.gaps_ns, 'ns')}{work.facts.each}." if match.gaps_ns else "",
            "Dispatch takes most of this time. It is the same for any size of the tensors.",
            worst.others_sentence(),
        ),
        advice=advice,
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="calls per step", value=match.calls, unit="count", where=work.name),
            Evidence(name="time of short operators per step", value=match.ns, unit="ns", where=work.name),
        ),
        trials=trials_of(report, *words),
        weight=match.share,
        claims=(*match.claims, *(("idle:python",) if match.gaps_ns else ())),
    )


def _advice(report: Report | TraceReport) -> tuple[Advice, tuple[str, ...]]:
    """Return the advice and the configurations that try it: a larger batch first where the batch is known to be small."""
    facts = facts_of(report)
    optimizer = ", a fused optimizer" if facts.has_optimizer else ""
    fewer = advise(f"Use fewer calls: {_FEWER_CALLS}{optimizer}.", "model = torch.compile(model)")
    if facts.examples is not None and facts.examples < LARGE_BATCH and has_batch(report):
        return Advice(f"{larger_batch(report)} {fewer.text}", fewer.code), ("batch=2x", "compile")
    return fewer.then("A larger batch, or several inputs in one call, costs little more."), ("compile", "batch=2x")


_FEWER_CALLS: Final = "{code}, one operator instead of a loop, fewer small layers"
_AND_PYTHON: Final = " and the Python between them"


def small_operators(work: StepWork) -> SmallOperators | None:
    """Return the short operators of a step on a CPU; None below the limits."""
    if work.on_device:
        return None
    short = work.select(lambda item: item.ns <= MAX_MEAN_NS * item.calls)
    calls, ns = total_calls(short) // work.steps, total_ns(short)
    gaps = [part for part in work.idle if part.cause == "python" and 0 < part.ns <= MAX_MEAN_GAP_NS * part.gaps]
    if calls < MIN_CALLS:
        return None
    ns -= min(ns, work.host_data_ns)
    gaps = [part for part in gaps if part.phase != "data"]
    gaps_ns = sum(part.ns for part in gaps)
    claims = work_claims(work, short)
    if (optimizer := optimizer_time(work)) is not None:
        claims = tuple(
            f"busy:phase:{phase}" for phase, phase_ns in work.phase_ns.items() if phase_ns and phase != "optimizer"
        )
        ns -= min(ns, optimizer.ns)
        gaps_ns -= sum(part.ns for part in gaps if part.phase == "optimizer")
    share = work.share(ns + gaps_ns)
    if share < MIN_SHARE or not ns:
        return None
    return SmallOperators(claims=claims, calls=calls, ns=ns // work.steps, gaps_ns=gaps_ns // work.steps, share=share)


RULE = Rule("small_operators", DOC, check, "cause", "both")
