"""One self-contained HTML page: text, tables that sort and filter, and charts. It loads nothing from the network.

All text of models and traces is escaped, in the markup and in the JSON of the charts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import (
    Block,
    Chart,
    Document,
    FindingList,
    Head,
    Paragraph,
    RemedyList,
    Section,
    Table,
    Value,
)
from profiler_kit.records.paths import shown_path
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._text import cell, is_right_aligned, lines, one_line
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import Remedy

# The page may run its own script and style, and nothing else.
_CODE: Final = re.compile(r"`([^`]+)`")
_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def render(document: Document, options: RenderOptions) -> str:
    """The whole document as a page, details folded."""
    page = _Page()
    body = "\n".join(page.section(section, number) for number, section in enumerate(document.sections))
    links = " ".join(
        f'<a href="#s{number}">{_text(section.title)}</a>'
        for number, section in enumerate(document.sections)
        if section.title and not section.detail
    )
    title = _text(document.title)
    charts = json.dumps(page.charts, allow_nan=False).replace("<", "\\u003c")
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
<h1>{title}</h1>
<nav aria-label="Sections">{links}</nav>
{body}
<script type="application/json" id="charts">{charts}</script>
<script>{_file("vendor.js")}</script>
<script>{_file("charts.js")}</script>
</body>
</html>
"""


def _file(name: str) -> str:
    return (resources.files(__package__) / "web" / name).read_text(encoding="utf-8").replace("</script", "<\\/script")


def _text(written: str) -> str:
    return escape(one_line(written))


def _sentences(written: str) -> str:
    """Text with code between backticks, as findings and advice write it."""
    return _CODE.sub(r"<code>\1</code>", _text(written))


class _Page:
    """The blocks of a page as markup, and the data of its charts."""

    def __init__(self) -> None:
        self.charts: list[dict[str, object]] = []

    def section(self, section: Section, number: int) -> str:
        body = "\n".join(self._block(block) for block in section.blocks)
        if number == 0:
            body = f'<div class="verdict">{body}</div>'
        if section.detail:
            summary = f"<summary>{_text(section.title)}</summary>"
            return f'<section id="s{number}"><details>{summary}{body}</details></section>'
        heading = f"<h2>{_text(section.title)}</h2>" if section.title and number else ""
        return f'<section id="s{number}">{heading}{body}</section>'

    def _block(self, block: Block) -> str:
        if isinstance(block, Table):
            return _table(block)
        if isinstance(block, Chart):
            return self._chart(block)
        if isinstance(block, FindingList):
            numbered = enumerate(block.findings, block.first)
            return _items((_finding(finding, number) for number, finding in numbered), block.first)
        if isinstance(block, RemedyList):
            return _items(map(_remedy, block.remedies), 1)
        return _paragraph(block)

    def _chart(self, chart: Chart) -> str:
        self.charts.append({"kind": chart.kind, "data": _printable(chart.data)})
        number = len(self.charts) - 1
        return (
            f'<figure><h3>{_text(chart.title)}</h3><div class="tools"></div>'
            f'<div class="chart" data-chart="{number}" role="img" aria-label="{_text(chart.title)}"></div>'
            f"<figcaption>{_text(chart.text)}</figcaption></figure>"
        )


def _printable(data: object) -> object:
    """`data` of a chart with control characters shown as escapes in all texts."""
    if isinstance(data, str):
        return one_line(data)
    if isinstance(data, Mapping):
        return {key: _printable(value) for key, value in data.items()}
    return [_printable(value) for value in data] if isinstance(data, (list, tuple)) else data


def _items(items: Iterable[str], first: int) -> str:
    return f'<ol class="items" start="{first}">{"".join(items)}</ol>'


def _paragraph(paragraph: Paragraph) -> str:
    if paragraph.role == "log":
        return f"<pre>{escape(chr(10).join(lines(paragraph.text)))}</pre>"
    role = f' class="{paragraph.role}"' if paragraph.role != "text" else ""
    return f"<p{role}>{_sentences(paragraph.text)}</p>"


def _finding(finding: Finding, number: int) -> str:
    from profiler_kit.report.trial_sentence import trial_sentence
    from profiler_kit.report.verdict import share_sentence

    explanation = " ".join(part for part in (share_sentence(finding), finding.explanation) if part)
    rows = [f'<span class="severity {finding.severity}">{finding.severity}</span> <b>{_text(finding.title)}</b>']
    rows += [f"<p>{_sentences(explanation)}</p>"] if explanation else []
    rows += [f"<p><b>What to do:</b> {_sentences(finding.advice)}</p>"] if finding.advice else []
    if finding.trial is not None:
        rows.append(
            f"<p><b>Tried:</b> <code>{_text(finding.trial.config)}</code>: {_text(trial_sentence(finding.trial))}</p>"
        )
    if finding.paths:
        rows.append(f"<p>Layers: {', '.join(f'<code>{_text(shown_path(path))}</code>' for path in finding.paths)}</p>")
    numbers = "".join(
        f"<li>{_text(item.name)}: {_text(text(item.value, item.unit))}"
        + (f" (<code>{_text(item.where)}</code>)" if item.where else "")
        + "</li>"
        for item in finding.evidence
    )
    rows += [f"<details><summary>Numbers</summary><ul>{numbers}</ul></details>"] if numbers else []
    return f'<li id="finding-{number}">{"".join(rows)}</li>'


def _remedy(remedy: Remedy) -> str:
    from profiler_kit.report.verdict import remedy_sentence

    pasted = f": <code>{_text(remedy.code)}</code>" if remedy.code else ""
    references = ", ".join(f'<a href="#finding-{number}">{number}</a>' for number in remedy.findings)
    plural = "findings" if len(remedy.findings) > 1 else "finding"
    return f"<li><b>{_text(remedy.action)}</b>{pasted}<br>{_text(remedy_sentence(remedy))} ({plural} {references})</li>"


def _table(table: Table) -> str:
    if not table.heads:
        return ""
    classes = [
        "number" if is_right_aligned(table, i) else "name" if head.name else "" for i, head in enumerate(table.heads)
    ]
    heads = "".join(
        f"<th{_class(name)}{_hint(head.doc)}>{_text(head.title)}</th>"
        for name, head in zip(classes, table.heads, strict=True)
    )
    body = "".join(_row(row, table.heads, classes) for row in table.rows)
    totals = "".join(_row(row, table.heads, classes) for row in table.totals)
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    foot = f"<tfoot>{totals}</tfoot>" if totals else ""
    return (
        f'<div class="scroll"><table class="sortable">{caption}<thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody>{foot}</table></div>"
    )


def _row(row: tuple[Value, ...], heads: tuple[Head, ...], classes: list[str]) -> str:
    cells = zip(row, heads, classes, strict=True)
    return f"<tr>{''.join(_cell(value, head, name) for value, head, name in cells)}</tr>"


def _cell(value: Value, head: Head, name: str) -> str:
    shown = escape(cell(value, head))
    raw = f' data-sort="{value}"' if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    hint = _hint(str(value)) if name == "name" and value is not None else ""
    return f"<td{_class(name)}{raw}{hint}>{shown}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _hint(written: str) -> str:
    return f' title="{_text(written)}"' if written else ""


RENDERER = Renderer("html", (".html", ".htm"), "a page with charts that opens in a browser", render)
