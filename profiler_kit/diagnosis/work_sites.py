"""The places of a program without which a step would save most: functions and operators, from the replay of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, plural
from profiler_kit.records.traces import WorkSite
from profiler_kit.units import percent

# Convolutions and products are the model's purpose. A place that mostly computes them cannot be removed.
MAX_PRODUCT_SHARE: Final = 0.25
# A place that launches all work, or without which nothing is left, is the step itself.
MAX_LAUNCH_SHARE: Final = 0.98
MAX_SAVING: Final = 0.95
# An operator that many layers call is no single place, unless it is a large part of the step.
MIN_OPERATOR_SAVING: Final = 0.4


def removable_sites(sites: Sequence[WorkSite], least: float) -> list[WorkSite]:
    """Return the places that are not the model's purpose and save at least the share `least`, largest saving first.

    Of a function and an operator that save about the same, the function comes first.
    """
    ordered = sorted(sites, key=lambda site: (-round(site.saving.median, 2), not site.source))
    return [site for site in ordered if _is_removable(site) and site.saving.median >= least]


def _is_removable(site: WorkSite) -> bool:
    is_step = site.launch_share > MAX_LAUNCH_SHARE or site.saving.median > MAX_SAVING
    return (
        not is_step
        and site.product_share <= MAX_PRODUCT_SHARE
        and (site.source != "" or site.saving.median >= MIN_OPERATOR_SAVING)
    )


def site_text(site: WorkSite) -> str:
    """Return a place in words: ``train.py(12): clip (512 launches per step)``."""
    return f"{site.source or site.operator} ({plural(round(site.launches), 'launch', 'launches')} per step)"


def operators_text(site: WorkSite) -> str:
    """Return the operators with most time in a function, as the end of a sentence; empty without any."""
    return f", most in {join_list(list(site.operators))}" if site.operators else ""


def launches_sentence(sites: Sequence[WorkSite], count: int = 3) -> str:
    """Return a sentence with the operators that launch most work; empty without any."""
    operators = sorted((site for site in sites if site.operator), key=lambda site: -site.launches)[:count]
    listed = [f"{site.operator} {round(site.launches)}" for site in operators]
    return f"Most launches per step come from {join_list(listed)}." if listed else ""


def sites_sentence(sites: Sequence[WorkSite], least: float, count: int = 3) -> str:
    """Return a sentence with the largest places and their savings; empty without any."""
    listed = [f"{site_text(site)} {percent(site.saving.median)}" for site in removable_sites(sites, least)[:count]]
    return f"Without the work of these places, a step would save: {', '.join(listed)}." if listed else ""
