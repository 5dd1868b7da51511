"""Findings, remedies, paragraphs and tables as markup. All text is escaped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Final, TypeGuard

from profiler_kit.records.document import Document, FindingList, Head, Paragraph, RemedyList, Table, Value
from profiler_kit.records.paths import shown_path
from profiler_kit.render._text import cell, is_right_aligned, lines, one_line
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import RankedRemedy

_CODE: Final = re.compile(r"`([^`]+)`")
_REFERENCE: Final = re.compile(r"\[(\d+)\]")
FOLDED_SEVERITIES: Final = ("low", "info")
MIN_FOLDED: Final = 3  # fewer findings of low severity are not worth folding
OPEN_FINDINGS: Final = 1  # shown in full; the others show their titles
MAX_LAYER_LINKS: Final = 20  # per finding
MARKED_ROWS: Final = 60  # of a table as markup; laying out thousands of rows takes a browser seconds


def text_markup(written: str) -> str:
    """`written` as one line of escaped text."""
    return escape(one_line(written))


def _sentences(written: str) -> str:
    """Text with code between backticks, as findings and advice write it."""
    return _CODE.sub(r"<code>\1</code>", text_markup(written))


class Links:
    """The places of a page that others refer to: rows of the layer table by their path, findings by their number."""

    def __init__(self, document: Document) -> None:
        blocks = [block for section in document.sections for block in section.blocks]
        layers = next((b for b in blocks if isinstance(b, Table) and b.name == "layers" and b.heads), None)
        self._table = layers if layers is not None and layers.heads[0].key == "layer" else None
        self._rows = {str(row[0]): i for i, row in enumerate(self._table.rows)} if self._table is not None else {}
        lists = [block for block in blocks if isinstance(block, FindingList)]
        self._findings = {number for block in lists for number in range(block.first, block.first + len(block.findings))}

    def layer(self, path: str) -> str:
        """The path of a layer, as a link to its row where there is one. The script of the page also zooms the module tree."""
        name = text_markup(shown_path(path))
        number = self._rows.get(shown_path(path))
        if number is None:
            return f"<code>{name}</code>"
        return f'<a class="layer" href="#layer-{number}" data-path="{name}"><code>{name}</code></a>'

    def anchor(self, table: Table) -> str:
        """What the ids of the table's rows begin with, as they are targets of links; empty for other tables."""
        return "layer-" if table is self._table else ""

    def with_findings(self, markup: str) -> str:
        """`markup` with the numbers of findings in brackets as links."""
        return _REFERENCE.sub(
            lambda match: (
                f'<a href="#finding-{match[1]}">[{match[1]}]</a>' if int(match[1]) in self._findings else match[0]
            ),
            markup,
        )


def paragraph_markup(paragraph: Paragraph) -> str:
    """A paragraph, styled by its role."""
    if paragraph.role in ("log", "code", "command"):
        return f'<pre tabindex="0">{escape(chr(10).join(lines(paragraph.text)))}</pre>'
    role = f' class="{paragraph.role}"' if paragraph.role != "text" else ""
    return f"<p{role}>{_sentences(paragraph.text)}</p>"


def finding_list(block: FindingList, links: Links) -> str:
    """The findings with their numbers: the important ones first, then those of low severity, folded."""
    numbered = list(enumerate(block.findings, block.first))
    folded = [(n, finding) for n, finding in numbered if finding.severity in FOLDED_SEVERITIES]
    main = [(n, finding) for n, finding in numbered if finding.severity not in FOLDED_SEVERITIES]
    if block.full or not main or len(folded) < MIN_FOLDED:
        folded, main = [], numbered
    items = [
        _finding(finding, number, links, is_open=block.full or i < OPEN_FINDINGS)
        for i, (number, finding) in enumerate(main)
    ]
    markup = f'<ol class="findings">{"".join(items)}</ol>'
    if folded:
        counts = Counter(finding.severity for _, finding in folded)
        parts = ", ".join(f"{count} {severity}" for severity, count in counts.items())
        lower = "".join(_finding(finding, number, links, is_open=False) for number, finding in folded)
        summary = f"<summary>{len(folded)} lower-priority findings ({parts})</summary>"
        markup += f'<details class="lower">{summary}<ol class="findings">{lower}</ol></details>'
    return markup


def _finding(finding: Finding, number: int, links: Links, *, is_open: bool) -> str:
    from profiler_kit.report.verdict import share_sentence, trial_sentence

    explanation = " ".join(part for part in (share_sentence(finding), finding.explanation) if part)
    rows = [f"<p>{_sentences(explanation)}</p>"] if explanation else []
    rows += [f"<p><b>What to do:</b> {_sentences(finding.advice)}</p>"] if finding.advice else []
    if finding.trial is not None:
        config, sentence = text_markup(finding.trial.config), text_markup(trial_sentence(finding.trial))
        rows.append(f"<p><b>Tried:</b> <code>{config}</code>: {sentence}</p>")
    if finding.paths:
        more = len(finding.paths) - MAX_LAYER_LINKS
        names = ", ".join(map(links.layer, finding.paths[:MAX_LAYER_LINKS])) + (
            f" and {more:,} more" if more > 0 else ""
        )
        rows.append(f"<p><b>Layers:</b> {names}</p>")
    numbers = "".join(
        f"<li>{text_markup(item.name)}: {text_markup(text(item.value, item.unit))}"
        + (f" (<code>{text_markup(item.where)}</code>)" if item.where else "")
        + "</li>"
        for item in finding.evidence
    )
    rows += [f"<details><summary>Numbers</summary><ul>{numbers}</ul></details>"] if numbers else []
    severity = f'<span class="severity {finding.severity}">{finding.severity}</span>'
    title = f'<span class="place">{number}</span>{severity}<span class="title">{text_markup(finding.title)}</span>'
    state = " open" if is_open else ""
    return (
        f'<li id="finding-{number}"><details class="finding {finding.severity}"{state}><summary>{title}</summary>'
        f'<div class="body">{"".join(rows)}</div></details></li>'
    )


def remedy_list(block: RemedyList) -> str:
    """What to do, in order: the action, the line to paste, its effects, and links to the findings."""
    return f'<ol class="remedies">{"".join(map(_remedy, block.remedies))}</ol>'


def _remedy(remedy: RankedRemedy) -> str:
    from profiler_kit.report.verdict import remedy_sentence

    pasted = f'<div class="paste"><code>{text_markup(remedy.code)}</code></div>' if remedy.code else ""
    references = ", ".join(f'<a href="#finding-{number}">{number}</a>' for number in remedy.findings)
    plural = "findings" if len(remedy.findings) > 1 else "finding"
    return (
        f"<li><b>{text_markup(remedy.action)}</b>{pasted}"
        f'<div class="effect">{text_markup(remedy_sentence(remedy))} ({plural} {references})</div></li>'
    )


def table_markup(table: Table, title: str, links: Links, number: int) -> str:
    """A table with raw values for sorting; empty without columns. `title`: its name for screen readers.

    It has the first `MARKED_ROWS` rows. The script of the page shows the others, `more_rows`, which it finds under `number`.
    """
    if not table.heads:
        return ""
    columns = [(head, _column_class(table, i)) for i, head in enumerate(table.heads)]
    heads = "".join(
        f'<th scope="col"{_class(name)}{_hint(head.doc)} data-key="{text_markup(_csv_name(head))}"'
        f"{' data-share' if head.unit == 'percent' else ''}>{text_markup(head.title)}</th>"
        for head, name in columns
    )
    anchor = links.anchor(table)
    body = "".join(
        _row(row, columns, f' id="{anchor}{i}"' if anchor else "") for i, row in enumerate(table.rows[:MARKED_ROWS])
    )
    totals = "".join(_row(row, columns) for row in table.totals)
    caption = f"<caption>{text_markup(table.caption)}</caption>" if table.caption else ""
    foot = f"<tfoot>{totals}</tfoot>" if totals else ""
    label = text_markup(f"{title}: {table.caption}" if table.caption else title or table.name)
    data = f' data-anchor="{anchor}"' if anchor else ""
    data += f' data-more="{number}"' if len(table.rows) > MARKED_ROWS else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"{data}><table>{caption}'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>{foot}</table></div>"
    )


def more_rows(table: Table) -> list[list[str | list[object]]]:
    """The rows that are not markup: the text of each cell, or the text and the number by which it sorts."""
    return [
        [
            [cell(value, head), value] if _is_number(value) else cell(value, head)
            for value, head in zip(row, table.heads, strict=True)
        ]
        for row in table.rows[MARKED_ROWS:]
        if table.heads
    ]


def _column_class(table: Table, index: int) -> str:
    return "number" if is_right_aligned(table, index) else "name" if table.heads[index].name else ""


def _csv_name(head: Head) -> str:
    """The name of a column in copied CSV: its key, which is unique in a table, with the unit of its raw values."""
    has_unit = head.unit in ("text", "bool", "count", *head.key.split("_"))
    return head.key if has_unit else f"{head.key} ({head.unit})"


def _row(row: tuple[Value, ...], columns: Iterable[tuple[Head, str]], anchor: str = "") -> str:
    cells = (_cell(value, head, name) for value, (head, name) in zip(row, columns, strict=True))
    return f"<tr{anchor}>{''.join(cells)}</tr>"


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Value, head: Head, name: str) -> str:
    raw = ""
    if _is_number(value):
        raw = f' data-sort="{value}"'
        if head.unit == "percent" and 0 <= value <= 100:  # a bar behind the figure
            raw += f' style="--share:{value:.1f}%"'
    hint = _hint(str(value)) if name == "name" and value is not None else ""
    return f"<td{_class(name)}{raw}{hint}>{escape(cell(value, head))}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _hint(written: str) -> str:
    return f' title="{text_markup(written)}"' if written else ""
