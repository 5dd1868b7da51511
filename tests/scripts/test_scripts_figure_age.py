"""The list of published figures that are older than their code: dates, sections, and the table of the repository."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from profiler_kit.errors import UsageError
from scripts.docs.figure_age import ROOT, Published, age_of, ages, figures_date, page, read_table

PAGE = "# Title\nMade in 2020.\n\n## Speed\n\n| 10 | ms |\n\n### Details\n\n20 ms\n\n## Size\n\n5 MB\n\n## Words\n\nNone.\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A page of day 1, code of days 1, 3 and 4, and a second figure of the page of day 5; day 1 is 2001-01-01."""
    commit(tmp_path, 1, {"page.md": PAGE, "room/code.py": "1", "record.json": "{}", "other.py": "1"})
    commit(tmp_path, 3, {"room/code.py": "3"})
    commit(tmp_path, 4, {"room/more.py": "4"})
    commit(tmp_path, 5, {"page.md": PAGE.replace("20 ms", "25 ms").replace("None", "Some")})
    return tmp_path


def commit(root: Path, day: int, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    date = f"2001-01-0{day}T00:00:00+00:00"
    identity = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t"}
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run(
            ["git", *words], cwd=root, check=True,
            env={**os.environ, **identity, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date},
        )  # fmt: skip


def entry(file: str, section: str = "", code: str = "room") -> Published:
    return Published(file=file, section=section, code=(code,), made_by="make it")


@pytest.mark.parametrize(("section", "day"), [("", 5), ("Title", 5), ("Speed", 5), ("Details", 5), ("Size", 1)])
def test_the_newest_line_with_digits_dates_a_section(section: str, day: int, repository: Path) -> None:
    assert figures_date(entry("page.md", section), repository).day == day


def test_changes_of_code_after_the_figures_are_counted(repository: Path) -> None:
    (repository / "page.md").write_text(
        PAGE
    )  # as on the first day: the newest figure is of day 1 in the lines that stayed
    assert age_of(entry("record.json"), repository).commits == 2
    assert age_of(entry("record.json", code="other.py"), repository).commits == 0
    (repository / "record.json").write_text(json.dumps({"created": "2001-01-03T12:00:00+00:00"}))
    age = age_of(entry("record.json"), repository)
    assert (age.figures.day, age.code.day, age.commits) == (3, 4, 1)


def test_only_older_figures_are_listed_most_commits_first(repository: Path) -> None:
    (repository / "new.json").write_text(json.dumps({"created": "2001-01-03T12:00:00+00:00"}))
    table = [entry("new.json"), entry("page.md"), entry("record.json")]
    older = ages(table, repository)
    assert [age.published.file for age in older] == ["record.json", "new.json"]
    assert len(page(older).splitlines()) == 2 + len(older)


@pytest.mark.parametrize(
    "published",
    [entry("none.md"), entry("page.md", "Nothing"), entry("page.md", "Words"), entry("page.md", code="none")],
)
def test_an_entry_of_nothing_is_a_usage_error(published: Published, repository: Path) -> None:
    with pytest.raises(UsageError) as refused:
        age_of(published, repository)
    assert refused.value.hint


def test_each_record_and_picture_is_in_the_table() -> None:
    """Recordings (.jsonl) are data, not figures."""
    files = {path for folder in ("measured", "images") for path in (ROOT / "docs" / folder).iterdir()}
    published = {path.relative_to(ROOT).as_posix() for path in files if path.suffix in (".json", ".md", ".png")}
    assert published <= {published.file for published in read_table()}


def test_the_table_names_what_exists() -> None:
    table = read_table()
    assert len({published.name for published in table}) == len(table)
    for published in table:
        assert [path for path in (published.file, *published.code) if not (ROOT / path).exists()] == []
        modules = re.findall(r"python -m (\S+)", published.made_by)
        assert [module for module in modules if importlib.util.find_spec(module.rstrip(";")) is None] == []
        if published.section:
            assert f"# {published.section}" in (ROOT / published.file).read_text()
