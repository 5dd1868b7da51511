"""Every page in a browser: complete, quiet, accessible, quick, and ready for paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opened_page import Opened
from pages import PAGES

OpenPage = Callable[..., Opened]
FIRST_PAINT_MS = 2000

# Visible controls without a place in the order of the Tab key.
UNREACHABLE = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [role=application], .scroll")]
  .filter((element) => element.checkVisibility() && element.tabIndex < 0).map((element) => element.outerHTML.slice(0, 200))"""


# The charts that show something: a canvas with at least one colored pixel, or rows.
DRAWN = """() => [...document.querySelectorAll("[data-chart]")].filter((chart) => {
  const canvas = chart.querySelector("canvas");
  if (!canvas) return chart.querySelector("table tbody tr");
  const small = new OffscreenCanvas(64, 64).getContext("2d");
  small.drawImage(canvas, 0, 0, 64, 64);
  return small.getImageData(0, 0, 64, 64).data.some((value) => value);
}).length"""
# Leaves a few of each kind of element: the checks take a second per thousand.
SHORTEN = """() => document.querySelectorAll(
  "tbody tr:nth-child(n + 2), tr > :nth-child(n + 5), .findings > li:nth-child(n + 3), .body li:nth-child(n + 2), " +
  "section:nth-of-type(n + 12):not(:has(figure)), section:nth-of-type(n + 20)"
).forEach((element) => element.remove())"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_draws_all_charts_and_is_accessible(open_page: OpenPage, name: str) -> None:
    opened = open_page(name, bypass_csp=True)
    opened.draw_all()
    assert opened.page.evaluate(DRAWN) == opened.page.locator("[data-chart]").count()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 1280, "nothing is wider than the page"
    assert opened.page.evaluate(UNREACHABLE) == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe: make test-browser")
    opened.page.evaluate(SHORTEN)
    for scheme, rules in (("light", {}), ("dark", {"runOnly": {"type": "rule", "values": ["color-contrast"]}})):
        opened.page.emulate_media(color_scheme=scheme)
        response = axe.Axe().run(opened.page, options={"resultTypes": ["violations"], **rules}).response
        violations = [
            (scheme, violation["id"], violation["nodes"][0]["html"][:200], violation["nodes"][0]["failureSummary"])
            for violation in response["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        assert violations == []


def test_a_large_page_paints_early(open_page: OpenPage) -> None:
    opened = open_page("transformer")
    opened.page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
    paints = opened.page.evaluate("performance.getEntriesByType('paint').map((entry) => [entry.name, entry.startTime])")
    assert dict(paints)["first-contentful-paint"] < FIRST_PAINT_MS


@pytest.mark.parametrize("name", ["v0", "compared", "hostile"])
def test_a_page_prints_completely(open_page: OpenPage, name: str) -> None:
    opened = open_page(name, color_scheme="dark")
    opened.page.set_viewport_size({"width": 720, "height": 900})  # a sheet of A4
    opened.page.emulate_media(media="print")
    opened.page.wait_for_function("() => document.querySelectorAll('details:not([open], .body details)').length === 0")
    assert (
        opened.page.locator("button:not(th button, .fold):visible, input:visible, select:visible, nav:visible").count()
        == 0
    )
    cut = opened.page.evaluate("""() => [...document.querySelectorAll("table, canvas, pre, p")]
      .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
      .map((element) => element.outerHTML.slice(0, 200))""")
    assert cut == []
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    opened.page.emulate_media(media="screen")
    opened.page.wait_for_function("() => document.querySelectorAll('details:not([open])').length > 0")


@pytest.mark.parametrize("name", ["v0", "inspected", "compared"])
def test_a_page_fits_a_phone(open_page: OpenPage, name: str) -> None:
    opened = open_page(name)
    opened.page.set_viewport_size({"width": 400, "height": 800})
    opened.draw_all()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 400


@pytest.mark.parametrize(
    "name",
    [
        "v0",
        "inspected",
        "ranks",
        "compared",
        "resnet50",
        "transformer",
        "overlapping steps",
        "tuned",
        "checked",
        "swept",
    ],
)
def test_the_first_screen_has_the_result_and_a_chart(open_page: OpenPage, name: str) -> None:
    opened = open_page(name)
    opened.page.set_viewport_size({"width": 1400, "height": 900})
    chart = opened.page.locator("main > section:first-of-type [data-chart]")
    chart.locator("canvas, table").first.wait_for()
    box, remedies = chart.bounding_box(), opened.page.locator("h2", has_text="What to do").first
    assert box is not None
    assert box["y"] + min(box["height"], 300) <= 900, "trees and comparisons may be longer"
    if remedies.count():
        place = remedies.bounding_box()
        assert place is not None
        assert place["y"] < 900


@pytest.mark.parametrize("name", ["v0", "inspected", "ranks", "compared"])
def test_the_navigation_has_all_sections(open_page: OpenPage, name: str) -> None:
    opened = open_page(name)
    links = opened.page.locator("body > nav a")
    assert links.count() == opened.page.locator("main > section").count()
    links.last.click()
    assert opened.page.locator("main > section").last.is_visible()
    target = opened.page.locator(":target")
    top, bottom = opened.page.evaluate(
        "(section) => [section.getBoundingClientRect().top, document.querySelector('nav').getBoundingClientRect().bottom]",
        target.element_handle(),
    )
    assert top >= bottom - 1, "the navigation does not cover the title of the section"
