"""The places of a program without which a step would save most: functions and operators, from the replay of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.diagnosis.phrases import plural
from profiler_kit.records.traces import WorkSite
from profiler_kit.units import percent

# Convolutions and products are the model's purpose. A place that mostly computes them cannot be removed.
MAX_PRODUCT_SHARE: Final = 0.25
# A place without which nearly nothing is left is the step itself.
MAX_SAVING: Final = 0.9


def removable_sites(sites: Sequence[WorkSite], least: float) -> list[WorkSite]:
    """Return the places that are not the model's purpose and save at least the share `least`, largest saving first.

    A function and an operator that save about the same are one place: the function stays.
    """
    result: list[WorkSite] = []
    for site in sorted(sites, key=lambda site: (-round(site.saving.median, 2), not site.source)):
        is_purpose = site.product_share > MAX_PRODUCT_SHARE or site.saving.median > MAX_SAVING
        if not is_purpose and site.saving.median >= least:
            result.append(site)
    return result


def site_text(site: WorkSite) -> str:
    """Return a place in words: ``train.py(12): clip (512 launches per step)``."""
    return f"{site.source or site.operator} ({plural(round(site.launches), 'launch', 'launches')} per step)"


def sites_sentence(sites: Sequence[WorkSite], least: float, count: int = 3) -> str:
    """Return a sentence with the largest places and their savings; empty without any."""
    listed = [f"{site_text(site)} {percent(site.saving.median)}" for site in removable_sites(sites, least)[:count]]
    return f"Without the work of these places, a step would save: {', '.join(listed)}." if listed else ""
