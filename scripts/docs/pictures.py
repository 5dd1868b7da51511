"""Make the pictures of report pages under docs/images.

    python -m scripts.docs.pictures

Needs Chromium and the dependency group `browser`. The pages show the measured reports of docs/measured and recorded traces.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.comparison.compare import compare
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.records.document import Document
from profiler_kit.records.serde import read_report
from profiler_kit.render import RenderOptions
from profiler_kit.render.html import render
from profiler_kit.report import report_document, traces_document
from profiler_kit.report.comparison import comparison_document
from scripts.bench.synthetic_reports import transformer_report
from scripts.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MEASURED: Final = ROOT / "docs" / "measured"
TRACE: Final = ROOT / "tests" / "fixtures" / "traces" / "strangers" / "eager.cuda.json.gz"
IMAGES: Final = ROOT / "docs" / "images"
MAX_BYTES: Final = 150_000
WIDTH: Final = 1080
TOP_HEIGHT: Final = 760  # of the picture of a whole page
PART_HEIGHT: Final = 1200  # of the window around the picture of a part
BLOCKS: Final = 60  # modules of the transformer in the icicle


def pictures() -> Iterator[tuple[str, Document, str | None]]:
    """Yield the name of each picture, its page, and the part of the page it shows; None for the top."""
    v0, v1 = (read_report(MEASURED / f"convnet_{version}_h100.json") for version in ("v0", "v1"))
    inspection = inspect(TRACE, timelines=True)
    timeline = traces_document(inspection.report, timelines=inspection.timelines)
    yield "page", report_document(v0, top=None), None
    yield "icicle", report_document(transformer_report(BLOCKS), top=None), "figure.icicle"
    yield "timeline", timeline, "figure.timeline"
    yield "comparison", comparison_document(compare(v0, v1)), "figure.tree"


def take(browser: Browser, document: Document, part: str | None, file: Path) -> None:
    """Write the picture of `part` of the page of `document` to `file`."""
    page = browser.new_page(viewport={"width": WIDTH, "height": TOP_HEIGHT}, color_scheme="light")
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        html.write_text(render(document, RenderOptions(detail=True)), encoding="utf-8")
        page.goto(html.as_uri())
        if part is None:
            page.screenshot(path=file)
        else:
            page.set_viewport_size({"width": WIDTH, "height": PART_HEIGHT})
            element = page.locator(part).first
            element.scroll_into_view_if_needed()
            element.locator("canvas, tbody tr").first.wait_for()
            page.wait_for_timeout(300)
            page.add_style_tag(content="body > nav { position: static; }")
            element.screenshot(path=file)
    page.close()


def main() -> int:
    """Write all pictures. Returns 1 if a picture is too large, or without a browser."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    IMAGES.mkdir(exist_ok=True)
    too_large = []
    with chromium() as browser:
        for name, document, part in pictures():
            file = IMAGES / f"{name}.png"
            take(browser, document, part, file)
            print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
            too_large += [file] if file.stat().st_size > MAX_BYTES else []
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
