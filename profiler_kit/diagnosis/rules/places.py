"""A function or an operator without which a step would be much shorter, and that is not the model's products."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.phrases import capitalize, limit_percent
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
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
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import WorkSite
from profiler_kit.units import percent

MIN_SAVING: Final = 0.15
# From this number of launches per step on, fewer and larger operations are possible.
MANY_LAUNCHES: Final = 50
MIN_LISTED: Final = 0.05


def _largest_site(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    site = next(iter(removable_sites(step.trace.sites, MIN_SAVING)), None)
    if site is None:
        return None
    kinds = (
        ("The function ", site.source or site.call),
        ("The module ", site.module),
        ("The operator ", site.operator),
        ("A ", site.loop),
    )
    kind, saving = next((kind for kind, name in kinds if name), ""), site.saving.median
    return StepPart(
        share=saving,
        share_name="saving without it",
        title=capitalize(f"{kind}{site_text(site)} costs {percent(saving)} of the step{operators_text(site)}"),
        sentences=(
            "A replay of the step without its work, its launches and its waits is that much shorter.",
            sites_sentence(step.trace.sites, MIN_LISTED),
        ),
        advice=_advice(site),
        measures=(("launches per step", site.launches, "count"),),
        claims=(site_claim(site),),
    )


def _advice(site: WorkSite) -> str:
    if site.launches >= MANY_LAUNCHES:
        return (
            "Do this work in fewer, larger operations: one batched call instead of a loop, or torch.compile for the function; "
            "or do it less often."
        )
    return "Do this work less often or with less data, or move it out of the step."


COSTLY_PLACE = step_rule(
    "costly_place",
    _largest_site,
    Shares(MIN_SAVING, high=0.4),
    f"""
Fires on what the replay of a trace saves without the work of one function (with stacks): its device work, its launches, and the
host's waits there; or, from {limit_percent(MIN_OPERATOR_SAVING)} on, without one operator, wherever it is called; or without
all work outside forward, loss, backward and optimizer. A function that the loop of a training step calls itself counts with all
that it calls, unless that has a backward pass: an evaluation, a teacher, an average of the weights. Work of backward belongs to
the place of its forward operator. Places with more than {limit_percent(MAX_PRODUCT_SHARE)} of their time in convolutions, matrix
products, attention or recurrent layers (in a training step, only those with a backward pass) do not count, nor those with more
than {limit_percent(MAX_LAUNCH_SHARE)} of all device work. The finding ranks after those that say why the place takes time.
""",
    topic="site",
    steps=idle_steps,
)
