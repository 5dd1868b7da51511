"""The judgment of one claim: a verdict, the sentences that support it and a table of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.document import Head, Table, Value
from profiler_kit.records.families import family_name
from profiler_kit.units import Unit

Verdict = Literal["True", "False", "Partly", "Needs CUDA", "Not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """The result for one claim. `sentences` state the figures behind the verdict; `table` lists all of them."""

    verdict: Verdict
    sentences: tuple[str, ...] = ()
    table: Table | None = None


def combine_cases(confirmed: Sequence[bool]) -> Verdict:
    """Return "True" if every case confirms the claim, "Partly" if some do, "False" if none does."""
    if all(confirmed):
        return "True"
    return "Partly" if any(confirmed) else "False"


def make_table(
    name: str, caption: str, titles: Sequence[str], rows: Sequence[tuple[Value, ...]], units: Sequence[Unit]
) -> Table:
    """Build a table; `titles` and `units` describe its columns in order."""
    heads = tuple(Head(key=title, title=title, unit=unit) for title, unit in zip(titles, units, strict=True))
    return Table(name=name, caption=caption, heads=heads, rows=tuple(rows))


def kernel_words(family: str | None) -> str | None:
    """Describe a kernel family in words; None stays None."""
    return None if family is None else family_name(family)


def percent(share: float | None) -> float | None:
    """Convert a share to a percentage; None stays None."""
    return None if share is None else 100 * share


def percent_range(shares: Sequence[float]) -> str:
    """Format the lowest and the highest of `shares`, for example ``0.5 to 2.0 %``."""
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
