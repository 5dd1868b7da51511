"""Writes the reference pages of docs/ from the code: `python scripts/make_docs.py`; with `--check`, fails where one is stale.

A page is an entry of `PAGES`: its file's name and the function that returns its text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from profiler_kit.diagnose import rules_page
from profiler_kit.render.markdown import code, escape
from profiler_kit.report.columns import TABLES

DOCS = Path(__file__).resolve().parent.parent / "docs"
GENERATED = "<!-- Written by scripts/make_docs.py. Change the code it is read from, then run the script. -->"

TABLE_DOCS = {
    "layers": "One row per owner of work: modules, `(loss)`, `(optimizer)`, and `(unattributed)` device time. Figures are the "
    "owner's own, so the rows add up; `total_*` columns include descendants. `layers.csv` holds this table.",
    "ops": "One row per op (in data: per op and phase); the same total as the layers', cut the other way. "
    "`count --by op -o FILE.csv` writes it.",
    "runs": "One row per configuration.",
    "phases": "One row per phase of a step.",
    "kernels": "One row per kernel (on a CPU: per operator).",
    "findings": "One row per finding.",
    "cost": "What one step asks for, counted.",
    "memory": "The step's peak, predicted and measured, by what it is for.",
    "roofline": "One row per phase: the least time that its counted work can take under a roof "
    "([what that means](counting.md#bytes-intensity-and-the-roofline)).",
    "ceilings": "What the device was measured to reach, beside its datasheet (`env`).",
    "devices": "The devices that torch sees (`env`).",
    "configurations": "The cuDNN configurations that mean something on the device (`env`).",
    "packages": "What is installed (`env`).",
    "workspaces": "The ops of the probe step that used most scratch memory.",
    "uncounted": "Ops that no formula covers: the FLOPs are a lower bound by them.",
}
PLACES = {"both": "", "page": "people", "data": "programs"}


def columns_page() -> str:
    """The reference of every table's columns."""
    parts = [
        "# Columns",
        GENERATED,
        "`key` names the column in CSV and data frames, `title` in what people read. Base units are what CSV, data frames and "
        "JSON hold: bytes, ns, FLOPs; percent is of 100. *For* says who sees a column where that is not everybody. A column "
        "that is empty for a report is not shown; on a narrow terminal those of highest *rank* are left out first.",
    ]
    for name, columns in TABLES.items():
        lines = ["| key | title | unit | for | rank | what it is |", "|---|---|---|---|--:|---|"]
        for column in columns:
            fields = (code(column.key), escape(column.title), column.unit, PLACES[column.place], str(column.rank or ""))
            lines.append(f"| {' | '.join(fields)} | {escape(column.doc)} |")
        parts += [f"## {name}", TABLE_DOCS[name], "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "columns.md": columns_page,
    "rules.md": rules_page,
}


def main() -> int:
    """Writes the pages, or compares them; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page differs from the code")
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        file = DOCS / name
        text = page()
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(f"docs/{name}")
        if not check:
            DOCS.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run: python scripts/make_docs.py", file=sys.stderr)
        return 1
    if stale:
        print(f"wrote {', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
