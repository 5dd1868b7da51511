"""A color means one thing, and red and green are never the only difference."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import fields

import pytest

from profiler_kit.records.counts import TRACE_PHASES, MemoryCategories
from profiler_kit.records.families import FAMILY_NAMES, family_group
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.render import html
from profiler_kit.render._colors import COLORS, LESS, MORE, OTHER_COLORS

SAME = {  # two names of one thing
    frozenset({"unattributed", "(unattributed)"}),
    frozenset({"busy", "computation"}),
    frozenset({"saved activations", "saved for backward"}),
}
CSS = html._file("page.css")

# How people without one kind of cone see linear RGB (Vienot, Brettel and Mollon, 1999).
VISIONS = {
    "protanopia": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deuteranopia": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def seen(color: str, vision: str) -> list[float]:
    linear = [(int(color[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
    return [
        255 * max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))) ** (1 / 2.2) for row in VISIONS[vision]
    ]


def test_a_color_has_one_meaning() -> None:
    names = defaultdict(set)
    for name, color in COLORS.items():
        names[color].add(name)
    assert {frozenset(group) for group in names.values() if len(group) > 1} == SAME
    assert not {*OTHER_COLORS, MORE, LESS} & set(COLORS.values())


def test_all_phases_causes_kernels_and_categories_have_a_color() -> None:
    categories = {field.name.replace("_", " ") for field in fields(MemoryCategories)}
    groups = {f"work: {family_group(family)}" for family in FAMILY_NAMES}
    assert {*TRACE_PHASES, *(f"idle: {cause}" for cause in IDLE_CAUSES), *categories, *groups} <= set(COLORS)
    assert {name for name in COLORS if name.startswith("work: ")} == groups


@pytest.mark.parametrize("vision", VISIONS)
def test_changes_are_told_apart_without_red_and_green(vision: str) -> None:
    themes = zip(re.findall(r"--more: (#\w{6})", CSS), re.findall(r"--less: (#\w{6})", CSS), strict=True)
    pairs = {(MORE, LESS), *themes}
    assert len(pairs) == 2  # light, which pictures have too, and dark
    assert min(math.dist(seen(more, vision), seen(less, vision)) for more, less in pairs) > 100


@pytest.mark.parametrize("vision", VISIONS)
def test_the_phases_of_a_step_are_told_apart(vision: str) -> None:
    colors = [seen(COLORS[name], vision) for name in ("forward", "backward", "loss", "optimizer", "communication")]
    assert min(math.dist(a, b) for i, a in enumerate(colors) for b in colors[:i]) > 30


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_all_colors_are_seen_on_dark_pages() -> None:
    """Of two areas side by side, WCAG 2.1 asks for a contrast of 3."""
    dark = luminance(re.findall(r"--background: (#\w{6})", CSS)[1])
    contrasts = {color: (luminance(color) + 0.05) / (dark + 0.05) for color in (*COLORS.values(), *OTHER_COLORS)}
    assert {color: round(value, 1) for color, value in contrasts.items() if value < 3} == {}
