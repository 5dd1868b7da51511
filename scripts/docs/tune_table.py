"""Write the table of tuned networks: `python -m scripts.docs.tune_table tune_*.json [--page docs/tutorial_tune.md]`.

Each file is a result that `tune -o` saved. Without `--page`, the table is printed. With it, the table replaces the part of the
page between the two markers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.serde import read_saved
from profiler_kit.records.tuning import Contribution, Tuning, TuningAnswer, error_text, figure_words
from profiler_kit.render.markdown import code, escape
from profiler_kit.units import DASH, text

BEGIN: Final = "<!-- tuned: begin -->"
END: Final = "<!-- tuned: end -->"
HEADER: Final = (
    "| network | use | saves | step | peak | error against float64 | without one setting | not used |\n"
    "|---|---|---|--:|--:|--:|---|---|"
)


def tune_table(files: Sequence[Path]) -> str:
    """The table of the results in `files`, with a sentence about their origin. Raises ReportError, UsageError."""
    tunings = [_read(file) for file in files]
    rows = [row for tuning in tunings for row in _rows(tuning)]
    return "\n".join([*_origins(tunings), "", HEADER, *rows])


def _read(file: Path) -> Tuning:
    saved = read_saved(file)
    if not isinstance(saved, Tuning):
        raise UsageError("not a result of tune", where=str(file), hint="give files that tune wrote with -o")
    return saved


def _origins(tunings: Sequence[Tuning]) -> Iterator[str]:
    devices = dict.fromkeys(
        f"{t.environment.device_name}, torch {t.environment.torch}" for t in tunings if t.environment is not None
    )
    yield (
        f"Measured on {'; '.join(devices)}. *Saves* is re-measured in fresh processes after the search, with its 95 % interval. "
        "*Without one setting* is the share that each setting saves beside the others; `~`: not established."
    )


def _rows(tuning: Tuning) -> Iterator[str]:
    """A row for each answer that is better than the baseline; one without an answer if there is none."""
    better = [answer for answer in tuning.answers if answer.outcome == "better" and answer.gain is not None]
    used = {change for answer in better for change in answer.changes}
    for answer in better:
        yield _row(tuning, _answer_cells(tuning, answer), used)
    if not better:
        before = tuning.baseline
        step = text(before.step_ns.median if before.step_ns else None, "ns")
        error = error_text(before.max_relative_error)
        yield _row(tuning, [tuning.outcome, DASH, step, text(before.peak_bytes, "bytes"), error, DASH], used)


def _row(tuning: Tuning, cells: Sequence[str], used: Collection[str]) -> str:
    shapes = ", ".join(tensor.text for tensor in tuning.target.inputs)
    name = f"{escape(tuning.target.name)}, {escape(shapes)} ({tuning.options.goal})"
    return f"| {' | '.join([name, *cells, '; '.join(_rejected(tuning, used)) or DASH])} |"


def _answer_cells(tuning: Tuning, answer: TuningAnswer) -> list[str]:
    assert answer.gain is not None
    before, after = tuning.baseline, answer.chosen
    return [
        ", ".join(code(change) for change in answer.changes),
        f"{answer.gain.saved_text} {figure_words(tuning.options.goal)}",
        _pair(*(text(side.step_ns.median if side.step_ns else None, "ns") for side in (before, after))),
        _pair(*(text(side.peak_bytes, "bytes") for side in (before, after))),
        _pair(*(error_text(side.max_relative_error) for side in (before, after))),
        "; ".join(_contribution(part) for part in answer.contributions),
    ]


def _pair(before: str, after: str) -> str:
    return f"{before} -> {after}"


def _contribution(part: Contribution) -> str:
    if part.gain is None:
        return f"{code(part.change)} {DASH}"
    mark = "" if part.gain.outcome in ("better", "worse") else "~"
    kind = "" if part.method == "leave-one-out" else " (incremental)"
    return f"{code(part.change)} {mark}{text(100 * (1 - part.gain.ratio), 'percent')}{kind}"


def _rejected(tuning: Tuning, used: Collection[str]) -> Iterator[str]:
    """The changes that no answer uses, by outcome."""
    last: dict[str, str] = {
        attempt.change: attempt.outcome for attempt in tuning.attempts if attempt.change not in used
    }
    words = {"same": "not sure", "accepted": "replaced", "better": "second best"}
    outcomes: dict[str, list[str]] = {}
    for change, outcome in last.items():
        outcomes.setdefault(words.get(outcome, outcome), []).append(code(change))
    for outcome, changes in outcomes.items():
        yield f"{outcome}: {', '.join(changes)}"


def page_with_table(page: str, table: str) -> str:
    """`page` with `table` between the markers. Raises UsageError without them."""
    head, begin, after = page.partition(BEGIN)
    _, end, tail = after.partition(END)
    if not begin or not end:
        raise UsageError("the page has no markers", hint=f"add the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(prog="python -m scripts.docs.tune_table", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON files that tune wrote with -o")
    parser.add_argument("--page", type=Path, help="page to write the table into")
    options = parser.parse_args(argv)
    try:
        table = tune_table(options.files)
        if options.page is None:
            print(table)
        else:
            page = page_with_table(options.page.read_text(encoding="utf-8"), table)
            options.page.write_text(page, encoding="utf-8")
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
