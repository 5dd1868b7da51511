"""A function or an operator without which a step would be much shorter, and that is not the model's products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import capitalize, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import idle_steps, worst_step
from profiler_kit.diagnosis.work_sites import (
    MAX_LAUNCH_SHARE,
    MAX_PRODUCT_SHARE,
    MIN_OPERATOR_SAVING,
    operators_text,
    removable_sites,
    site_claim,
    site_text,
    sites_sentence,
)
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceSummary, WorkSite
from profiler_kit.units import percent

MIN_SAVING: Final = 0.15
LARGE_SAVING: Final = 0.4
# From this number of launches per step on, fewer and larger operations are possible.
MANY_LAUNCHES: Final = 50
MIN_LISTED: Final = 0.05

DOC = f"""
Fires if the replay of a trace saves at least {limit_percent(MIN_SAVING)} of the step without the work of one function (with
stacks): its device work, its launches, and the host's waits there; or {limit_percent(MIN_OPERATOR_SAVING)} without one operator,
wherever it is called; or without all work outside forward, loss, backward and optimizer. `high` from
{limit_percent(LARGE_SAVING)} on, `medium` below. Work of backward belongs to the place of its forward operator. Places with more
than {limit_percent(MAX_PRODUCT_SHARE)} of their time in convolutions, matrix products, attention or recurrent layers do not
count, nor those with more than {limit_percent(MAX_LAUNCH_SHARE)} of all device work. The finding ranks after those that say why
the place takes time.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace and the place with the largest saving."""
    if (
        worst := worst_step(idle_steps(report), lambda step: _largest_site(step.trace), lambda site: site.saving.median)
    ) is None:
        return
    site = worst.match
    kind = "The function " if site.source else "The operator " if site.operator else ""
    yield RULE.finding(
        severity="high" if site.saving.median >= LARGE_SAVING else "medium",
        title=capitalize(
            f"{kind}{site_text(site)} costs {percent(site.saving.median)} of the step{operators_text(site)}"
        ),
        explanation=join_sentences(
            f"{worst.step.prefix}A replay of the step without its work, its launches and its waits is that much shorter.",
            sites_sentence(worst.step.trace.sites, MIN_LISTED),
            worst.others_sentence(),
        ),
        advice=_advice(site),
        evidence=(
            Evidence(name="saving without it", value=100.0 * site.saving.median, unit="percent", where=worst.step.name),
            Evidence(name="launches per step", value=site.launches, unit="count", where=worst.step.name),
        ),
        weight=site.saving.median,
        claims=(site_claim(site),),
    )


def _largest_site(trace: TraceSummary) -> WorkSite | None:
    return next(iter(removable_sites(trace.sites, MIN_SAVING)), None)


def _advice(site: WorkSite) -> str:
    if site.launches >= MANY_LAUNCHES:
        return (
            "Do this work in fewer, larger operations: one batched call instead of a loop, or torch.compile for the function; "
            "or do it less often."
        )
    return "Do this work less often or with less data, or move it out of the step."


RULE = Rule(
    "costly_place",
    DOC,
    check,
    "site",
    "both",
)
