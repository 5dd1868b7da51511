"""Markdown as GitHub reads it. Every text is escaped: a model's or kernel's name can't become a link, a mention or HTML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import Block, Document, FindingList, Head, Paragraph, Table, Value
from profiler_kit.records.paths import shown_path
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._text import cell, is_right_aligned, lines, one_line
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding

# An underscore inside a word is text as it is, so that names stay readable in the source too.
_SPECIAL: Final = re.compile(r"([\\`*\[\]<#|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START: Final = re.compile(r"\A(\d*)([-+=.)>])")
_LINK: Final = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(:)|\b(www)(\.)")
# GitHub looks for mentions and issue numbers in the finished page, where a backslash is gone: only another character helps.
_MENTION: Final = re.compile(r"@(?=\w)|(?<=#)(?=\d)|(?i:(?<=\bGH-)(?=\d))")
_NO_BREAK: Final = "\u200b"
# Sections for detail that are longer than this are folded: about a dozen rows of a table, or a log.
FOLDED_CHARACTERS: Final = 2_000
# A table with longer lines is written without padding: of a long name's column it would be most of the file.
PADDED_CHARACTERS: Final = 250


def render(document: Document, options: RenderOptions) -> str:
    """The whole document, details included."""
    parts = [f"# {escape(document.title)}"]
    for section in document.sections:
        parts.append(f"## {escape(section.title)}")
        body = [_block(block) for block in section.blocks]
        fold = section.detail and sum(map(len, body)) > FOLDED_CHARACTERS
        parts += ["<details><summary>Show</summary>", *body, "</details>"] if fold else body
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(written: str) -> str:
    """`written` as inline text that shows as it is."""
    escaped = _SPECIAL.sub(r"\\\1", one_line(written))
    escaped = _LINK.sub(lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"{m[3]}\\{m[4]}", escaped)
    return _MENTION.sub(lambda m: m[0] + _NO_BREAK, escaped)


def _block_text(written: str) -> str:
    """As `escape`, and its beginning is no list, heading or rule."""
    return _BLOCK_START.sub(r"\1\\\2", escape(written))


def code(written: str) -> str:
    """`written` as a code span, for use in a table cell too."""
    plain = one_line(written)
    if not plain:
        return ""
    plain = re.sub(r"(\\*)\|", lambda m: m[1] * 2 + "\\|", plain)
    fence = _fence(plain)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _fence(written: str, shortest: int = 1) -> str:
    """More backticks than stand in a row in `written`."""
    return "`" * max([shortest, *(len(run) + 1 for run in re.findall(r"`+", written))])


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, FindingList):
        return "\n".join(_finding(finding) for finding in block.findings)
    return _paragraph(block)


def _paragraph(paragraph: Paragraph) -> str:
    match paragraph.role:
        case "log":
            body = lines(paragraph.text)
            fence = _fence("\n".join(body), shortest=3)
            return "\n".join([f"{fence}text", *body, fence])
        case "warning":
            return f"> **Warning:** {escape(paragraph.text)}"
        case "note":
            return f"> {_block_text(paragraph.text)}"
        case "text":
            return _block_text(paragraph.text)


def _finding(finding: Finding) -> str:
    from profiler_kit.report.trial_words import trial_words

    said = [f"- **{finding.severity}: {escape(finding.title)}** ({code(finding.rule)})"]
    said += [f"  {_block_text(finding.explanation)}"] if finding.explanation else []
    if finding.advice:
        said.append(f"  - Advice: {escape(finding.advice)}")
    if finding.trial is not None:
        said.append(f"  - Tried: {code(finding.trial.config)}: {escape(trial_words(finding.trial))}")
    if finding.paths:
        said.append(f"  - Layers: {', '.join(code(shown_path(path)) for path in finding.paths)}")
    if finding.evidence:
        said += ["", "  <details><summary>Numbers</summary>", ""]
    for evidence in finding.evidence:
        where = f" ({code(evidence.where)})" if evidence.where else ""
        said.append(f"  - {escape(evidence.name)}: {escape(text(evidence.value, evidence.unit))}{where}")
    if finding.evidence:
        said += ["", "  </details>", ""]
    return "\n".join(said)


def _table(table: Table) -> str:
    from tabulate import tabulate

    if not table.heads:
        return ""
    body = [[_cell(value, head) for value, head in zip(row, table.heads, strict=True)] for row in table.rows]
    for total in table.totals:
        cells = [_cell(value, head, plain=True) for value, head in zip(total, table.heads, strict=True)]
        body.append([f"**{c}**" if any(map(str.isalnum, c)) else c for c in cells])
    aligned = ["right" if is_right_aligned(table, i) else "left" for i in range(len(table.heads))]
    drawn = tabulate(
        body,
        headers=[escape(head.title) for head in table.heads],
        tablefmt="pipe",
        colalign=aligned if body else None,
        disable_numparse=True,
    )
    if drawn.index("\n") > PADDED_CHARACTERS:
        drawn = _unpadded(drawn)
    return f"*{escape(table.caption)}*\n\n{drawn}" if table.caption else drawn


def _unpadded(drawn: str) -> str:
    """`drawn` without the spaces that line its columns up; cells hold no two spaces in a row themselves."""
    heads, rule, *rows = drawn.splitlines()
    short = re.sub(r"-{4,}", "---", rule)
    return "\n".join([re.sub(r" {2,}", " ", heads), short, *(re.sub(r" {2,}", " ", row) for row in rows)])


def _cell(value: Value, head: Head, plain: bool = False) -> str:
    written = cell(value, head)
    return code(written) if head.name and value is not None and not plain else escape(written)


RENDERER = Renderer("markdown", (".md", ".markdown"), "GitHub-flavoured Markdown", render)
