"""What a judgement is made of: the verdict, the sentences and the table behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.document import Head, Table, Value
from profiler_kit.records.families import family_words
from profiler_kit.units import Unit

Verdict = Literal["holds", "fails", "holds in part", "needs CUDA", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of one claim: the verdict, sentences with the figures behind it, and the figures as a table."""

    verdict: Verdict
    sentences: tuple[str, ...] = ()
    table: Table | None = None


def all_or_some(shown: Sequence[bool]) -> Verdict:
    """The verdict on something shown in each of several cases, in some, or in none."""
    if all(shown):
        return "holds"
    return "holds in part" if any(shown) else "fails"


def make_table(
    name: str, caption: str, titles: Sequence[str], rows: Sequence[tuple[Value, ...]], units: Sequence[Unit]
) -> Table:
    """A table whose columns are named and typed in order."""
    heads = tuple(Head(key=title, title=title, unit=unit) for title, unit in zip(titles, units, strict=True))
    return Table(name=name, caption=caption, heads=heads, rows=tuple(rows))


def kernel_words(family: str | None) -> str | None:
    """A kernel family in a person's words; unknown stays unknown."""
    return None if family is None else family_words(family)


def percent(share: float | None) -> float | None:
    """A share as a percentage; unknown stays unknown."""
    return None if share is None else 100 * share


def percent_range(shares: Sequence[float]) -> str:
    """The lowest and the highest of `shares` as text."""
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
