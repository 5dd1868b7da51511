"""JSON: the complete records, for programs."""

from __future__ import annotations

from profiler_kit.records.document import Document
from profiler_kit.render import Renderer, RenderOptions


def render(document: Document, options: RenderOptions) -> str:
    """The document's data as JSON."""
    return document.json


RENDERER = Renderer("json", (".json",), "all data, for programs", render)
