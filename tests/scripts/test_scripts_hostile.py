"""The benchmark of hostile files: its files are valid Python, and a sample of them ends as it should."""

from __future__ import annotations

import ast
import sys

import pytest

from scripts.bench.hostile.__main__ import main
from scripts.bench.hostile.environments import environments
from scripts.bench.hostile.models import ACTS, PLACES, hostile_models

pytestmark = [pytest.mark.jobs, pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")]


def test_the_files_are_python_and_every_act_and_place_occurs() -> None:
    models = list(hostile_models(300, 1, (1, 2)))
    for model in models:
        ast.parse(model.source)
    assert {model.place for model in models} == set(PLACES)
    assert {model.act for model in models} == ACTS[1].keys() | ACTS[2].keys()
    assert len({environment.name for environment in environments(100, 1, (1,))}) == 100


def test_a_sample_ends_with_verdicts_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--count", "3", "--seed", "11", "--jobs", "1", "--preloaded"]) == 0, capsys.readouterr().out
    assert "3 runs, 0 with a fault" in capsys.readouterr().out
