"""Tests of the strangers benchmark: expectations, comparison of answers, hints, side effects and tables."""

from __future__ import annotations

import ast
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from scripts.bench import stranger_runs, strangers
from scripts.bench.stranger_expectations import (
    ExpectedFile,
    ExpectedModel,
    find_difference,
    inputs_match,
    read_expectations,
)
from scripts.bench.stranger_hazards import HAZARDS, source_of
from scripts.bench.stranger_tables import markdown_tables

pytestmark = pytest.mark.jobs

IMAGE = ((2, 3, 32, 32), "float32")
TOKENS = ((1, 8), "int64")


@pytest.mark.parametrize(
    ("pattern", "inputs", "matches"),
    [
        ("N,3,32,32", [IMAGE], True),
        ("N,3,H,W", [IMAGE], True),
        ("N,3,S>=64,S", [IMAGE], False),
        ("N,3,224,224", [IMAGE], False),
        ("N,C,C,C", [IMAGE], False),
        ("N,T:int64", [TOKENS], True),
        ("N,T", [TOKENS], False),
        ("N,T:int64; N,T:int64", [TOKENS, TOKENS], True),
        ("N,T:int64; N,T:int64", [TOKENS, ((1, 9), "int64")], False),
        ("N,T:int64", [TOKENS, TOKENS], False),
    ],
)
def test_inputs_match_a_pattern(pattern: str, inputs: list[tuple[tuple[int, ...], str]], matches: bool) -> None:
    assert inputs_match(pattern, inputs) is matches


def test_the_closest_expected_model_explains_a_difference() -> None:
    models = [
        ExpectedModel(class_name="Net", parameters=10, inputs=("N,3,32,32",), macs=100.0, macs_inputs="N,3,32,32"),
        ExpectedModel(class_name="Other"),
    ]
    assert find_difference(models, "Net", 10, [IMAGE], 200) == ""
    assert find_difference(models, "Net", 10, [IMAGE], 300) == "macs 150 instead of 100 for one example"
    assert find_difference(models, "Net", 11, [IMAGE], 200) == "parameters 11 instead of 10"
    assert find_difference(models, "Net", 10, [TOKENS], 200) == "inputs 1,8:int64 instead of N,3,32,32"
    assert find_difference(models, "Block", 10, [IMAGE], 200).startswith("class Block")
    assert find_difference(models, "Other", 1, [TOKENS], 1) == ""


def test_expectations_are_complete() -> None:
    repositories = read_expectations()
    assert {repository.group for repository in repositories} == {"main", "held-out"}
    for repository in repositories:
        assert len(repository.commit) == 40
        assert len({file.path for file in repository.files}) == len(repository.files)
        for file in repository.files:
            assert bool(file.models) is (file.role == "model")
            assert bool(file.reason) is (file.role != "model")
            for model in file.models:
                assert model.source, f"{repository.name}/{file.path}"
                ast.parse(model.build)
                for pattern in (*model.inputs, *([model.macs_inputs] if model.macs else [])):
                    inputs_match(pattern, [IMAGE])  # raises for an invalid pattern


def run(*, answer: stranger_runs.Answer | None, exit_code: int | None = 0, message: str = "") -> stranger_runs.Run:
    return stranger_runs.Run(seconds=1.0, exit_code=exit_code, answer=answer, message=message, hint=(), side_effects=())


def test_a_file_without_a_model_needs_a_clear_error() -> None:
    file = ExpectedFile(path="utils.py", role="no_model", reason="helpers")
    assert strangers.problem_of(run(answer=None, exit_code=3, message="error: no model"), file) == ""
    assert strangers.problem_of(run(answer=None, exit_code=1, message="traceback: KeyError"), file) != ""
    assert strangers.problem_of(run(answer=None, exit_code=None, message="no answer within 60 s"), file) != ""


def test_the_first_command_of_the_hint_is_found() -> None:
    stderr = "error: x\nhint: this shape works: profiler-kit count net.py -i 'ids=1,8:int64[0:10]'\n"
    assert stranger_runs.find_hint(stderr) == ("count", "net.py", "-i", "ids=1,8:int64[0:10]")
    assert stranger_runs.find_hint("error: x\nhint: add a model\n") == ()


def test_changes_of_a_sandbox_are_listed(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "net.py").write_text("")
    with stranger_runs.make_sandbox(tmp_path / "project") as sandbox:
        before = stranger_runs.snapshot(sandbox)
        assert list(stranger_runs.changed_files(before, stranger_runs.snapshot(sandbox), sandbox)) == []
        (sandbox.repository / "net.py").write_text("changed")
        (sandbox.home / ".cache" / "weights").mkdir(parents=True)
        assert list(stranger_runs.changed_files(before, stranger_runs.snapshot(sandbox), sandbox)) == [
            "created home/.cache",
            "changed project/net.py",
        ]


def test_a_run_reports_the_counted_model(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "exit.py").write_text(source_of("exit.py"))
    with stranger_runs.make_sandbox(tmp_path / "project") as sandbox:
        counted = stranger_runs.run_count(["count", "exit.py"], sandbox, [], 100)
    assert counted.answer is not None, counted.message
    assert (counted.answer.class_name, counted.answer.parameters) == ("Net", 3 * 8 * 9 + 8 + 8 * 10 + 10)
    assert counted.side_effects == ()


def test_hazards_are_valid_files() -> None:
    for name in HAZARDS:
        ast.parse(source_of(name))


def test_tables_have_totals_and_files() -> None:
    result = strangers.FileResult(
        repository="a/b",
        group="main",
        path="net.py",
        role="model",
        scored=True,
        ok=True,
        right=False,
        problem="class Block instead of Net",
        right_after_hint=True,
        hint="count net.py:Net",
        class_name="Block",
        inputs="1,3,32,32",
        parameters=1_500_000,
        macs=2_000_000_000,
        notes=(),
        seconds=2.0,
        side_effects=(),
    )
    text = markdown_tables([json.loads(json.dumps(asdict(result)))])
    assert "| a/b | 1 | 1 (100%) | 0 (0%) | 1 (100%) | 2.0 | 0 |" in text
    assert "| `net.py` | after the hint | Block | 1,3,32,32 | 2 G | 1.5 M | class Block instead of Net | 2.0 |" in text
