"""Measure HTML pages in a browser: size, first paint, and the time of zoom, search, sort and filter. Prints a Markdown table.

Times after the first paint are CPU times of the page's thread, which do not depend on how busy the machine is.

    python -m scripts.bench.html

Needs Chromium and the dependency group `browser`. The pages are of synthetic transformers with 10 to 5,000 modules, and of
timelines with 1,000 boxes and as many as a page has at most.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler_kit.attribution.step_lanes import MAX_TIMELINE_SPANS
from profiler_kit.records.document import Document, Section
from profiler_kit.records.lanes import EventSpan, StepTimeline
from profiler_kit.render import RenderOptions
from profiler_kit.render.html import render
from profiler_kit.report import report_document
from profiler_kit.report.charts.traces import timeline_chart
from scripts.bench.synthetic_reports import transformer_report
from scripts.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

MODULES: Final = (10, 100, 1000, 5000)
ROUNDS: Final = 5
HEADS: Final = (
    "modules",
    "size",
    "without data",
    "rendering",
    "first paint",
    "CPU until loaded",
    "zoom",
    "search",
    "sort",
    "filter",
)

# Runs a script and waits until the browser has painted the result.
PAINTED: Final = """async () => {
  SCRIPT
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}"""
INPUT: Final = """const field = document.querySelector('figure.icicle input[type=search]');
  field.value = 'mlp'; field.dispatchEvent(new Event('input'));"""
SORT: Final = "document.querySelector('[data-anchor=layer-] th button').click();"
FILTER: Final = """const field = document.querySelector('[data-anchor=layer-]').previousElementSibling.querySelector('input');
  field.value = 'mlp'; field.dispatchEvent(new Event('input'));"""
ZOOM: Final = """const chart = document.querySelector('figure.icicle .chart'), { left, top } = chart.getBoundingClientRect();
  for (const type of ['mousemove', 'mousedown', 'mouseup', 'click']) chart.querySelector('canvas').dispatchEvent(
    new MouseEvent(type, { bubbles: true, clientX: left + 100, clientY: top + 40 }));"""

ACTIONS: Final = (ZOOM, INPUT, SORT, FILTER)
BOXES: Final = (1000, MAX_TIMELINE_SPANS)
TIMELINE_HEADS: Final = ("boxes", "size", "first paint", "CPU until loaded", "zoom", "search", "next box")
TIMELINE_ACTIONS: Final = (
    "document.querySelector('[aria-label=\"Zoom in\"]').click();",
    """const field = document.querySelector('figure.timeline input');
  field.value = '7'; field.dispatchEvent(new Event('input'));""",
    "document.querySelector('figure.timeline .chart').dispatchEvent(new KeyboardEvent('keydown', { key: 'n' }));",
)
IDLE_MS: Final = 1000  # after the first paint; long pages are complete before


def measure(browser: Browser, modules: int, folder: Path) -> tuple[str, ...]:
    """Return the table row of a page with about `modules` modules."""
    document = report_document(transformer_report(modules), top=None)
    seconds, page = _timed(lambda: render(document, RenderOptions(detail=True)))
    empty = render(Document(title="", sections=(), json="{}"), RenderOptions(detail=True))
    file = folder / f"{modules}.html"
    file.write_text(page, encoding="utf-8")
    times = _interactions(browser, file, "icicle", ACTIONS)
    sizes = (len(page.encode()), len(empty.encode()))
    return (f"{modules:,}", *(f"{size / 1e6:.2f} MB" for size in sizes), f"{seconds * 1e3:.0f} ms", *map(_text, times))


def measure_timeline(browser: Browser, boxes: int, folder: Path) -> tuple[str, ...]:
    """Return the table row of a page with a timeline of `boxes` on eight lanes."""
    spans = tuple(
        EventSpan(
            lane=f"device: stream {number % 8}", name=f"kernel {number % 100}", start_ns=125 * number,
            end_ns=125 * number + 900, family="convolution", kind="work", step=0, operator="aten::conv2d",
        )
        for number in range(boxes)
    )  # fmt: skip
    end_ns = spans[-1].end_ns
    timeline = StepTimeline(step=0, index=0, start_ns=0, end_ns=end_ns, host_end_ns=end_ns, spans=spans)
    document = Document(title="", sections=(Section(title="", blocks=tuple(timeline_chart(timeline))),), json="{}")
    file = folder / f"timeline_{boxes}.html"
    file.write_text(render(document, RenderOptions(detail=True)), encoding="utf-8")
    times = _interactions(browser, file, "timeline", TIMELINE_ACTIONS)
    return (f"{boxes:,}", f"{file.stat().st_size / 1e6:.2f} MB", *map(_text, times))


def _interactions(browser: Browser, file: Path, kind: str, actions: Sequence[str]) -> list[float]:
    """Return the milliseconds of the first paint, the CPU until the page is idle, and that of each action: medians."""
    rounds = [_round(browser, file, kind, actions) for _ in range(ROUNDS)]
    return [statistics.median(values) for values in zip(*rounds, strict=True)]


def _round(browser: Browser, file: Path, kind: str, actions: Sequence[str]) -> tuple[float, ...]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri())
    page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.wait_for_timeout(IDLE_MS)
    loaded = _cpu_ms(session)
    page.locator(f"figure.{kind}").scroll_into_view_if_needed()
    page.locator(f"figure.{kind} canvas").wait_for()
    page.wait_for_timeout(300)
    times = (paint, loaded, *(_action(page, session, script) for script in actions))
    has_zoomed = page.locator(".crumbs button").count() > 1 or page.locator("[data-view]").count()
    page.close()
    if not has_zoomed:
        raise RuntimeError("the click did not zoom")
    return times


def _action(page: Page, session: CDPSession, script: str) -> float:
    before = _cpu_ms(session)
    page.evaluate(PAINTED.replace("SCRIPT", script))
    return _cpu_ms(session) - before


def _cpu_ms(session: CDPSession) -> float:
    """Return the CPU time of all tasks of the page until now."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return 1e3 * float(metrics["TaskDuration"])


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _text(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms"


def main() -> int:
    """Measure all pages and print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        rows = [measure(browser, modules, Path(folder)) for modules in MODULES]
        timelines = [measure_timeline(browser, boxes, Path(folder)) for boxes in BOXES]
        version = browser.version
    print(f"Medians of {ROUNDS} in Chromium {version}:")
    for heads, table in ((HEADS, rows), (TIMELINE_HEADS, timelines)):
        print()
        for row in (heads, ("--:",) * len(heads), *table):
            print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
