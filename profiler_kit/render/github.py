"""Markdown for a comment on a pull request or a job summary: the verdict first, short tables, below GitHub's limits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Final

from profiler_kit.records.document import Block, Document, Paragraph, Section, Table, Value
from profiler_kit.render import Renderer, RenderOptions, markdown
from profiler_kit.units import plural

MARKER: Final = "<!-- profiler-kit -->"  # a bot finds its own comment by it
LONGEST: Final = 65_000  # characters; GitHub refuses 65,536, and a job adds its own lines
ROWS: Final = (20, 10, 5, 2)  # of a table; fewer if the comment is too long
LONGEST_TEXT: Final = (2_000, 500, 200, 80)  # characters of a cell or a paragraph, for the same cases


def render(document: Document, options: RenderOptions) -> str:
    """The document after a hidden marker. Whole rows are left out, and their number is stated."""
    for rows, characters in zip(ROWS, LONGEST_TEXT, strict=True):
        written = _comment(document, document.sections, rows, characters)
        if len(written) <= LONGEST:
            return written
    fits = bisect_left(
        range(len(document.sections)), True, key=lambda count: len(_first_sections(document, count + 1)) > LONGEST
    )
    return _first_sections(document, fits)


def _first_sections(document: Document, count: int) -> str:
    """The first `count` sections of the document, as short as possible, and how many are left out."""
    left_out = len(document.sections) - count
    note = Section(title="Left out", blocks=(Paragraph(text=f"{plural(left_out, 'more section')}."),))
    return _comment(document, (*document.sections[:count], note), ROWS[-1], LONGEST_TEXT[-1])


def _comment(document: Document, sections: tuple[Section, ...], rows: int, characters: int) -> str:
    short = tuple(
        Section(
            title=_cut(section.title, characters),
            blocks=tuple(piece for block in section.blocks for piece in _shortened(block, rows, characters)),
            detail=not section.is_result,
        )
        for section in sections
    )
    body = markdown.render(
        Document(title=_cut(document.title, characters), sections=short, json="{}"), RenderOptions(detail=True)
    )
    return f"{MARKER}\n{body}"


def _shortened(block: Block, rows: int, characters: int) -> tuple[Block, ...]:
    if isinstance(block, Paragraph) and block.role == "command":
        return (block,)
    if isinstance(block, Paragraph):
        return (replace(block, text=_cut(block.text, characters)),)
    if not isinstance(block, Table):
        return (block,)
    table = replace(
        block,
        caption=_cut(block.caption, characters),
        rows=tuple(tuple(_short_value(value, characters) for value in row) for row in block.rows[:rows]),
    )
    left_out = len(block.rows) - len(table.rows)
    return (table, Paragraph(text=f"{left_out} more rows are in the JSON report.")) if left_out else (table,)


def _short_value(value: Value, characters: int) -> Value:
    return _cut(value, characters) if isinstance(value, str) else value


def _cut(written: str, characters: int) -> str:
    """`written` without the middle of a very long text."""
    half = characters // 2
    return written if len(written) <= characters else f"{written[:half]}...{written[-half:]}"


RENDERER = Renderer("github", (".github.md",), "Markdown for a pull request, shortened to GitHub's limits", render)
