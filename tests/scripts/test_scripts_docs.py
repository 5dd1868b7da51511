"""The pages: what they show is what the commands print, what they name exists, and --check notices where not."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

import pytest

from profiler_kit.cli.commands import commands
from profiler_kit.cli.parser import build_parser
from profiler_kit.diagnosis.rules import disturbed
from profiler_kit.measurement import session, sweep, trials, visits
from profiler_kit.statistics import differences, noise, report_noise
from profiler_kit.statistics.trials import MIN_USEFUL_GAIN_PERCENT
from profiler_kit.worker import run as worker
from profiler_kit.worker import steps
from scripts.docs import make_docs

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
VERBS = "|".join(command.name for command in commands())
NAMED = re.compile(rf"`(?:python -m profiler_kit |profiler-kit )?(?P<verb>{VERBS}) (?P<rest>[^`]+)`")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)(?P<file>[^)#\s]+)(?:#[^)]*)?\)")


def command_lines(page: Path) -> list[str]:
    """Every `python -m profiler_kit …` in the page's code, continued lines joined, comments and prompts gone."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [
        found.split("  #")[0].strip()
        for found in re.findall(r"python -m profiler_kit ([^`\n|>]+)", text)
        if found.strip()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    targets = [found["file"] for found in LINK.finditer(page.read_text(encoding="utf-8"))]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_a_page_shows_are_understood(page: Path) -> None:
    for line in command_lines(page):
        words = [word for word in shlex.split(line.rstrip(").,;:"), comments=True) if word not in ("[...]", "...", "…")]
        if words and not words[0].startswith("-"):
            build_parser(words).parse_args(words)  # raises where a verb or an option does not exist


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_that_a_page_runs_exist(page: Path) -> None:
    modules = re.findall(r"python3? -m (scripts[.\w]*)", page.read_text(encoding="utf-8"))
    places = {module: ROOT.joinpath(*module.rstrip(".").split(".")) for module in modules}
    missing = [
        module
        for module, place in places.items()
        if not place.with_suffix(".py").is_file() and not (place / "__main__.py").is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_a_page_names_beside_a_verb_exist(page: Path) -> None:
    options = {command.name: argparse.ArgumentParser() for command in commands()}
    for command in commands():
        command.add_options(options[command.name])
    unknown = [
        f"{found['verb']} {option}"
        for found in NAMED.finditer(page.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", found["rest"])
        if option not in options[found["verb"]]._option_string_actions
    ]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_that_a_page_links_to_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = []
    for name, anchor in re.findall(r"\]\(([^):#\s]*\.md|)#([^)\s]+)\)", text):
        there = (page.parent / name).read_text(encoding="utf-8") if name else text
        headings = re.findall(r"^#+ (.+)$", FENCE.sub("", there), re.MULTILINE)
        anchors = re.findall(r'<a id="([^"]+)">', there)
        anchors += [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        if anchor not in anchors:
            missing.append(f"{name}#{anchor}")
    assert missing == []


def test_the_page_on_measuring_has_the_numbers_of_the_code() -> None:
    text = " ".join((ROOT / "docs" / "measuring.md").read_text(encoding="utf-8").split())
    said = (
        f"one process ahead for every {sweep.CORES_PER_PREPARED} cores, at most {sweep.MAX_PREPARED}",
        f"lie within {steps.STEADY_SPREAD:.0%} of each other".replace("%", " %"),
        f"at most {steps.MAX_WARMUP_STEPS} steps",
        f"{steps.MIN_STEPS} to {steps.MAX_STEPS}, without the profiler",
        f"{worker.TRACED_STEPS} **traced** steps (1 where a step takes a second)",
        f"at least {session.MIN_RUN_BUDGET_S:g} s for each configuration's first process",
        f"plus {differences.DRIFT_ALLOWANCE:.1%} for the drift of clocks ({report_noise.REPORT_DRIFT:.0%} between".replace(
            "%", " %"
        ),
        f"Student's t at {differences.DEVICE_LEVEL:.0%} times".replace("%", " %"),
        f"need {differences.HOST_LEVEL:.1%}".replace("%", " %"),
        f"fewer than {differences.MIN_PROCESSES} processes on a side",
        f"{differences.DEVICE_BOUND.deviation:.1%} where kernels fill the step".replace("%", " %"),
        f"{differences.DEVICE_BOUND.freedom} more degrees of freedom",
        f"{differences.HOST_BOUND.deviation:.0%} with one more".replace("%", " %"),
        f"at least {noise.MIN_DEVICE_BOUND_SHARE:.0%} of the step".replace("%", " %"),
        f"time (within {noise.MAX_DEVICE_CHANGE:.0%})".replace("%", " %"),
        f"No advice about cuDNN's flags is given for less than {noise.MIN_USEFUL_SAVING:.0%}".replace("%", " %"),
        f"at most {trials.MAX_TRIALS} configurations",
        f"a gain or loss below {MIN_USEFUL_GAIN_PERCENT:g} %",
        f"first and second half differ by more than {disturbed.MAX_DRIFT:.0%}".replace("%", " %"),
    )
    assert [one for one in said if one not in text] == []
    assert (worker.SLOW_STEP_NS, worker.TIMED_SHARE, visits.REPEAT_BUDGET_SHARE) == (10**9, 0.5, 0.5)


def test_the_readme_is_short_and_shows_a_real_output() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(command_lines(ROOT / "README.md")) >= 3
    (block,) = make_docs.OUTPUT.finditer(text)
    assert block["command"].startswith("show ")
    assert len(block["stale"].splitlines()) > 5


def test_an_output_is_renewed_between_its_fences() -> None:
    page = "a\n<!-- output: first=1 show docs/measured/convnet_v0_h100.json -->\n```text\nold\n```\nb\n"
    assert make_docs.with_outputs(page) == page.replace("old", "ConvNetV0 (models/convnet_v0.py)")


def test_a_command_that_fails_is_not_put_into_a_page() -> None:
    with pytest.raises(RuntimeError, match="exit status"):
        make_docs.output_of("show nowhere.json")


def test_a_stale_page_fails_the_check_and_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("old")
    monkeypatch.setattr(make_docs, "ROOT", tmp_path)
    monkeypatch.setattr(make_docs, "pages", lambda: iter([(page, "new")]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_docs.py", "--check"])
    assert make_docs.main() == 1
    assert "stale: page.md" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["make_docs.py"])
    assert make_docs.main() == 0
    assert page.read_text() == "new"
