"""Measure HTML pages in a browser: size, first paint, and the time of zoom, search, sort and filter. Prints a Markdown table.

Times after the first paint are CPU times of the page's thread, which do not depend on how busy the machine is.

    python -m scripts.bench.html

Needs Chromium and the dependency group `browser`. The pages are of synthetic transformers with 10 to 5,000 modules.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler_kit.records.document import Document
from profiler_kit.render import RenderOptions
from profiler_kit.render.html import render
from profiler_kit.report import report_document
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
IDLE_MS: Final = 1000  # after the first paint; long pages are complete before


def measure(browser: Browser, modules: int, folder: Path) -> tuple[str, ...]:
    """Return the table row of a page with about `modules` modules."""
    document = report_document(transformer_report(modules), top=None)
    seconds, page = _timed(lambda: render(document, RenderOptions(detail=True)))
    empty = render(Document(title="", sections=(), json="{}"), RenderOptions(detail=True))
    file = folder / f"{modules}.html"
    file.write_text(page, encoding="utf-8")
    rounds = [_interactions(browser, file) for _ in range(ROUNDS)]
    times = [statistics.median(values) for values in zip(*rounds, strict=True)]
    sizes = (len(page.encode()), len(empty.encode()))
    return (f"{modules:,}", *(f"{size / 1e6:.2f} MB" for size in sizes), f"{seconds * 1e3:.0f} ms", *map(_text, times))


def _interactions(browser: Browser, file: Path) -> tuple[float, ...]:
    """Return the milliseconds of the first paint, the CPU until the page is idle, and those of `ACTIONS`."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri())
    page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.wait_for_timeout(IDLE_MS)
    loaded = _cpu_ms(session)
    page.locator("figure.icicle").scroll_into_view_if_needed()
    page.locator("figure.icicle canvas").wait_for()
    page.wait_for_timeout(300)
    times = (paint, loaded, *(_action(page, session, script) for script in ACTIONS))
    crumbs = page.locator(".crumbs button").count()
    page.close()
    if crumbs < 2:
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
        version = browser.version
    print(f"Medians of {ROUNDS} in Chromium {version}:\n")
    for row in (HEADS, ("--:",) * len(HEADS), *rows):
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
