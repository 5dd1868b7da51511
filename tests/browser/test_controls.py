"""The controls of pages, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opened_page import Opened
from pages import HOSTILE, PAGES, STRAGGLER, timeline_of

from profiler_kit.records.document import Chart, Table
from profiler_kit.render._html_blocks import MARKED_ROWS

OpenPage = Callable[..., Opened]
WHITE = "rgb(255, 255, 255)"


def _background(opened: Opened) -> str:
    color: str = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return color


def _first_column(opened: Opened) -> list[str]:
    """The names in the layer table, in the order shown."""
    names: list[str] = opened.page.evaluate(
        """() => [...document.querySelector("[data-anchor=layer-] tbody").rows].map((row) => row.cells[0].textContent)"""
    )
    return names


def _all_names(opened: Opened) -> list[str]:
    """The names in the layer table, in order, of which the page has only those in view: all of them, by scrolling."""
    scroll = opened.page.locator("[data-anchor=layer-]")
    names: dict[str, None] = {}
    for place in range(0, scroll.evaluate("(element) => element.scrollHeight"), 400):
        scroll.evaluate("(element, top) => { element.scrollTop = top; }", place)
        opened.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        names.update(dict.fromkeys(_first_column(opened)))
    return list(names)


def test_the_theme_follows_the_system_and_the_button(open_page: OpenPage) -> None:
    opened = open_page("failed run", color_scheme="light")
    opened.page.locator("figure.bars").first.scroll_into_view_if_needed()
    opened.page.locator("figure.bars canvas").first.wait_for()
    label = "document.querySelector('figure.bars canvas').toDataURL()"
    light = opened.page.evaluate(label)
    assert _background(opened) == WHITE
    opened.page.emulate_media(color_scheme="dark")
    assert _background(opened) != WHITE
    opened.eventually(lambda: opened.page.evaluate(label) != light, "charts are drawn again")
    dark = opened.page.evaluate(label)
    button = opened.page.locator("button.theme")
    button.click()
    assert _background(opened) == WHITE
    opened.eventually(lambda: opened.page.evaluate(label) == light)
    button.press("Enter")
    assert _background(opened) != WHITE
    opened.page.emulate_media(color_scheme="light")
    assert _background(opened) != WHITE, "the choice wins over the system"
    opened.eventually(lambda: opened.page.evaluate(label) == dark)
    button.press("Enter")
    assert _background(opened) == WHITE


def test_the_icicle_zooms_searches_and_has_breadcrumbs(open_page: OpenPage) -> None:
    opened = open_page("resnet50")
    figure = opened.page.locator("figure.icicle")
    opened.draw_all()
    crumbs = figure.locator(".crumbs button")
    chart = figure.locator(".chart")
    box = chart.bounding_box()
    assert box is not None
    assert crumbs.all_inner_texts() == ["(root)"]
    chart.click(position={"x": box["width"] / 2, "y": 40})  # a module of the second level
    opened.eventually(lambda: crumbs.count() == 2)
    zoomed = int(opened.shown("icicle", "boxes"))
    crumbs.first.click()
    opened.eventually(lambda: crumbs.count() == 1)
    opened.eventually(lambda: int(opened.shown("icicle", "boxes")) > zoomed)
    figure.get_by_label("Search modules").fill("layer3.2.conv")
    assert figure.locator(".matches").inner_text() == "3 of 128"
    figure.get_by_label("Search modules").press("Enter")
    opened.eventually(lambda: crumbs.all_inner_texts() == ["(root)", "layer3", "2", "conv1"])
    figure.get_by_label("Width of a module").select_option("params")
    opened.eventually(lambda: crumbs.count() == 4)


def test_the_icicle_works_by_keyboard(open_page: OpenPage) -> None:
    opened = open_page("resnet50")
    figure = opened.page.locator("figure.icicle")
    figure.scroll_into_view_if_needed()
    chart = figure.locator(".chart")
    figure.get_by_label("Search modules").focus()
    opened.page.keyboard.press("Tab")  # the breadcrumb
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.dataset.chart !== undefined")
    for key in ("ArrowDown", "ArrowRight"):
        opened.page.keyboard.press(key)
    label = chart.get_attribute("aria-label")
    assert label is not None
    assert label.startswith("Module layer1")
    opened.page.keyboard.press("Enter")
    assert figure.locator(".crumbs button").all_inner_texts() == ["(root)", "layer1"]
    opened.page.keyboard.press("Escape")
    assert figure.locator(".crumbs button").count() == 1


def test_a_table_sorts_by_mouse_and_keyboard(open_page: OpenPage) -> None:
    opened = open_page("transformer")
    scroll = opened.page.locator("[data-anchor=layer-]")
    by_time = _all_names(opened)
    scroll.locator("th button").first.click()
    names = _all_names(opened)
    assert sorted(names) == sorted(by_time)
    blocks = [int(name.split(".")[1]) for name in names if name.startswith("blocks.")]
    assert blocks == sorted(blocks), "numbers in names sort as numbers"
    assert scroll.locator("th").first.get_attribute("aria-sort") == "ascending"
    scroll.locator("th button").first.press("Enter")
    assert _all_names(opened) == names[::-1]
    heading = scroll.locator("th.number").last
    heading.locator("button").press("Space")
    values = opened.page.evaluate(
        "(cell) => [...cell.closest('table').tBodies[0].rows].map((row) => row.cells[cell.cellIndex].dataset.sort ?? null)",
        heading.element_handle(),
    )
    figures = [float(value) for value in values if value is not None]
    assert figures == sorted(figures, reverse=True)
    assert None not in values[: len(figures)], "unknown values are at the end"


def test_a_long_table_has_the_rows_in_view(open_page: OpenPage) -> None:
    opened = open_page("transformer")
    document = PAGES["transformer"]()
    table = next(
        b for section in document.sections for b in section.blocks if isinstance(b, Table) and b.name == "layers"
    )
    assert len(table.rows) > 2 * MARKED_ROWS
    scroll = opened.page.locator("[data-anchor=layer-]")
    assert len(_first_column(opened)) == MARKED_ROWS
    height = scroll.evaluate("(element) => element.scrollHeight")
    assert _all_names(opened) == [row[0] for row in table.rows]
    assert len(_first_column(opened)) == MARKED_ROWS
    assert scroll.evaluate("(element) => element.scrollHeight") == pytest.approx(height, abs=2)
    middle = len(table.rows) // 2
    opened.page.evaluate("(hash) => { location.hash = hash; }", f"layer-{middle}")
    row = opened.page.locator("tr.target")
    row.wait_for()
    assert row.locator("td").first.inner_text() == table.rows[middle][0]
    assert row.evaluate("(row) => row.getBoundingClientRect().bottom < innerHeight")
    opened.page.emulate_media(media="print")
    opened.eventually(lambda: len(_first_column(opened)) == len(table.rows), "on paper, all rows")
    opened.page.emulate_media(media="screen")
    opened.eventually(lambda: len(_first_column(opened)) == MARKED_ROWS)


def test_a_tree_sorts_among_siblings(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    scroll = opened.page.locator(".scroll", has_text="├").first
    column = "(table) => [...table.tBodies[0].rows].map((row) => [row.cells[0].textContent, Number(row.cells[1].dataset.sort)])"
    table = scroll.locator("table").element_handle()

    def parents(rows: list[tuple[str, float]]) -> dict[str, list[tuple[str, float]]]:
        """The rows below each row, in the order shown; the path of a row is that of its names."""
        path: list[str] = []
        below: dict[str, list[tuple[str, float]]] = {}
        for name, value in rows:
            plain = name.lstrip("│├└ ")
            depth = (len(name) - len(plain)) // 2
            path = [*path[:depth], plain]
            below.setdefault("/".join(path[:-1]), []).append((plain, value))
        return below

    before = parents(opened.page.evaluate(column, table))
    assert len(before) > 1
    for expected in (True, False):
        scroll.locator("th button").nth(1).click()
        after = parents(opened.page.evaluate(column, table))
        assert {place: sorted(rows) for place, rows in after.items()} == {
            place: sorted(rows) for place, rows in before.items()
        }
        for rows in after.values():
            values = [value for _, value in rows]
            assert values == sorted(values, reverse=expected)


def test_differences_sort_by_their_value(open_page: OpenPage) -> None:
    opened = open_page("compared")
    opened.page.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
    heading = opened.page.locator("th[data-key^=device_change]").first
    heading.click(position={"x": 2, "y": 2})  # beside the text
    shown = opened.page.evaluate(
        "(cell) => [...cell.closest('table').tBodies[0].rows].map((row) => row.cells[cell.cellIndex].textContent)",
        heading.element_handle(),
    )
    signs = [text[0] for text in shown if text not in ("-", "0 ns")]
    assert signs == sorted(signs), "what is added comes first"
    assert set(signs) == {"+", "-"}


def test_a_table_filters_and_copies_as_csv(open_page: OpenPage) -> None:
    opened = open_page("transformer", permissions=["clipboard-read", "clipboard-write"])
    scroll = opened.page.locator("[data-anchor=layer-]")
    tools = scroll.locator("xpath=preceding-sibling::div[1]")
    total = len(_first_column(opened))
    tools.locator("input").fill("blocks.7.")
    names = _first_column(opened)
    assert 0 < len(names) < total
    assert all("blocks.7." in name for name in names)
    copy = tools.locator("button")
    copy.click()
    opened.page.wait_for_function("(control) => control.textContent === 'Copied'", arg=copy.element_handle())
    lines = opened.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert len(lines) == 1 + len(names) + scroll.locator("tfoot tr").count()
    heads = lines[0].strip('"').split('","')
    assert heads[:2] == ["layer", "class"]
    assert len(set(heads)) == len(heads)
    assert {name for name in heads if name.endswith("_ns") or "(ns)" in name}, "times state their unit"
    name, *values = lines[1].strip('"').split('","')
    assert name == names[0]
    assert any(value.isdecimal() and int(value) > 10**6 for value in values), "figures in full, without units"


def test_findings_link_to_layers_and_verdicts_to_findings(open_page: OpenPage) -> None:
    opened = open_page("v0")
    opened.page.locator(".verdict a").nth(1).click()
    assert opened.page.locator(":target").get_attribute("id") == "finding-2"
    assert opened.page.locator("#finding-2 > details").get_attribute("open") is not None
    opened.page.evaluate("() => { location.hash = 'finding-3'; }")
    opened.page.locator("#finding-3 a.layer").first.click()
    row = opened.page.locator("tr.target")
    assert row.locator("td").first.inner_text() == "conv2"
    assert row.is_visible()
    assert opened.page.locator("figure.icicle .crumbs button").all_inner_texts() == ["(root)", "conv2"]


def test_a_link_unfolds_a_finding_of_low_severity(open_page: OpenPage) -> None:
    opened = open_page("v0")
    finding = opened.page.locator("details.lower > ol > li").last
    assert not finding.is_visible()
    identifier = finding.get_attribute("id")
    opened.page.evaluate("(name) => { location.hash = name; }", identifier)
    opened.page.wait_for_function("(name) => document.getElementById(name).checkVisibility()", arg=identifier)
    assert finding.locator(".body").is_visible()


def test_hostile_names_are_text(open_page: OpenPage) -> None:
    opened = open_page("hostile")
    opened.draw_all()
    assert opened.page.locator("script").count() == 3
    assert opened.page.locator("main img").count() == 0
    shown = opened.page.locator("body").inner_text()
    for name in HOSTILE:
        assert name.replace("\u202e", "\\u202e") in shown
    assert "\u202e" not in shown
    figure = opened.page.locator("figure.icicle")
    figure.get_by_label("Search modules").fill("</script>")
    figure.get_by_label("Search modules").press("Enter")
    assert figure.locator(".crumbs button").last.inner_text().endswith("<script>alert(1)</script>")
    figure.locator(".chart").hover()  # a tooltip is HTML
    opened.page.wait_for_timeout(100)


def test_a_comparison_has_an_aligned_tree_that_folds(open_page: OpenPage) -> None:
    opened = open_page("compared")
    figure = opened.page.locator("figure.tree")
    figure.scroll_into_view_if_needed()
    rows = figure.locator("tbody tr")
    rows.first.wait_for()
    unfolded = rows.count()
    assert {"added", "removed", "changed", "same"} == set(figure.locator(".status").all_inner_texts())
    conv2 = rows.filter(has_text="conv2").locator("td").all_inner_texts()
    assert conv2[2] == "-"
    assert conv2[3] == f"-{conv2[1]}"
    toggle = figure.locator("button.fold").first
    assert toggle.get_attribute("aria-expanded") == "true"
    toggle.press("Enter")
    assert rows.count() < unfolded
    assert opened.page.evaluate("document.activeElement.className") == "fold", "the focus stays"
    figure.get_by_label("Search modules").fill("conv_r")
    names = figure.locator("tbody td.name").all_inner_texts()
    assert len([name for name in names if "conv_r" in name]) == len(names) - 1
    figure.get_by_label("Search modules").fill("")
    figure.get_by_label("Compared figure").select_option("params")
    assert "parameters" in figure.get_by_label("Compared figure").inner_text()
    figure.get_by_text("only changes").click()
    figure.get_by_text("Unfold all").click()
    assert "same" not in figure.locator(".status").all_inner_texts()


def test_the_timeline_zooms(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.locator("canvas").wait_for()

    def view() -> tuple[float, float]:
        start, end = map(float, opened.shown("timeline", "view").split())
        return start, end

    figure.get_by_label("Zoom in").press("Enter")
    start, end = view()
    figure.locator(".chart").focus()
    opened.page.keyboard.press("+")
    assert view()[1] - view()[0] == pytest.approx((end - start) / 2)
    before = view()
    opened.page.keyboard.press("ArrowRight")
    assert view()[0] > before[0]
    assert view()[1] - view()[0] == pytest.approx(before[1] - before[0])
    opened.page.keyboard.press("Escape")
    assert view() == (0, pytest.approx(2 * (end - start)))
    chart = figure.locator(".chart")
    box = chart.bounding_box()
    assert box is not None
    mouse, y = opened.page.mouse, box["y"] + 40
    mouse.move(box["x"] + 0.75 * box["width"], y)
    opened.page.keyboard.down("Control")
    mouse.wheel(0, -100)
    opened.page.keyboard.up("Control")
    opened.eventually(lambda: view()[0] > 0, "the wheel zooms with Ctrl pressed")
    before = view()
    mouse.down()
    mouse.move(box["x"] + 0.85 * box["width"], y, steps=4)
    mouse.up()
    opened.eventually(lambda: view()[0] < before[0], "dragging moves the view")
    assert figure.locator(".legend").inner_text().count("idle: ") > 0


def test_the_timeline_measures_and_the_wheel_scrolls_the_page(open_page: OpenPage) -> None:
    opened = open_page("overlapping steps")
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.locator("canvas").wait_for()
    box = figure.locator(".chart").bounding_box()
    assert box is not None
    mouse, left, middle = opened.page.mouse, box["x"] + box["width"] / 2, box["y"] + 60
    opened.page.keyboard.down("Shift")
    mouse.move(left, middle)
    mouse.down()
    mouse.move(left + 100, middle, steps=4)
    mouse.up()
    opened.page.keyboard.up("Shift")
    assert opened.shown("timeline", "view") is None, "measuring does not move the chart"
    start, end = map(float, opened.shown("timeline", "measured").split())
    figure.get_by_label("Zoom in").click()
    low, high = map(float, opened.shown("timeline", "view").split())
    width = box["width"] * (end - start) / (2 * (high - low))  # of the range, if the lanes were as wide as the chart
    assert 100 < width < 140, "100 pixels of lanes, beside which are their names"
    assert figure.locator("output").inner_text().endswith(("ms", "us", "ns"))
    before, view = opened.page.evaluate("scrollY"), opened.shown("timeline", "view")
    mouse.wheel(0, 100)
    opened.eventually(lambda: opened.page.evaluate("scrollY") > before)
    assert opened.shown("timeline", "view") == view


def test_a_click_on_a_kernel_shows_where_it_comes_from(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    data = timeline_of("inspected")
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.locator("canvas").wait_for()
    box = figure.locator(".chart").bounding_box()
    assert box is not None
    mouse, first, last = opened.page.mouse, box["x"] + 0.4 * box["width"], box["x"] + 0.6 * box["width"]
    opened.page.keyboard.down("Shift")
    mouse.move(first, box["y"] + 40)
    mouse.down()
    mouse.move(last, box["y"] + 40, steps=3)
    mouse.up()
    opened.page.keyboard.up("Shift")
    start, end = map(float, opened.shown("timeline", "measured").split())

    def press(index: int) -> None:
        lane, begin, stop = data["boxes"][index][:3]
        middle = first + ((begin + stop) / 2 - start) / (end - start) * (last - first)
        figure.locator(".chart").click(position={"x": middle - box["x"], "y": 2 + 27 * lane + 13})

    details = figure.locator("dl")
    assert not details.is_visible()
    works = {
        kind: max(
            (i for i, one in enumerate(data["boxes"]) if (data["families"][one[3]] or "").startswith(kind) and one[6:]),
            key=lambda i: data["boxes"][i][2] - data["boxes"][i][1],
        )
        for kind in ("work: ", "idle: ")
    }
    for kind, index in works.items():
        press(index)
        opened.eventually(lambda index=index: opened.shown("timeline", "selected") == str(index))
        facts = data["facts"][data["boxes"][index][5]]
        assert facts[0], kind
        assert facts[3], kind
        shown = details.locator("dd").all_inner_texts()
        assert data["names"][data["boxes"][index][3]] == shown[0]
        for fact in filter(None, facts):
            assert any(fact in text for text in shown), fact
    press(works["idle: "])
    opened.eventually(lambda: not details.is_visible(), "a second click closes it")


def test_the_boxes_of_a_timeline_are_reached_by_keyboard(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    boxes = timeline_of("inspected")["boxes"]
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.locator("canvas").wait_for()
    figure.locator(".chart").focus()

    def selected() -> list[int]:
        chosen: list[int] = boxes[int(opened.shown("timeline", "selected"))]
        return chosen

    opened.page.keyboard.press("n")
    first = selected()
    assert first == min((box for box in boxes if box[0] == 0), key=lambda box: box[1])
    opened.page.keyboard.press("n")
    assert selected()[0] == 0
    assert selected()[1] >= first[2]
    opened.page.keyboard.press("p")
    assert selected() == first
    opened.page.keyboard.press("j")
    assert selected()[0] == 1
    opened.page.keyboard.press("k")
    assert selected()[0] == 0
    opened.page.keyboard.press("Escape")
    assert not figure.locator("dl").is_visible()


def test_the_timelines_of_ranks_show_the_same_time(open_page: OpenPage) -> None:
    opened = open_page("ranks on one clock")
    figures = opened.page.locator("figure.timeline")
    charts = opened.page.locator("figure.timeline .chart")
    shared = [
        block.data["shared_ns"]
        for section in PAGES["ranks on one clock"]().sections
        for block in section.blocks
        if isinstance(block, Chart) and block.name in ("ranks_timeline", "timeline")
    ]
    assert len(shared) == 3, "all ranks, then each"
    assert len({end - start for start, end in shared}) == 1
    for number in range(3):
        charts.nth(number).scroll_into_view_if_needed()
        charts.nth(number).locator("canvas").wait_for()
    for moved in range(3):
        figures.nth(moved).get_by_label("Zoom in").click()
        views = [list(map(float, str(charts.nth(i).get_attribute("data-view")).split())) for i in range(3)]
        starts, ends = ([view[side] - shared[i][0] for i, view in enumerate(views)] for side in (0, 1))
        assert starts == pytest.approx([starts[0]] * 3, abs=2)
        assert ends == pytest.approx([ends[0]] * 3, abs=2)
        assert ends[0] - starts[0] == pytest.approx((shared[0][1] - shared[0][0]) / 2 ** (moved + 1), rel=1e-6)


def test_the_ranks_have_an_arrow_for_each_collective_in_view(open_page: OpenPage) -> None:
    opened = open_page("ranks on one clock")
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.locator("canvas").wait_for()
    links = timeline_of("ranks on one clock")["links"]
    assert opened.shown("timeline", "links") == str(len(links)) != "0"
    figure.get_by_label("Zoom in").click()
    first, last = map(float, opened.shown("timeline", "view").split())
    in_view = [starts for starts in links if all(first <= ns <= last for _, ns in starts)]
    assert opened.shown("timeline", "links") == str(len(in_view))
    assert len(in_view) < len(links)


def test_the_straggler_is_red(open_page: OpenPage) -> None:
    opened = open_page("ranks")
    opened.draw_all()
    assert opened.shown("bars", "marked") == str(STRAGGLER)


def test_every_control_is_reached_by_tab(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    opened.draw_all()
    remaining = """() => [...document.querySelectorAll(
      "a[href], button, input, select, summary, [role=application], .scroll, pre")]
      .filter((element) => element.checkVisibility() && !window.reached.has(element)).map((element) => element.outerHTML)"""
    opened.page.evaluate("""() => {
      window.reached = new Set();
      addEventListener("focusin", ({ target }) => window.reached.add(target));
      document.activeElement.blur();
    }""")
    # the end of the page takes one more, where the focus begins below its top
    for _ in range(len(opened.page.evaluate(remaining)) + 1):
        opened.page.keyboard.press("Tab")
    assert opened.page.evaluate(remaining) == []


# A window that answers as Perfetto does, from `origin`, and keeps what it gets.
PERFETTO = """(origin) => {
  window.sent = [];
  const channel = new MessageChannel();
  window.open = (url) => {
    window.opened = url;
    channel.port1.postMessage = (message, target) => {
      window.sent.push([message, target]);
      if (message === "PING") dispatchEvent(new MessageEvent("message", { data: "PONG", origin, source: channel.port1 }));
    };
    return channel.port1;
  };
}"""
SENT = """() => {
  const [message, target] = window.sent.find(([message]) => message.perfetto);
  return [JSON.parse(new TextDecoder().decode(message.perfetto.buffer)), message.perfetto.title, target];
}"""


def _open_in_perfetto(opened: Opened, origin: str) -> None:
    opened.page.evaluate(PERFETTO, origin)
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.locator("canvas").wait_for()
    figure.get_by_role("button", name="Open in Perfetto").click()
    opened.eventually(lambda: opened.page.evaluate("window.sent.length > 0"))


def test_perfetto_gets_the_boxes_of_the_timeline(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    data = timeline_of("inspected")
    _open_in_perfetto(opened, "https://ui.perfetto.dev")
    opened.eventually(lambda: opened.page.evaluate("window.sent.some(([message]) => message.perfetto)"))
    sent, title, target = opened.page.evaluate(SENT)
    assert opened.page.evaluate("window.opened") == target == "https://ui.perfetto.dev"
    assert title == opened.page.locator("figure.timeline .chart").first.get_attribute("aria-label")
    lanes = {event["tid"]: event["args"]["name"] for event in sent["traceEvents"] if event["name"] == "thread_name"}
    assert [lanes[tid] for tid in sorted(lanes)] == data["lanes"]
    slices = [event for event in sent["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == len(data["boxes"])
    for event, box in zip(slices, data["boxes"], strict=True):
        assert (lanes[event["tid"]], event["name"]) == (data["lanes"][box[0]], data["names"][box[3]])
        assert event["ts"] * 1e3 == pytest.approx(box[1], abs=0.01)
        assert -0.01 < box[2] - box[1] - event["dur"] * 1e3 < 4.01
    launched = next(i for i, box in enumerate(data["boxes"]) if len(box) > 6 and data["facts"][box[5]][3])
    assert slices[launched]["args"]["launch"] == data["facts"][data["boxes"][launched][5]][3]


def test_no_other_page_gets_the_trace(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    _open_in_perfetto(opened, "https://example.org")
    opened.page.wait_for_timeout(400)
    assert opened.page.evaluate(
        "window.sent.every(([message, target]) => message === 'PING' && target === window.opened)"
    )


def test_where_no_window_opens_the_page_names_the_command(open_page: OpenPage) -> None:
    opened = open_page("inspected")
    opened.page.evaluate("window.open = () => null")
    figure = opened.page.locator("figure.timeline").first
    figure.scroll_into_view_if_needed()
    figure.get_by_role("button", name="Open in Perfetto").click()
    assert "--annotate" in figure.locator("output").inner_text()


def test_before_and_after_show_the_same_time(open_page: OpenPage) -> None:
    opened = open_page("overlapping steps")
    section = opened.page.locator("section", has=opened.page.locator("h2", has_text="Before and after"))
    figures = section.locator("figure.timeline")
    assert figures.count() == 2
    for figure in figures.all():
        figure.scroll_into_view_if_needed()
        figure.locator("canvas").wait_for()
    figures.last.get_by_label("Zoom in").click()
    views = [str(figure.locator(".chart").get_attribute("data-view")) for figure in figures.all()]
    assert views[0] == views[1] != "null"
    other = opened.page.locator("figure.timeline").first
    other.scroll_into_view_if_needed()
    other.locator("canvas").wait_for()
    assert other.locator(".chart").get_attribute("data-view") is None, "the trace has another clock than the replay"
