"""One self-contained HTML page: text, tables that sort and filter, and charts. It loads nothing from the network.

All text of models and traces is escaped, in the markup and in the JSON of the charts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final

from profiler_kit.records.document import Block, Chart, Document, FindingList, Paragraph, RemedyList, Section, Table
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._colors import COLORS, OTHER_COLORS
from profiler_kit.render._html_blocks import (
    MARKED_ROWS,
    Links,
    finding_list,
    more_rows,
    paragraph_markup,
    remedy_list,
    table_markup,
    text_markup,
)
from profiler_kit.render._text import one_line, without_commands

# The page may run its own script and style, and nothing else.
_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_SCRIPTS: Final = (
    "base.js",
    "canvas.js",
    "charts.js",
    "icicle.js",
    "perfetto.js",
    "timeline.js",
    "tree.js",
    "tables.js",
    "page.js",
)
MAX_OPEN: Final = 6  # a page with more sections of details with charts shows them folded
MAX_LEAD: Final = 200  # characters of a first sentence in large type
MAX_FIRST: Final = 600  # characters of sentences above the first chart, so that both are on one screen


def render(document: Document, options: RenderOptions) -> str:
    """The whole document as a page, details folded."""
    page = _Page(document)
    body = "\n".join(page.section(section, number) for number, section in enumerate(document.sections))
    links = " ".join(
        f'<a href="#s{number}">{text_markup(section.title)}</a>'
        for number, section in enumerate(document.sections)
        if section.title
    )
    title = without_commands(text_markup(document.title), "&#58;", "&#91;")
    scripts = "".join(map(_file, _SCRIPTS))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{_file("page.css")}</style>
</head>
<body>
<header><div><h1>{title}</h1>{f'<p class="origin">{text_markup(document.origin)}</p>' if document.origin else ""}</div></header>
{f'<nav aria-label="Sections">{links}</nav>' if links else ""}
<main>
{without_commands(body, "&#58;", "&#91;")}
</main>
{_data("charts", page.charts)}
{_data("rows", page.rows)}
<script>"use strict";(() => {{
const COLORS = {json.dumps(COLORS)}, PALETTE = {json.dumps(OTHER_COLORS)}, WINDOW = {MARKED_ROWS};
{scripts}}})();</script>
</body>
</html>
"""


def _file(name: str) -> str:
    return (resources.files(__package__) / "web" / name).read_text(encoding="utf-8").replace("</script", "<\\/script")


def _data(name: str, value: object) -> str:
    """`value` as JSON for the scripts of the page."""
    written = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    written = without_commands(written, ":", "\\u005b")
    return f'<script type="application/json" id="{name}">{written}</script>'


class _Page:
    """The blocks of a page as markup, the data of its charts, and by number the `rows` of tables that are not markup."""

    def __init__(self, document: Document) -> None:
        self.charts: list[dict[str, object]] = []
        self.rows: list[list[list[str | list[object]]]] = []
        self._links = Links(document)
        self._lead = document.lead_chart if not document.sections[:1] or not document.sections[0].is_drawn else None
        details = [section for section in document.sections if section.detail and _has_charts(section)]
        self._unfolded = details if len(details) <= MAX_OPEN else []

    def section(self, section: Section, number: int) -> str:
        head = self._lead if number == 0 else None
        above, below = (section.blocks, ()) if head is None else _around_chart(section.blocks)
        body, rest = (
            "\n".join(self._block(block, section) for block in blocks if block is not self._lead)
            for blocks in (above, below)
        )
        lead = self._chart(head, section) if head is not None else ""
        if number == 0 and body and not section.is_drawn:
            first = section.blocks[0]
            if isinstance(first, Paragraph) and len(first.text) <= MAX_LEAD:
                body = f'<div class="lead">{body[: body.index("</p>") + 4]}</div>{body[body.index("</p>") + 4 :]}'
            body = f'<div class="verdict">{self._links.with_findings(body)}</div>'
        if section.detail:
            is_open = " open" if section in self._unfolded else ""
            summary = f"<summary><h2>{text_markup(section.title)}</h2></summary>"
            return f'<section id="s{number}"><details class="detail"{is_open}>{summary}{body}</details></section>'
        heading = f"<h2>{text_markup(section.title)}</h2>" if section.title and number else ""
        return f'<section id="s{number}">{heading}{body}{lead}{self._links.with_findings(rest)}</section>'

    def _block(self, block: Block, section: Section) -> str:
        if isinstance(block, Table):
            return self._table(block, section)
        if isinstance(block, Chart):
            return self._chart(block, section)
        if isinstance(block, FindingList):
            return finding_list(block, self._links)
        if isinstance(block, RemedyList):
            return remedy_list(block)
        return paragraph_markup(block)

    def _table(self, table: Table, section: Section) -> str:
        markup = table_markup(table, section.title, self._links, len(self.rows))
        if more := more_rows(table):
            self.rows.append(more)
        return markup

    def _chart(self, chart: Chart, section: Section) -> str:
        self.charts.append({"kind": chart.kind, "data": _printable(chart.data)})
        number = len(self.charts) - 1
        title = text_markup(chart.title)
        heading = f"<h3>{title}</h3>" if chart.title != section.title else ""
        return (
            f'<figure class="{chart.kind}">{heading}<div class="tools"></div>'
            f'<div class="chart" data-chart="{number}" role="img" aria-label="{title}"></div>'
            f"<figcaption>{text_markup(chart.text)}</figcaption></figure>"
        )


def _around_chart(blocks: Sequence[Block]) -> tuple[Sequence[Block], Sequence[Block]]:
    """The blocks above and below the first chart: sentences beyond `MAX_FIRST` characters are below."""
    above: list[Block] = []
    below: list[Block] = []
    length = 0
    for block in blocks:
        is_sentence = isinstance(block, Paragraph) and block.role == "text"
        length += len(block.text) if isinstance(block, Paragraph) else 0
        (below if is_sentence and above and length > MAX_FIRST else above).append(block)
    return above, below


def _has_charts(section: Section) -> bool:
    return any(isinstance(block, Chart) for block in section.blocks)


def _printable(data: object) -> object:
    """`data` of a chart with control characters shown as escapes in all texts."""
    if isinstance(data, str):
        return one_line(data)
    if isinstance(data, Mapping):
        return {key: _printable(value) for key, value in data.items()}
    return [_printable(value) for value in data] if isinstance(data, (list, tuple)) else data


RENDERER = Renderer("html", (".html", ".htm"), "a page with charts that opens in a browser", render)
