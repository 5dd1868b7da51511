"""The picture of a terminal: the summary with color and bars, complete in one file."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from sample_reports import v0_h100

from scripts.docs.terminal_picture import terminal_svg

pytestmark = pytest.mark.jobs


def test_the_picture_is_a_summary_that_loads_nothing() -> None:
    svg = terminal_svg(v0_h100(), "profiler-kit show report.json")
    assert svg == terminal_svg(v0_h100(), "profiler-kit show report.json")
    text = " ".join("".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ").split())
    for part in ("profiler-kit show report.json", "What to do", "[high]", "Layers", "██"):
        assert part in text
    assert "Target" not in text
    assert "@font-face" not in svg
    assert not re.search(r"(?:href|src|url)\s*[=(]\s*[\"']?http", svg)
