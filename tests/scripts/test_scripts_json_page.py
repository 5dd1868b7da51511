"""Tests of the page for report.json: it lists every field of a report with type and unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from profiler_kit.records.report import Report
from profiler_kit.records.serde import read_report, to_json
from scripts.docs import json_page

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]
REPORTS = [
    ROOT / "docs" / "measured" / "convnet_v0_h100.json",
    *sorted((ROOT / "tests" / "fixtures" / "reports").glob("*.json")),
]
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| \**`(\w+)`\** \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Something of ``its`` own."""

    low_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """First line.

    `inners`: the things.
    """

    kind: Literal["a", "b"]
    inners: tuple[Inner, ...] = ()
    took_ns: float | None = None
    flops_per_s: int = 0
    on: bool | None = None
    name_of_ns: str = ""


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield `value` if it is a JSON object, or the objects in a list."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, list):
        for item in value:
            yield from objects(item)


def unknown(value: dict[str, Any], kind: str, sections: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the fields in `value`, at any depth, that the page does not describe or does not link to their record."""
    for name, inner in value.items():
        description = sections[kind].get(name, "")
        link = re.search(r"\[(\w+)\]\(#", description)
        if not description or (link is None and any(objects(inner))):
            yield f"{kind}.{name}"
        elif link is not None:
            for record in objects(inner):
                yield from unknown(record, link[1], sections)


@pytest.mark.parametrize("file", REPORTS, ids=lambda file: file.stem)
def test_every_name_of_a_report_is_on_the_page(file: Path) -> None:
    sections = {
        kind: dict(ROW.findall(text)) for kind, text in SECTION.findall(json_page.json_parts(Report)["records"])
    }
    assert list(unknown(to_json(read_report(file)), Report.__name__, sections)) == []


def test_a_record_is_its_docstring_and_its_fields() -> None:
    assert list(json_page.records(Outer)) == [Outer, Inner]
    assert json_page.description(Inner) == "Something of `its` own."
    assert list(json_page.rows(Outer))[2:] == [
        '| **`kind`** | `"a"` or `"b"` |',
        "| `inners` | list of [Inner](#inner) |",
        "| `took_ns` | number or null, ns |",
        "| `flops_per_s` | integer, FLOP/s |",
        "| `on` | true or false or null |",
        "| `name_of_ns` | text |",
    ]


def test_every_section_that_is_linked_to_exists() -> None:
    page = json_page.json_parts(Report)["records"]
    headings = {heading.lower() for heading, _ in SECTION.findall(page)}
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= headings
