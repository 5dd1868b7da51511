"""Which published figure is older than the code that made it: `python -m scripts.docs.figure_age`.

`published_figures.yaml` says which code each figure depends on, and how to make it again. Needs the history of the repository.
Commits say that code changed, not that a figure did: the list says where to look, and the exit status is 0 also with old figures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import yaml

from profiler_kit import process
from profiler_kit.errors import KitError, UsageError

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = Path(__file__).parent / "published_figures.yaml"
HEADING: Final = re.compile(r"^#+ (?P<title>.*)$")
DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Figures in a file, or in the section `section` of a page; the `code` they depend on; the command that makes them again."""

    file: str
    section: str
    code: tuple[str, ...]
    made_by: str

    @property
    def name(self) -> str:
        """The file and the section."""
        return f"{self.file}#{self.section}" if self.section else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The date of published figures, the date of the last change of their code, and the commits to it since the figures."""

    published: Published
    figures: datetime
    code: datetime
    commits: int


def read_table(table: Path = TABLE) -> tuple[Published, ...]:
    """The published figures of the table."""
    entries = yaml.safe_load(table.read_text(encoding="utf-8"))
    return tuple(_published(**entry) for entry in entries)


def _published(figures: str, code: list[str], made_by: str) -> Published:
    file, _, section = figures.partition("#")
    return Published(file=file, section=section, code=tuple(code), made_by=made_by)


def ages(table: Sequence[Published], root: Path = ROOT) -> list[Age]:
    """The age of each entry whose code changed after it, most commits first.

    Raises UsageError for a file, section or room that does not exist.
    """
    older = (age for published in table if (age := age_of(published, root)).commits)
    return sorted(older, key=lambda age: -age.commits)


def age_of(published: Published, root: Path = ROOT) -> Age:
    """The age of one entry. Raises UsageError for a file, section or room that does not exist."""
    missing = [path for path in (published.file, *published.code) if not (root / path).exists()]
    if missing:
        raise UsageError(f"no such file: {missing[0]}", where=TABLE.name, hint=f"correct the entry of {published.name}")
    figures = figures_date(published, root)
    commits = _git(root, "log", "--format=%at", "--", *published.code).split()
    dates = [_date(seconds) for seconds in commits]
    return Age(published=published, figures=figures, code=max(dates), commits=sum(date > figures for date in dates))


def figures_date(published: Published, root: Path = ROOT) -> datetime:
    """When the figures were made: the date in a record, of the newest line with digits of a page, or of another file."""
    file = root / published.file
    if file.suffix == ".md":
        lines = _figure_lines(file, published.section)
        written = _line_dates(root, published.file)
        return max(written[line] for line in lines)
    if file.suffix == ".json" and (created := _created(json.loads(file.read_text(encoding="utf-8")))) is not None:
        return created
    return _date(_git(root, "log", "-1", "--format=%at", "--", published.file))


def _created(record: Any) -> datetime | None:
    text = record.get("created") if isinstance(record, dict) else None
    return datetime.fromisoformat(text) if text else None


def _figure_lines(page: Path, section: str) -> list[int]:
    """The numbers of the lines with digits of the section, from 1; of the whole page without one. Raises UsageError."""
    lines = list(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    if section:
        lines = list(_section_lines(lines, section))
    found = [number for number, line in lines if DIGIT.search(line)]
    if not found:
        raise UsageError(
            f"no section {section!r} with figures", where=str(page), hint=f"correct the entry in {TABLE.name}"
        )
    return found


def _section_lines(lines: Sequence[tuple[int, str]], section: str) -> Iterator[tuple[int, str]]:
    """The lines below the heading `section`, up to the next heading of its level or above."""
    level = 0
    for number, line in lines:
        heading = HEADING.match(line)
        depth = line.find(" ") if heading else 0
        if level and heading and depth <= level:
            return
        if level:
            yield number, line
        elif heading and heading["title"] == section:
            level = depth


def _line_dates(root: Path, file: str) -> dict[int, datetime]:
    """The date of each line of `file`, by its number from 1; now for a line that is not committed."""
    blame = _git(root, "blame", "--line-porcelain", "--", file)
    times = re.findall(r"^author-time (\d+)$", blame, re.MULTILINE)
    return dict(enumerate(map(_date, times), 1))


def _git(root: Path, *words: str) -> str:
    outcome = process.run(["git", *words], cwd=root)
    if not outcome.ok:
        raise KitError(
            f"git failed: {outcome.last_log_line}", where=str(root), hint="run it in a clone of the repository"
        )
    return outcome.stdout


def _date(seconds: str) -> datetime:
    return datetime.fromtimestamp(int(seconds), tz=timezone.utc)


def page(older: Sequence[Age]) -> str:
    """The table of older figures, in Markdown."""
    rows = [
        f"| {age.published.name} | {age.figures:%Y-%m-%d} | {age.code:%Y-%m-%d} | {age.commits} | `{age.published.made_by}` |"
        for age in older
    ]
    return "\n".join(["| figures | of | code of | commits since | made by |", "|---|---|---|--:|---|", *rows])


def main() -> int:
    """Print the table of figures that are older than their code."""
    argparse.ArgumentParser(
        description="List published figures that are older than the code that made them."
    ).parse_args()
    try:
        table = read_table()
        older = ages(table)
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(page(older))
    print(f"\n{len(older)} of {len(table)} published figures are older than their code")
    return 0


if __name__ == "__main__":
    sys.exit(main())
