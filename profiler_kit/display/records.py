"""A record as a summary, as a file, and as the output of a notebook's cell."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

from profiler_kit import render
from profiler_kit.display.frame import frame
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.serde import SavedRecord
from profiler_kit.report.results import result_document

HEIGHT: Final = 640  # of a page in a notebook, in pixels; the page scrolls


def summary(record: SavedRecord) -> str:
    """`record` as text that fits a screen, as the command line prints it."""
    return render.renderer_by_name("terminal").render(result_document(record), render.RenderOptions()).rstrip()


def save(record: SavedRecord, file: str | Path, *, timelines: Mapping[int, StepTimeline] | None = None) -> Path:
    """Write `record` to `file` and return the path. The suffix selects the format, as for ``-o``; tables have all their rows.

    `timelines`: steps of the traces for a page, by the index of the trace.

    Raises: UsageError for an unknown suffix.
    """
    path = Path(file)
    document = result_document(record, complete=True, timelines=timelines)
    content = render.renderer_by_suffix(path).render(document, render.RenderOptions(detail=True))
    path.write_text(content, encoding="utf-8", newline="")
    return path


def notebook_html(record: SavedRecord, *, timelines: Mapping[int, StepTimeline] | None = None) -> str:
    """The page of `record`, with its charts, as the HTML of a notebook's output. `timelines`: as in `save`.

    Viewers without frames show the summary.
    """
    document = result_document(record, complete=True, timelines=timelines)
    page = render.renderer_by_name("html").render(document, render.RenderOptions(detail=True))
    return frame(page, title=document.title, height=HEIGHT, fallback=f"<pre>{escape(summary(record))}</pre>")
