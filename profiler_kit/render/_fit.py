"""Fit a table to a width: hide less important columns, shorten names, continue below. Numbers are never cut."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.document import Head, Table
from profiler_kit.render._text import cell, is_right_aligned, one_line

GAP: Final = "  "
READABLE_NAME: Final = 32  # columns are hidden before names get shorter than this
SHORTEST_NAME: Final = 12
LONGEST_SIDE: Final = 1000  # characters at each end of a text, more than the width of any terminal
BAR_RANK: Final = 2
ELLIPSIS: Final = "..."


@dataclass(frozen=True, slots=True)
class Cells:
    """A table's text by column: index in the table, title, width, cells (totals last), and whether it is right-aligned."""

    indices: tuple[int, ...]
    titles: tuple[str, ...]
    widths: tuple[int, ...]
    columns: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]

    @property
    def span(self) -> int:
        """Width of a line."""
        return _span(self.widths)

    def title_lines(self) -> list[list[str]]:
        """The titles, wrapped at spaces, so that they do not widen the columns."""
        return [
            textwrap.wrap(one_line(title), width, break_long_words=False, break_on_hyphens=False) or [""]
            for title, width in zip(self.titles, self.widths, strict=True)
        ]

    def padded(self, row: Sequence[str]) -> list[str]:
        """`row`, a text for each column, padded to the widths of the columns."""
        spaces = [" " * (width - display_width(text)) for text, width in zip(row, self.widths, strict=True)]
        return [s + t if right else t + s for s, t, right in zip(spaces, row, self.right, strict=True)]


def fit(table: Table, width: int, *, bar: int = 0) -> tuple[list[Cells], list[str]]:
    """`table`'s text in pieces no wider than `width`, and the titles of hidden columns.

    `bar`: width to leave free in a table of shares. Only columns of rank `BAR_RANK` and higher are hidden for it.

    Several pieces are a table that continues below, with its first column repeated. This is the last resort.
    """
    rows = (*table.rows, *table.totals)
    texts = [[_without_middle(cell(row[i], head)) for row in rows] for i, head in enumerate(table.heads)]
    texts = [_guided(column) if head.name else column for head, column in zip(table.heads, texts, strict=True)]
    natural = [_natural(head.title, column) for head, column in zip(table.heads, texts, strict=True)]
    floor = [
        min(size, max(READABLE_NAME, title_width(head.title))) if head.name else size
        for head, size in zip(table.heads, natural, strict=True)
    ]
    visible = list(range(len(table.heads)))
    hidden: list[int] = []

    def span() -> int:
        return _span([floor[i] for i in visible])

    def hide(limit: int, optional: Callable[[Head], bool]) -> None:
        while span() > limit and (candidates := [i for i in visible if optional(table.heads[i])]):
            least_important = max(candidates, key=lambda i: (table.heads[i].rank, i))
            visible.remove(least_important)
            hidden.append(least_important)

    hide(width, lambda head: head.rank > 0)
    if any(table.heads[i].share for i in visible):
        hide(width - bar, lambda head: head.rank >= BAR_RANK and not head.share)
        if span() <= width - bar:
            width -= bar
    # a narrow column may fit where a wide one did not
    for i in sorted(hidden, key=lambda i: (table.heads[i].rank, i)):
        if _span([floor[j] for j in visible] + [floor[i]]) <= width:
            visible = sorted([*visible, i])
            hidden.remove(i)
    sizes = _sizes(visible, natural, floor, [head.name for head in table.heads], width)

    is_text = [not is_right_aligned(table, i) for i in range(len(table.heads))]

    def cells(indices: list[int]) -> Cells:
        limits = _limits(indices, sizes, is_text, width)
        columns = [tuple(shorten(t, limits[i]) if is_text[i] else t for t in texts[i]) for i in indices]
        return Cells(
            indices=tuple(indices),
            titles=tuple(table.heads[i].title for i in indices),
            widths=tuple(_natural(table.heads[i].title, list(c)) for i, c in zip(indices, columns, strict=True)),
            columns=tuple(columns),
            right=tuple(is_right_aligned(table, i) for i in indices),
        )

    return [cells(piece) for piece in _pieces(visible, sizes, width)], [table.heads[i].title for i in sorted(hidden)]


def guide_length(name: str) -> int:
    """Number of characters of the guide lines before `name`."""
    return len(name) - len(name.lstrip("│├└ "))


def _without_middle(written: str) -> str:
    """`written` without the middle of a text that no terminal shows, so that its width is measured quickly."""
    return written if len(written) <= 2 * LONGEST_SIDE else f"{written[:LONGEST_SIDE]}{written[-LONGEST_SIDE:]}"


def _guided(names: list[str]) -> list[str]:
    """`names` of a tree with guide lines that end at the last child."""
    guided = []
    continued: set[int] = set()  # positions of the lines that continue in the row below
    for name in reversed(names):
        guide = name[: guide_length(name)]
        lines = "".join(char if i in continued else {"├": "└"}.get(char, " ") for i, char in enumerate(guide))
        continued = {i for i, char in enumerate(guide) if char == "├" or (char == "│" and i in continued)}
        guided.append(lines + name[len(guide) :])
    return guided[::-1]


def _limits(indices: list[int], sizes: dict[int, int], is_text: list[bool], width: int) -> dict[int, int]:
    """The width of each column of a piece. A piece of one or two columns may still be too wide: texts are shortened."""
    limits = {i: sizes[i] for i in indices}
    for i in sorted((i for i in indices if is_text[i]), key=lambda i: -sizes[i]):
        excess = _span([limits[j] for j in indices]) - width
        if excess > 0:
            limits[i] = max(min(SHORTEST_NAME, limits[i]), limits[i] - excess)
    return limits


def display_width(written: str) -> int:
    """Width of `written` in terminal cells: 2 for wide East Asian characters, 0 for combining characters."""
    if written.isascii():  # nearly every cell
        return len(written)
    from rich.cells import cell_len

    return cell_len(written)


def title_width(title: str) -> int:
    """Width of a title wrapped at its spaces: the width of its longest word."""
    return max((display_width(word) for word in title.split()), default=0)


def shorten(written: str, width: int) -> str:
    """`written` in at most `width` cells, shortened in the middle. A number is removed completely or not at all."""
    if display_width(written) <= width:
        return written
    from rich.cells import chop_cells

    head = (width - len(ELLIPSIS) + 1) // 2
    tail = width - len(ELLIPSIS) - head
    before, after = chop_cells(written, head)[0], chop_cells(written[::-1], tail)[0][::-1]
    if before and before[-1].isdecimal() and written[len(before)].isdecimal():
        before = re.sub(r"\d+\Z", "", before)
    if after and after[0].isdecimal() and written[-len(after) - 1].isdecimal():
        after = re.sub(r"\A\d+", "", after)
    return f"{before}{ELLIPSIS}{after}"


def _natural(title: str, column: list[str]) -> int:
    return max([title_width(title), *(display_width(text) for text in column)])


def _span(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * max(0, len(sizes) - 1)


def _sizes(visible: list[int], natural: list[int], floor: list[int], is_name: list[bool], width: int) -> dict[int, int]:
    """The width of each visible column. Names grow into spare space, or shrink if space is missing."""
    sizes = {i: floor[i] for i in visible}
    spare = width - _span(list(sizes.values()))
    for i in [i for i in visible if is_name[i]]:
        change = min(spare, natural[i] - sizes[i]) if spare > 0 else max(spare, min(0, SHORTEST_NAME - sizes[i]))
        sizes[i] += change
        spare -= change
    return sizes


def _pieces(visible: list[int], sizes: dict[int, int], width: int) -> list[list[int]]:
    if not visible:
        return []
    pieces = [[visible[0]]]
    for i in visible[1:]:
        if _span([sizes[j] for j in pieces[-1]] + [sizes[i]]) > width and len(pieces[-1]) > 1:
            pieces.append([visible[0]])
        pieces[-1].append(i)
    return pieces
