"""A record as a summary, as a file, and as the output of a notebook's cell, in a frame of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

from profiler_kit import render
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.serde import SavedRecord
from profiler_kit.report.results import result_document

# The page is opaque and lies on top of the fallback. Viewers that remove frames, such as GitHub, show the fallback.
_OUTPUT: Final = """\
<div style="position: relative; height: {height}px; overflow: hidden">
{fallback}
<iframe title="{title}" style="position: absolute; inset: 0; width: 100%; height: 100%; border: 0" srcdoc="{page}"></iframe>
</div>"""
# Makes the output as high as its page.
_RESIZE: Final = """\
<script>
if (frameElement) new ResizeObserver(() => {
  const { bottom } = document.querySelector("main").getBoundingClientRect();
  frameElement.parentElement.style.height = `${Math.ceil(bottom + scrollY) + 16}px`;
}).observe(document.body);
</script>
"""


def frame(page: str, *, title: str, height: int, fallback: str, resizes: bool = False) -> str:
    """`page`, a complete HTML document, as the HTML of a notebook's output: isolated styles, scripts and links.

    `height` in pixels; with `resizes`, only until the page has loaded. `fallback`: HTML for viewers without frames.
    """
    if resizes:
        head, end, tail = page.rpartition("</body>")
        page = f"{head}{_RESIZE}{end}{tail}"
    # an attribute in quotes needs no other escapes; the page is several times larger than its text
    srcdoc = page.replace("&", "&amp;").replace('"', "&quot;")
    return _OUTPUT.format(height=height, fallback=fallback, title=escape(title), page=srcdoc)


HEIGHT: Final = 640  # of a page in a notebook, in pixels; the page scrolls


def summary(record: SavedRecord) -> str:
    """`record` as text that fits a screen, as the command line prints it."""
    return render.renderer_by_name("terminal").render(result_document(record), render.RenderOptions()).rstrip()


def wrapped(text: str) -> str:
    """`text` in lines of the width of `summary`."""
    return textwrap.fill(text, render.RenderOptions().width)


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
