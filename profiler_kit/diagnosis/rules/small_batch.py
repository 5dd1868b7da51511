"""A training step whose batch is so small that the host takes most of the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials, has_batch, larger_batch
from profiler_kit.diagnosis.idle_time import LAUNCH_CAUSES, LAUNCH_CLAIMS
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import run_step
from profiler_kit.records.claims import phase_claims
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.units import percent, text

# With more examples, the batch is seldom the reason that a step is short.
MAX_EXAMPLES: Final = 4
# Launches, Python and the optimizer cost the same for any batch. Less than this is shared by few examples without much loss.
MIN_FIXED_SHARE: Final = 0.30
HIGH_SHARE: Final = 0.50

DOC = f"""
Fires for a training step with at most {MAX_EXAMPLES} examples (the leading size of the first input), if at least
{limit_percent(MIN_FIXED_SHARE)} of it is the host's own time (Python, dispatch, launches) and the optimizer. These take equally
long for a larger batch, so a larger batch makes each example cheaper.

- `high`: at least {limit_percent(HIGH_SHARE)} of the step.
- `medium`: below that.

If the batch is small because memory is short, activation checkpointing or smaller dtypes make room. A larger batch changes the
training: the learning rate usually has to change with it. Gradient accumulation over small batches has the same fixed cost per
batch.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None or run.samples is None or not 0 < run.samples <= MAX_EXAMPLES or report.target.mode != "train":
        return
    if not has_batch(report):
        return
    step = run_step(run)
    if step is None or run.step_ns is None or run.step_ns.median <= 0:
        return
    host_share = step.share(step.idle_ns(*LAUNCH_CAUSES))
    optimizer_ns = sum(timing.kernel_ns or 0 for timing in run.phases if timing.phase == "optimizer")
    fixed_share = min(1.0, host_share + optimizer_ns / run.step_ns.median)
    if fixed_share < MIN_FIXED_SHARE:
        return
    trials = find_trials(report, run, ("batch=2x",))
    yield RULE.finding(
        severity="high" if fixed_share >= HIGH_SHARE else "medium",
        title=f"Small batch: {percent(fixed_share)} of the step is the same for any batch size",
        explanation=join_sentences(
            f"In {quoted_name(run)}, a step of {plural(run.samples, 'example')} takes {text(run.step_ns.median, 'ns')}. "
            f"{'Python, dispatch and launches take' if step.on_device else 'Python between operators takes'} "
            f"{percent(host_share)} of it, the optimizer {text(optimizer_ns, 'ns')}.",
            "A larger batch shares this time among more examples.",
            trials.sentence(),
        ),
        advice=f"{larger_batch(report)} Where small batches are accumulated, accumulate fewer and larger ones.",
        evidence=(
            Evidence(
                name="share that no batch changes", value=100.0 * fixed_share, unit="percent", where=run.config.name
            ),
            Evidence(name="examples per step", value=run.samples, unit="count", where=run.config.name),
            Evidence(name="median step", value=run.step_ns.median, unit="ns", where=run.config.name),
            Evidence(name="optimizer", value=optimizer_ns, unit="ns", where=run.config.name),
        ),
        trials=trials,
        weight=fixed_share,
        claims=(*LAUNCH_CLAIMS, *phase_claims("optimizer")),
    )


RULE = Rule("small_batch", DOC, check, "place")
