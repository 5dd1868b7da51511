"""A page inside an output of a notebook."""

from __future__ import annotations

from html import escape
from typing import Final

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
