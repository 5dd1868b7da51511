"""The formats: found by being there, chosen by name or suffix, the same bytes for the same document."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import profiler_kit.render
from profiler_kit.errors import UsageError
from profiler_kit.records.document import Document, Section
from profiler_kit.records.report import Report
from profiler_kit.records.serde import loads_report
from profiler_kit.render import Renderer, RenderOptions, format_names, renderer_by_name, renderer_by_suffix, renderers
from profiler_kit.report import report_document

NEWCOMER = """
from profiler_kit.render import Renderer, RenderOptions

def render(document, options):
    return document.title.upper()

RENDERER = Renderer("shout", (".loud", ".csv.loud"), "upper case", render)
"""


OF_CHECK = ("codequality", "junit", "openmetrics")


@pytest.fixture(params=[renderer.name for renderer in renderers()])
def renderer(request: pytest.FixtureRequest) -> Renderer:
    return renderer_by_name(request.param)


def test_names_and_suffixes_are_unambiguous() -> None:
    names = format_names()
    suffixes = [suffix for renderer in renderers() for suffix in renderer.suffixes]
    assert len(set(names)) == len(names)
    assert len(set(suffixes)) == len(suffixes)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)
    assert all(renderer.doc for renderer in renderers())


def test_each_format_is_chosen_by_its_name_and_suffixes(renderer: Renderer) -> None:
    for name in (renderer.name, *renderer.aliases):
        assert renderer_by_name(name) is renderer
    for suffix in renderer.suffixes:
        assert renderer_by_suffix(Path(f"some.folder/report{suffix}")) is renderer
        assert renderer_by_suffix(Path(f"REPORT{suffix.upper()}")) is renderer


def test_unknown_formats_are_refused_with_the_choices() -> None:
    with pytest.raises(UsageError, match="'pdf'") as error:
        renderer_by_name("pdf")
    assert "terminal" in (error.value.hint or "")
    with pytest.raises(UsageError) as error:
        renderer_by_suffix(Path("out/report.pdf"))
    assert error.value.where == str(Path("out/report.pdf"))
    assert ".json" in (error.value.hint or "")


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shouting.py").write_text(NEWCOMER)
    (tmp_path / "_shared.py").write_text("raise RuntimeError('not a member')\n")
    monkeypatch.setattr(profiler_kit.render, "__path__", [*profiler_kit.render.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "profiler_kit.render.shouting", raising=False)
    try:
        document = Document(title="quiet", sections=(), json="{}")
        assert renderer_by_name("shout").render(document, RenderOptions()) == "QUIET"
        assert renderer_by_suffix(Path("x.csv.loud")).name == "shout"  # the longest suffix wins
    finally:
        sys.modules.pop("profiler_kit.render.shouting", None)
        if hasattr(profiler_kit.render, "shouting"):
            delattr(profiler_kit.render, "shouting")


def test_the_same_report_gives_the_same_text(any_report: Report) -> None:
    document = report_document(any_report)
    again = report_document(loads_report(document.json, "again"))
    for renderer in renderers():
        if renderer.name in OF_CHECK:
            with pytest.raises(UsageError, match="results of check"):
                renderer.render(document, RenderOptions())
            continue
        for options in (RenderOptions(), RenderOptions(detail=True, color=True, width=140)):
            first = renderer.render(document, options)
            assert first == renderer.render(again, options), renderer.name
            assert first.endswith("\n")
            first.encode()  # no lone surrogate is left


def test_an_empty_document_is_no_accident(renderer: Renderer) -> None:
    document = Document(title="nothing", sections=(Section(title="Empty", blocks=()),), json="{}\n")
    if renderer.name == "csv" or renderer.name in OF_CHECK:
        with pytest.raises(UsageError, match=r"no table|results of check"):
            renderer.render(document, RenderOptions())
    else:
        assert renderer.render(document, RenderOptions()).strip()


def test_json_is_the_whole_report(any_report: Report) -> None:
    text = renderer_by_name("json").render(report_document(any_report, top=1, depth=0), RenderOptions())
    assert loads_report(text, "text") == any_report
    assert json.loads(text)["target"]["name"] == any_report.target.name
