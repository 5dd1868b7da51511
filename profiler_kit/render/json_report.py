"""JSON: the records themselves, for programs."""

from __future__ import annotations

from profiler_kit.records.document import Document
from profiler_kit.render import Renderer, RenderOptions


def render(document: Document, options: RenderOptions) -> str:
    """The document's data, as the stage that made it wrote it."""
    return document.json


RENDERER = Renderer("json", (".json",), "everything, for programs", render)
