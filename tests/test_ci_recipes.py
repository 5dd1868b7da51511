"""The recipes for CI: the shell of each step runs in a temporary repository, with stand-ins for `pip` and `gh`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")  # comes with mkdocs

from profiler_kit.cli.parser import build_parser  # noqa: E402
from profiler_kit.render.github import MARKER  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "docs" / "ci_recipes"
CHECK = ROOT / "tests" / "fixtures" / "frozen" / "check.json"
MODEL = """
from torch import nn, zeros
model = nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.ReLU(), nn.Flatten(), nn.Linear(WIDTH * 36, 10))
model.add_module("x\\n::error file=README::y", nn.Linear(10, 10))
example_inputs = zeros(2, 3, 8, 8)
"""
BUDGETS = """
[tool.profiler-kit.budgets]
flops = "+10%"
[tool.profiler-kit.targets.net]
target = "net.py"
"""
# answers a list request from a file, and records every call
GH = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(os.environ["GH_FOLDER"])
arguments = sys.argv[1:]
with (here / "calls").open("a") as calls:
    print(json.dumps(arguments), file=calls)
if "--jq" in arguments:
    kind = "comments" if "/comments" in " ".join(arguments) else "pulls"
    print((here / kind).read_text(), end="")
"""


def load(name: str) -> dict[str, Any]:
    document = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def steps_of(name: str) -> list[dict[str, Any]]:
    document = load(name)
    if "runs" in document:
        return list(document["runs"]["steps"])
    (job,) = document["jobs"].values()
    return list(job["steps"])


def script_of(name: str, title: str) -> str:
    (script,) = (step["run"] for step in steps_of(name) if title in (step.get("name"), step.get("id")))
    assert isinstance(script, str)
    return script


GITHUB = ("action.yml", "docs/ci_recipes/github_check.yml", "docs/ci_recipes/github_comment.yml")


@pytest.mark.parametrize("name", GITHUB)
def test_no_script_contains_an_expression(name: str) -> None:
    """GitHub replaces ``${{ }}`` before the shell reads it, so a branch name could become a command."""
    scripts = [step["run"] for step in steps_of(name) if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


def test_permissions() -> None:
    assert load(GITHUB[1])["permissions"] == {"contents": "read"}
    comment = load(GITHUB[2])
    assert comment["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert not [step for step in steps_of(GITHUB[2]) if "checkout" in step.get("uses", "")], (
        "it must not see the change"
    )
    assert load(GITHUB[1])["name"] in comment[True]["workflow_run"]["workflows"]  # YAML 1.1 reads `on` as true
    actions = [step["uses"] for name in GITHUB for step in steps_of(name) if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in actions)


def test_the_comment_is_found_by_the_line_that_the_format_writes() -> None:
    (comment,) = (step for step in steps_of(GITHUB[2]) if step.get("name") == "Comment")
    assert comment["env"]["MARKER"] == MARKER


@dataclass
class Place:
    folder: Path

    def program(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def git(self, *arguments: str) -> None:
        options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *options, *arguments], cwd=self.folder, check=True, capture_output=True)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a step as GitHub does."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder, capture_output=True, text=True, check=False,
            env={
                **os.environ, "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary"), "GITHUB_OUTPUT": str(self.folder / "output"),
                "OMP_NUM_THREADS": "1", **variables,
            },
        )  # fmt: skip

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    quoted = shlex.quote(sys.executable)
    place.program("python", f'#!/bin/sh\nexec {quoted} "$@"\n')
    place.program("profiler-kit", f'#!/bin/sh\nexec {quoted} -m profiler_kit "$@"\n')
    place.program("gh", GH.format(python=sys.executable))
    return place


@pytest.fixture
def repository(place: Place) -> Place:
    """A branch whose change widens the model, with its base as origin/main."""
    (place.folder / ".gitignore").write_text("bin/\n")
    (place.folder / "net.py").write_text(MODEL.replace("WIDTH", "4"))
    (place.folder / "pyproject.toml").write_text(BUDGETS)
    place.git("init", "-q")
    place.git("add", "-A")
    place.git("commit", "-qm", "base")
    place.git("update-ref", "refs/remotes/origin/main", "HEAD")
    (place.folder / "net.py").write_text(MODEL.replace("WIDTH", "8"))
    place.git("commit", "-qam", "wider")
    return place


@pytest.mark.jobs
def test_a_broken_budget_fails_the_check_and_its_json_becomes_one_comment(repository: Place) -> None:
    checked = repository.run(script_of(GITHUB[1], "Check"), GITHUB_BASE_REF="main")
    assert checked.returncode == 1, checked.stderr
    assert repository.run(script_of(GITHUB[1], "Summary")).returncode == 0
    assert "1 of 1 budget broken" in repository.text("summary")
    for written in (checked.stdout, checked.stderr, repository.text("summary")):
        assert not re.search(r"^\s*::", written, re.MULTILINE)
    json_file = repository.folder / "model-budget" / "check.json"
    json_file.rename(repository.folder / "check.json")
    assert not comment(repository, pulls="", comments="")
    posted = comment(repository, pulls="12\n", comments="")
    assert [call[:4] for call in posted] == [["api", "--method", "POST", "repos/o/r/issues/12/comments"]]
    assert repository.text("comment.md").startswith(MARKER)
    assert "1 of 1 budget broken" in repository.text("comment.md")
    updated = comment(repository, pulls="12\n", comments="77\n99\n")
    assert [call[:4] for call in updated] == [["api", "--method", "PATCH", "repos/o/r/issues/comments/77"]]


def comment(place: Place, *, pulls: str, comments: str) -> list[list[str]]:
    """The writing calls of `gh` in the job that posts, which has the file check.json and these answers."""
    (place.folder / "pulls").write_text(pulls)
    (place.folder / "comments").write_text(comments)
    (place.folder / "calls").write_text("")
    variables = {"GH_REPO": "o/r", "HEAD_SHA": "a" * 40, "MARKER": MARKER, "GH_FOLDER": str(place.folder)}
    done = place.run(script_of(GITHUB[2], "Comment"), **variables)
    assert done.returncode == 0, done.stderr
    return [call for call in map(json.loads, place.text("calls").splitlines()) if "--method" in call]


@pytest.mark.jobs
def test_nothing_new_is_posted_where_nothing_changed(place: Place) -> None:
    result = json.loads(CHECK.read_text()) | {"posts": False}
    (place.folder / "check.json").write_text(json.dumps(result))
    assert not comment(place, pulls="12\n", comments="")
    assert [call[2] for call in comment(place, pulls="12\n", comments="77\n")] == ["PATCH"], (
        "an old verdict must not stay"
    )


def test_an_artifact_that_is_no_result_is_not_posted(place: Place) -> None:
    (place.folder / "check.json").write_text('{"kind": "check", "schema": 1, "target": "x"}')
    (place.folder / "calls").write_text("")
    done = place.run(script_of(GITHUB[2], "Comment"), GH_FOLDER=str(place.folder), MARKER=MARKER)
    assert done.returncode == 3
    assert place.text("calls") == ""


def action(place: Place, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """The composite action's step, and its outputs."""
    defaults = {key.upper(): value["default"] for key, value in load("action.yml")["inputs"].items()}
    done = place.run(script_of("action.yml", "check"), **(defaults | inputs))
    return done, dict(line.split("=", 1) for line in place.text("output").splitlines())


@pytest.mark.jobs
def test_the_action_has_a_summary_and_outputs_where_a_side_fails(repository: Place) -> None:
    (repository.folder / "net.py").write_text("print('::error::from the model')\nmodel = 1 +\n")
    done, outputs = action(repository, GITHUB_BASE_REF="main")
    assert done.returncode == 3, done.stderr
    assert outputs == {
        "exit-code": "3", "verdict": "could not be judged: this change could not be counted", "posts": "true"
    }  # fmt: skip
    assert "could not be judged" in repository.text("summary")
    stop, *_, resume = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert stop == f"::stop-commands::{resume.strip(':')}"


FAKE_CHECK = """#!{python}
import json, pathlib, sys
pathlib.Path("words").write_text(json.dumps(sys.argv[1:]))
for name in [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "-o"]:
    result = json.dumps({{"posts": False, "verdict": "all kept"}})
    pathlib.Path(name).write_text(result if name.endswith("check.json") else "comment")
sys.exit({status})
"""


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, ["check"]),
        ({"GITHUB_BASE_REF": "release/1"}, ["check", "--base", "origin/release/1"]),
        ({"GITHUB_BASE_REF": "main", "BASE": "v1"}, ["check", "--base", "v1"]),
        (
            {"TARGET": "a b.py:$(touch hacked)", "ARGUMENTS": "--budget flops=+10%  * --strict"},
            ["check", "a b.py:$(touch hacked)", "--budget", "flops=+10%", "*", "--strict"],
        ),
    ],
)
def test_inputs_of_the_action_are_single_words(inputs: dict[str, str], words: list[str], place: Place) -> None:
    place.program("checker", FAKE_CHECK.format(python=sys.executable, status=0))
    quoted = shlex.quote(sys.executable)
    is_check = f'if [ "$2" = profiler_kit ]; then shift 2; exec {place.folder}/bin/checker "$@"; fi'
    place.program("python", f'#!/bin/sh\n{is_check}\nexec {quoted} "$@"\n')
    done, outputs = action(place, **{"GITHUB_BASE_REF": "", **inputs})
    assert done.returncode == 0, done.stderr
    assert outputs == {"exit-code": "0", "verdict": "all kept", "posts": "false"}
    files = ["check.json", "comment.github.md", "check.html"]
    assert json.loads(place.text("words")) == [
        *words,
        *(word for name in files for word in ("-o", f"model-budget/{name}")),
    ]
    assert not (place.folder / "hacked").exists()


def parse(words: list[str]) -> Any:
    assert words[0] == "check"
    return build_parser(words).parse_args(words)


def test_commands_of_other_systems_parse_and_their_reports_are_written(place: Place) -> None:
    place.program("profiler-kit", FAKE_CHECK.format(python=sys.executable, status=1))
    place.program("git", "#!/bin/sh\nexit 0\n")
    job = load("docs/ci_recipes/gitlab-ci.yml")["model-budget"]
    scripts = {"gitlab": "\n".join(job["script"])}
    jenkins = (RECIPES / "Jenkinsfile").read_text()
    scripts["jenkins"] = re.findall(r"sh '''(.*?)'''", jenkins, re.DOTALL)[-1].replace(".venv/bin/", "")
    written = {}
    for name, script in scripts.items():
        done = place.run(script, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main", CHANGE_TARGET="main")
        assert done.returncode == 1, (name, done.stderr)
        options = parse(json.loads(place.text("words")))
        assert options.base == "origin/main"
        written[name] = {str(path) for path in options.output}
    reports = job["artifacts"]["reports"]
    assert written["gitlab"] == {*reports.values(), *job["artifacts"]["paths"]}
    assert written["jenkins"] == set(re.findall(r"check\.\w+(?=[',])", jenkins))
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())[0]
    (local,) = yaml.safe_load((RECIPES / "pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for words in (hook["entry"], local["entry"]):
        parse(shlex.split(words)[1:])
    assert {key: value for key, value in hook.items() if key not in ("entry", "description")}.items() <= local.items()
