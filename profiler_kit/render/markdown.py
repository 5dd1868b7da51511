"""GitHub-flavored Markdown. All text is escaped: the name of a model or kernel cannot become a link, a mention or HTML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import Block, Chart, Document, FindingList, Head, Paragraph, RemedyList, Table, Value
from profiler_kit.records.paths import shown_path
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._text import cell, is_right_aligned, lines, one_line, without_commands
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import RankedRemedy

# An underscore inside a word needs no escape, so names stay readable in the source.
_SPECIAL: Final = re.compile(r"([\\`*\[\]<#|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START: Final = re.compile(r"\A(\d*)([-+=.)>])")
_LINK: Final = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(:)|\b(www)(\.)")
# GitHub detects mentions and issue numbers after removing backslashes, so only an extra character prevents them.
_MENTION: Final = re.compile(r"@(?=\w)|(?<=#)(?=\d)|(?i:(?<=\bGH-)(?=\d))")
_FENCED: Final = {"log": "text", "code": "python", "command": "sh"}
_NO_BREAK: Final = "\u200b"
# Detail sections longer than this are folded: about a dozen table rows, or a log.
MIN_FOLDED_CHARACTERS: Final = 2_000
# A table with longer lines is written without padding, which would be most of the file.
MAX_PADDED_LINE: Final = 250


def render(document: Document, options: RenderOptions) -> str:
    """The whole document, details included."""
    parts = [f"# {escape(document.title)}"]
    for section in document.sections:
        if section.is_drawn:
            continue
        parts.append(f"## {escape(section.title)}")
        body = [_block(block) for block in section.blocks]
        fold = section.detail and sum(map(len, body)) > MIN_FOLDED_CHARACTERS
        parts += ["<details><summary>Show</summary>", *body, "</details>"] if fold else body
    return without_commands("\n\n".join(part for part in parts if part), "\\:", "\u200b[") + "\n"


def escape(written: str) -> str:
    """`written` escaped, so that Markdown shows it literally."""
    escaped = _SPECIAL.sub(r"\\\1", one_line(written))
    escaped = _LINK.sub(lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"{m[3]}\\{m[4]}", escaped)
    return _MENTION.sub(lambda m: m[0] + _NO_BREAK, escaped)


def _block_text(written: str) -> str:
    """`written` escaped as in `escape`, also against lists, headings and rules at its beginning."""
    return _BLOCK_START.sub(r"\1\\\2", escape(written))


def code(written: str) -> str:
    """`written` as a code span, also valid in a table cell."""
    plain = one_line(written)
    if not plain:
        return ""
    plain = re.sub(r"(\\*)\|", lambda m: m[1] * 2 + "\\|", plain)
    fence = _fence(plain)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _fence(written: str, shortest: int = 1) -> str:
    """More backticks than the longest run of backticks in `written`."""
    return "`" * max([shortest, *(len(run) + 1 for run in re.findall(r"`+", written))])


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, FindingList):
        return "\n".join(_finding(finding, number) for number, finding in enumerate(block.findings, start=block.first))
    if isinstance(block, Chart):
        return ""
    if isinstance(block, RemedyList):
        return "\n".join(_remedy(remedy, number) for number, remedy in enumerate(block.remedies, start=1))
    return _paragraph(block)


def _paragraph(paragraph: Paragraph) -> str:
    match paragraph.role:
        case "log" | "code" | "command":
            body = lines(paragraph.text)
            fence = _fence("\n".join(body), shortest=3)
            return "\n".join([f"{fence}{_FENCED[paragraph.role]}", *body, fence])
        case "warning":
            return f"> **Warning:** {escape(paragraph.text)}"
        case "note":
            return f"> {_block_text(paragraph.text)}"
        case "text":
            return _block_text(paragraph.text)


def _finding(finding: Finding, number: int) -> str:
    from profiler_kit.report.verdict import share_sentence, trial_sentence

    rows = [f"**{finding.severity}: {escape(finding.title)}** ({code(finding.rule)})"]
    explanation = " ".join(part for part in (share_sentence(finding), finding.explanation) if part)
    rows += [_block_text(explanation)] if explanation else []
    if finding.advice:
        rows.append(f"- Advice: {escape(finding.advice)}")
    if finding.trial is not None:
        rows.append(f"- Tried: {code(finding.trial.config)}: {escape(trial_sentence(finding.trial))}")
    if finding.paths:
        rows.append(f"- Layers: {', '.join(code(shown_path(path)) for path in finding.paths)}")
    if finding.evidence:
        rows += ["", "<details><summary>Numbers</summary>", ""]
    for evidence in finding.evidence:
        where = f" ({code(evidence.where)})" if evidence.where else ""
        rows.append(f"- {escape(evidence.name)}: {escape(text(evidence.value, evidence.unit))}{where}")
    if finding.evidence:
        rows += ["", "</details>", ""]
    return _list_item(number, rows)


def _remedy(remedy: RankedRemedy, number: int) -> str:
    from profiler_kit.report.verdict import remedy_sentence

    pasted = f": {code(remedy.code)}" if remedy.code else ""
    references = ", ".join(str(finding) for finding in remedy.findings)
    plural = "findings" if len(remedy.findings) > 1 else "finding"
    return _list_item(
        number, [f"**{escape(remedy.action)}**{pasted}", f"{escape(remedy_sentence(remedy))} ({plural} {references})"]
    )


def _list_item(number: int, rows: list[str]) -> str:
    """`rows` as one item of a numbered list; rows below its mark are indented by its width."""
    mark = f"{number}. "
    return "\n".join(f"{mark if i == 0 else ' ' * len(mark) if row else ''}{row}" for i, row in enumerate(rows))


def _table(table: Table) -> str:
    from tabulate import tabulate

    if not table.heads:
        return ""
    body = [[_cell(value, head) for value, head in zip(row, table.heads, strict=True)] for row in table.rows]
    for total in table.totals:
        cells = [_cell(value, head, plain=True) for value, head in zip(total, table.heads, strict=True)]
        body.append([f"**{c}**" if any(map(str.isalnum, c)) else c for c in cells])
    aligned = ["right" if is_right_aligned(table, i) else "left" for i in range(len(table.heads))]
    markdown = tabulate(
        body,
        headers=[escape(head.title) for head in table.heads],
        tablefmt="pipe",
        colalign=aligned if body else None,
        disable_numparse=True,
    )
    if markdown.index("\n") > MAX_PADDED_LINE:
        markdown = _unpadded(markdown)
    return f"*{escape(table.caption)}*\n\n{markdown}" if table.caption else markdown


def _unpadded(markdown: str) -> str:
    """`markdown`, a table, without padding. Cells never contain two spaces in a row."""
    heads, rule, *rows = markdown.splitlines()
    short = re.sub(r"-{4,}", "---", rule)
    return "\n".join([re.sub(r" {2,}", " ", heads), short, *(re.sub(r" {2,}", " ", row) for row in rows)])


def _cell(value: Value, head: Head, plain: bool = False) -> str:
    written = cell(value, head)
    return code(written) if head.name and value is not None and not plain else escape(written)


RENDERER = Renderer("markdown", (".md", ".markdown"), "GitHub-flavored Markdown", render)
