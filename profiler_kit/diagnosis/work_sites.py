"""The places of a program without which a step would save most: functions and operators, from the replay of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, plural
from profiler_kit.records.claims import Claim, Kind
from profiler_kit.records.traces import WorkSite
from profiler_kit.units import percent

# Convolutions and products are the model's purpose. A place that mostly computes them cannot be removed.
MAX_PRODUCT_SHARE: Final = 0.25
# A place that launches all work, or without which nothing is left, is the step itself.
MAX_LAUNCH_SHARE: Final = 0.98
MAX_SAVING: Final = 0.95
# A function or a module that saves three quarters of what an operator or a phase saves is the place to look at.
MIN_EXACT_PART: Final = 0.75
# A place with two fifths of the launches is where to begin.
MAIN_LAUNCH_SHARE: Final = 0.4
# Rules of their own say why these phases take time.
OWN_RULES: Final = ("data", "optimizer")
# An operator that many layers call is no single place, unless it is a large part of the step. One without launches computes on
# the CPU.
MIN_OPERATOR_SAVING: Final = 0.4
MAX_LISTED_OPERATORS: Final = 4


def removable_sites(sites: Sequence[WorkSite], least: float) -> list[WorkSite]:
    """Return the places that are not the model's purpose and save at least the share `least`, largest saving first.

    A row of operators in several places is a part of a layer: other findings say why it takes time.
    Of places that save about the same, a function comes first. An operator, or all work without a backward pass,
    is left out if a single function or loop saves most of the same.
    """
    removable = [site for site in sites if _is_removable(site) and not (site.row and site.rounds > 1.0)]
    exact = max((site.saving.median for site in removable if _is_exact(site)), default=0.0)
    named = [site for site in removable if _is_exact(site) or exact < MIN_EXACT_PART * site.saving.median]
    named.sort(key=lambda site: (-round(_certain_saving(site), 2), not site.source, not site.call))
    return [site for site in named if site.saving.median >= least]


def removable_places(sites: Sequence[WorkSite]) -> list[WorkSite]:
    """Return the single places and loops that are not the model's purpose, smallest saving first."""
    places = [site for site in sites if _is_removable(site) and site.has_gradient]
    return sorted(places, key=lambda site: site.saving.median)


def _certain_saving(site: WorkSite) -> float:
    """Return the saving of a place, twice for a call that goes as a whole: other work has to be done, in fewer operations."""
    return 2.0 * site.saving.median if site.call else site.saving.median


def _is_exact(site: WorkSite) -> bool:
    return bool(site.source or site.call or site.loop)


def _is_removable(site: WorkSite) -> bool:
    if site.loop:
        return site.phase not in OWN_RULES  # its first round stays
    is_step = site.launch_share > MAX_LAUNCH_SHARE or site.saving.median > MAX_SAVING
    has_own_rule = site.phase in OWN_RULES or site.repeated
    if has_own_rule or is_step or site.product_share > MAX_PRODUCT_SHARE:
        return False
    if site.operator:
        return not site.launches or site.saving.median >= MIN_OPERATOR_SAVING
    return _is_exact(site) or bool(site.row) or not site.has_gradient


def rows_with(sites: Sequence[WorkSite], operator: str) -> list[WorkSite]:
    """Return the rows between two products that contain an operator."""
    return [site for site in sites if operator in site.row.split(", ")]


def site_text(site: WorkSite) -> str:
    """Return a place in words: ``train.py(12): clip (512 launches per step)``."""
    launches = f"{plural(round(site.launches), 'launch', 'launches')} per step"
    if site.loop:
        where = f" in {site.within}" if site.within else ""
        return f"a loop of {round(site.rounds)} rounds of {operators_list(site.loop)}{where} ({launches})"
    row = f"a row of {operators_list(site.row)}" if site.row else ""
    name = site.source or site.call or site.module or site.operator or row or "work without a backward pass"
    return f"{name} ({launches})"


def operators_list(name: str) -> str:
    """Return the first operators of a loop's round or a row in words."""
    operators = list(dict.fromkeys(name.split(", ")))
    return join_list(
        [*operators[:MAX_LISTED_OPERATORS], *(["others"] if len(operators) > MAX_LISTED_OPERATORS else [])]
    )


def site_claim(site: WorkSite) -> Claim:
    """Return the claim on all work of a place."""
    names: tuple[tuple[Kind, str], ...] = (
        ("function", site.source), ("call", site.call), ("module", site.module), ("loop", site.loop), ("row", site.row),
        ("repeated", site.repeated), ("operator", site.operator),
        ("gradient", "" if site.has_gradient else "none"), ("phase", site.phase),
    )  # fmt: skip
    return next(Claim("site", kind, name) for kind, name in names if name)


def operators_text(site: WorkSite) -> str:
    """Return the operators with most time in a function, as the end of a sentence; empty without any."""
    return f", most in {join_list(list(site.operators))}" if site.operators and not (site.loop or site.row) else ""


def launches_sentence(sites: Sequence[WorkSite], count: int = 3) -> str:
    """Return a sentence with the places and the operators that launch most work; empty without any."""
    parts = []
    for chosen in (_launching_places(sites), [site for site in sites if site.operator]):
        most = sorted(chosen, key=lambda site: -site.launches)[:count]
        if most:
            parts.append(join_list([f"{site.place} {round(site.launches)}" for site in most]))
    return f"Most launches per step come from {'; by operator from '.join(parts)}." if parts else ""


def launching_place(sites: Sequence[WorkSite]) -> str:
    """Return the place with at least `MAIN_LAUNCH_SHARE` of the launches, as the end of a title; empty without one."""
    places = [site for site in _launching_places(sites) if site.launch_share >= MAIN_LAUNCH_SHARE]
    most = max(places, key=lambda site: site.launch_share, default=None)
    return (
        f"; {percent(most.launch_share)} of the launches come from {most.source or most.module}"
        if most is not None
        else ""
    )


def _launching_places(sites: Sequence[WorkSite]) -> list[WorkSite]:
    """Return the functions, or without stacks the modules, that launch a part of the work."""
    parts = [site for site in sites if site.launch_share <= MAX_LAUNCH_SHARE]
    return [site for site in parts if site.source] or [site for site in parts if site.module]


def sites_sentence(sites: Sequence[WorkSite], least: float, count: int = 3) -> str:
    """Return a sentence with the largest places and their savings; empty without any."""
    listed = [f"{site_text(site)} {percent(site.saving.median)}" for site in removable_sites(sites, least)[:count]]
    return f"Without the work of these places, a step would save: {', '.join(listed)}." if listed else ""
