"""What a rule is: a name, what it looks for, and a function from a report to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from profiler_kit.records.report import Finding, Report


@dataclass(frozen=True, slots=True)
class Rule:
    """One drop-in of `diagnose/rules/`.

    `name` is the file's name and stands in every finding. `doc` is Markdown for people: what fires it, at which threshold,
    and what it does not say. `check` takes any report, also one without counts, without runs or with nothing but failures;
    it yields nothing where a number it needs is missing, and never raises.
    """

    name: str
    doc: str
    check: Callable[[Report], Iterable[Finding]]
