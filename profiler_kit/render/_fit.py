"""Makes a table fit a width: leaves out unimportant columns, shortens names, continues below. Numbers stay whole."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.document import Table
from profiler_kit.render._text import cell, is_right_aligned

GAP: Final = 2
# A name is readable at this length; columns are given up before names get shorter.
COMFORT: Final = 32
SHORTEST: Final = 12
ELLIPSIS: Final = "..."


@dataclass(frozen=True, slots=True)
class Cells:
    """A table's text by column: its title, its width, its cells (totals last), and whether they stand flush right."""

    titles: tuple[str, ...]
    widths: tuple[int, ...]
    columns: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]


def fit(table: Table, width: int) -> tuple[list[Cells], list[str]]:
    """`table`'s text in pieces no wider than `width`, and the titles of columns left out.

    More than one piece is a table continued below, its first column repeated: the last resort before a cell is too wide.
    """
    rows = (*table.rows, *table.totals)
    texts = [[cell(row[i], head) for row in rows] for i, head in enumerate(table.heads)]
    natural = [_natural(head.title, column) for head, column in zip(table.heads, texts, strict=True)]
    floor = [
        min(size, max(COMFORT, title_width(head.title))) if head.name else size
        for head, size in zip(table.heads, natural, strict=True)
    ]
    kept = list(range(len(table.heads)))
    dropped: list[int] = []
    while _span([floor[i] for i in kept]) > width:
        spare = [i for i in kept if table.heads[i].rank > 0]
        if not spare:
            break
        worst = max(spare, key=lambda i: (table.heads[i].rank, i))
        kept.remove(worst)
        dropped.append(worst)
    for i in sorted(
        dropped, key=lambda i: (table.heads[i].rank, i)
    ):  # a narrow column may fit where a wide one did not
        if _span([floor[j] for j in kept] + [floor[i]]) <= width:
            kept = sorted([*kept, i])
            dropped.remove(i)
    sizes = _sizes(kept, natural, floor, [head.name for head in table.heads], width)

    def cells(chosen: list[int]) -> Cells:
        columns = [tuple(shorten(t, sizes[i]) if table.heads[i].name else t for t in texts[i]) for i in chosen]
        return Cells(
            titles=tuple(table.heads[i].title for i in chosen),
            widths=tuple(_natural(table.heads[i].title, list(c)) for i, c in zip(chosen, columns, strict=True)),
            columns=tuple(columns),
            right=tuple(is_right_aligned(table, i) for i in chosen),
        )

    return [cells(piece) for piece in _pieces(kept, sizes, width)], [table.heads[i].title for i in sorted(dropped)]


def display_width(written: str) -> int:
    """Terminal cells `written` takes: wide East Asian characters two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in written
    )


def padded(written: str, width: int, right: bool) -> str:
    """`written` filled up to `width` cells, flush right or left."""
    space = " " * (width - display_width(written))
    return space + written if right else written + space


def title_width(title: str) -> int:
    """The width of a title wrapped at its spaces: its longest word's."""
    return max((display_width(word) for word in title.split()), default=0)


def shorten(written: str, width: int) -> str:
    """`written` in at most `width` cells, its middle left out; a number is left out whole or not at all."""
    if display_width(written) <= width:
        return written
    head = (width - len(ELLIPSIS) + 1) // 2
    tail = width - len(ELLIPSIS) - head
    before, after = _prefix(written, head), _prefix(written[::-1], tail)[::-1]
    if before and before[-1].isdecimal() and written[len(before)].isdecimal():
        before = re.sub(r"\d+\Z", "", before)
    if after and after[0].isdecimal() and written[-len(after) - 1].isdecimal():
        after = re.sub(r"\A\d+", "", after)
    return f"{before}{ELLIPSIS}{after}"


def _prefix(written: str, width: int) -> str:
    end, used = 0, 0
    for char in written:
        used += display_width(char)
        if used > width:
            break
        end += 1
    return written[:end]


def _natural(title: str, column: list[str]) -> int:
    return max([title_width(title), *(display_width(text) for text in column)])


def _span(sizes: list[int]) -> int:
    return sum(sizes) + GAP * max(0, len(sizes) - 1)


def _sizes(kept: list[int], natural: list[int], floor: list[int], is_name: list[bool], width: int) -> dict[int, int]:
    """The width of each kept column: names share what is left over, or give what is missing."""
    sizes = {i: floor[i] for i in kept}
    left = width - _span(list(sizes.values()))
    for i in [i for i in kept if is_name[i]]:
        more = min(left, natural[i] - sizes[i]) if left > 0 else max(left, min(0, SHORTEST - sizes[i]))
        sizes[i] += more
        left -= more
    return sizes


def _pieces(kept: list[int], sizes: dict[int, int], width: int) -> list[list[int]]:
    if not kept:
        return []
    pieces = [[kept[0]]]
    for i in kept[1:]:
        if _span([sizes[j] for j in pieces[-1]] + [sizes[i]]) > width and len(pieces[-1]) > 1:
            pieces.append([kept[0]])
        pieces[-1].append(i)
    return pieces
