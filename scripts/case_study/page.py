"""Render the claims and their judgments: for the terminal, and as docs/case-studies.md (page.md filled with figures)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.records.document import Table
from profiler_kit.units import text
from scripts.case_study.claims import CLAIMS, Claim
from scripts.case_study.cost_verdicts import make_ratio_table
from scripts.case_study.figures import Figures
from scripts.case_study.judgment import Judgment

TEMPLATE: Final = Path(__file__).with_name("page.md")
_SLOT: Final = re.compile(r"^\{\{(?P<name>\w+)(?: (?P<letter>\w))?\}\}$", re.MULTILINE)


def terminal(figures: Figures, letters: Sequence[str]) -> str:
    """Return the claims of `letters` as plain text: statement, source, figures and verdict."""
    blocks = [measured_on(figures)]
    for claim in CLAIMS:
        if claim.letter not in letters:
            continue
        judgment = claim.judge(figures)
        lines = [f"({claim.letter}) {claim.title}", f"    claim:  {claim.statement}", f"    source: {claim.source}"]
        if judgment.table is not None:
            lines += ["", judgment.table.caption, _grid(judgment.table, "simple"), ""]
        lines += [f"    {sentence}" for sentence in judgment.sentences]
        blocks.append("\n".join([*lines, f"    verdict: {judgment.verdict}"]))
    ratio = make_ratio_table(figures)
    if ratio is not None and ratio.rows:
        blocks.append(f"{ratio.caption}\n{_grid(ratio, 'simple')}")
    if figures.problems:
        blocks.append("\n".join(["Failed measurements:", *(f"    {problem}" for problem in figures.problems)]))
    return "\n\n".join(blocks) + "\n"


def markdown(figures: Figures) -> str:
    """Return the page: page.md with its slots (``{{summary}}``, ``{{verdict a}}``, ``{{figures a}}`` …) filled from `figures`."""
    by_letter = {claim.letter: (claim, claim.judge(figures)) for claim in CLAIMS}

    def fill(match: re.Match[str]) -> str:
        name, letter = match["name"], match["letter"]
        if letter is not None:
            claim, judgment = by_letter[letter]
            return _verdict(claim, judgment) if name == "verdict" else _evidence(judgment)
        return {"summary": _summary, "environment": measured_on, "problems": _problems, "time": _time}[name](figures)

    return _SLOT.sub(fill, TEMPLATE.read_text())


def measured_on(figures: Figures) -> str:
    """Describe device, versions, input size and measuring time in two sentences."""
    environment = figures.environment
    if environment is None:
        return "There are no measurements yet."
    parts = [environment.device_name, f"torch {environment.torch}"]
    parts += [f"cuDNN {environment.cudnn}"] if environment.cudnn else []
    parts.append(f"Python {environment.python}")
    return (
        f"Measured on {', '.join(parts)}. Inputs of V0 and V1: {figures.batch}x3x{figures.size}x{figures.size}. "
        f"Measuring time: {text(figures.budget_s, 'count')} s per model."
    )


def _verdict(claim: Claim, judgment: Judgment) -> str:
    return f"**Verdict: {judgment.verdict}.**\n\n*Claim:* {claim.statement} (Source: {claim.source}.)"


def _evidence(judgment: Judgment) -> str:
    blocks = [f"- {sentence}" for sentence in judgment.sentences]
    if judgment.table is not None:
        blocks += ["", _captioned(judgment.table)]
    return "\n".join(blocks).strip() or "There are no measurements yet."


def _summary(figures: Figures) -> str:
    rows = [(f"[{c.letter}](#{anchor(c.letter)})", c.title, c.judge(figures).verdict) for c in CLAIMS]
    return tabulate(rows, headers=("", "Claim", "Verdict"), tablefmt="github")


def anchor(letter: str) -> str:
    """Return the link target of a claim's heading on the page."""
    return f"claim-{letter}"


def _time(figures: Figures) -> str:
    table = make_ratio_table(figures)
    return _captioned(table) if table is not None and table.rows else "There are no measurements yet."


def _problems(figures: Figures) -> str:
    return "\n".join(f"- {problem}" for problem in figures.problems) or "None. Every requested run produced samples."


def _captioned(table: Table) -> str:
    return f"{table.caption}:\n\n{_grid(table, 'github')}"


def _grid(table: Table, style: str) -> str:
    rows = [[text(value, head.unit) for value, head in zip(row, table.heads, strict=True)] for row in table.rows]
    numeric = [head.unit not in ("text", "bool") for head in table.heads]
    return tabulate(
        rows,
        headers=[head.title for head in table.heads],
        tablefmt=style,
        colalign=["right" if number else "left" for number in numeric],
        disable_numparse=True,
    )
