"""JSON: the complete records, for programs."""

from __future__ import annotations

from profiler_kit.records.document import Document
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._text import without_commands


def render(document: Document, options: RenderOptions) -> str:
    """The document's data as JSON."""
    # "##" occurs inside strings only; as an escape, the bracket is the same text for a reader of JSON
    return without_commands(document.json, ":", "\\u005b")


RENDERER = Renderer("json", (".json",), "all data, for programs", render)
