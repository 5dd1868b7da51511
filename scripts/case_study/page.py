"""Claims and judgements as text: on a terminal, and as the page of the documentation (page.md filled in from figures)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.records.document import Table
from profiler_kit.units import text
from scripts.case_study.claims import CLAIMS, Claim
from scripts.case_study.figures import Figures
from scripts.case_study.judgement import Judgement
from scripts.case_study.judges_where import time_ratio

TEMPLATE: Final = Path(__file__).with_name("page.md")
_SLOT: Final = re.compile(r"^\{\{(?P<what>\w+)(?: (?P<letter>\w))?\}\}$", re.MULTILINE)


def terminal(figures: Figures, letters: Sequence[str]) -> str:
    """The claims of `letters`, each with its source, the measured figures and the verdict, as plain text."""
    blocks = [where_measured(figures)]
    for claim in CLAIMS:
        if claim.letter not in letters:
            continue
        judgement = claim.judge(figures)
        lines = [f"({claim.letter}) {claim.title}", f"    said: {claim.said}", f"    by:   {claim.source}"]
        if judgement.table is not None:
            lines += ["", judgement.table.caption, _grid(judgement.table, "simple"), ""]
        lines += [f"    {sentence}" for sentence in judgement.sentences]
        blocks.append("\n".join([*lines, f"    verdict: {judgement.verdict}"]))
    ratio = time_ratio(figures)
    if ratio is not None and ratio.rows:
        blocks.append(f"{ratio.caption}\n{_grid(ratio, 'simple')}")
    if figures.problems:
        blocks.append("\n".join(["Not measured:", *(f"    {problem}" for problem in figures.problems)]))
    return "\n\n".join(blocks) + "\n"


def markdown(figures: Figures) -> str:
    """The page: page.md with its slots (``{{summary}}``, ``{{verdict a}}``, ``{{figures a}}`` …) filled from `figures`."""
    by_letter = {claim.letter: (claim, claim.judge(figures)) for claim in CLAIMS}

    def fill(match: re.Match[str]) -> str:
        what, letter = match["what"], match["letter"]
        if letter is not None:
            claim, judgement = by_letter[letter]
            return _verdict(claim, judgement) if what == "verdict" else _evidence(judgement)
        return {"summary": _summary, "environment": where_measured, "problems": _problems, "time": _time}[what](figures)

    return _SLOT.sub(fill, TEMPLATE.read_text())


def where_measured(figures: Figures) -> str:
    """One sentence on device, versions and sizes."""
    where = figures.environment
    if where is None:
        return "Nothing has been measured yet."
    parts = [where.device_name, f"torch {where.torch}"]
    parts += [f"cuDNN {where.cudnn}"] if where.cudnn else []
    return (
        f"Measured on {', '.join(parts)}, Python {where.python}; networks at batch {figures.batch} of "
        f"3x{figures.size}x{figures.size}, {text(figures.budget_s, 'count')} s of measuring per model."
    )


def _verdict(claim: Claim, judgement: Judgement) -> str:
    return f"*Said:* {claim.said} ({claim.source})\n\n**Verdict: {judgement.verdict}.**"


def _evidence(judgement: Judgement) -> str:
    blocks = [f"- {sentence}" for sentence in judgement.sentences]
    if judgement.table is not None:
        blocks += ["", _captioned(judgement.table)]
    return "\n".join(blocks).strip() or "No figures yet."


def _summary(figures: Figures) -> str:
    rows = [(f"[{c.letter}](#{anchor(c.letter)})", c.title, c.judge(figures).verdict) for c in CLAIMS]
    return tabulate(rows, headers=("", "claim", "verdict"), tablefmt="github")


def anchor(letter: str) -> str:
    """The link target of a claim's heading on the page."""
    return f"claim-{letter}"


def _time(figures: Figures) -> str:
    table = time_ratio(figures)
    return _captioned(table) if table is not None and table.rows else "No figures yet."


def _problems(figures: Figures) -> str:
    return (
        "\n".join(f"- {problem}" for problem in figures.problems) or "None: every run that was asked for gave samples."
    )


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
