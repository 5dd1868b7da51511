"""The pytest plugin, in a test run of its own: one process for all cases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
from pathlib import Path
import profiler_kit, pytest, torch
from torch import nn

def net(width=16):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(width * 36, 100))

X = torch.randn(4, 3, 8, 8)
profiler_kit.save(profiler_kit.count(net(), X), Path(__file__).with_name("base.json"))

@pytest.mark.model_budget({"params@3": "1K"}, flops="1M", peak="1KiB", macs="1G")
def test_broken(model_report):
    model_report(net(), X)

@pytest.mark.model_budget(flops="1.7M", params="58148", peak="2MiB", uncounted=0)
@pytest.mark.parametrize("width", [8, 16])
def test_holds(model_report, width):
    assert model_report(net(width), X).static.params == 3628 * width + 100

def test_without_marker(model_report):
    assert model_report(net(), X).static.params == 58148

@pytest.mark.model_budget(flops="1", params="1")
class TestLevels:
    @pytest.mark.model_budget(flops="1G")
    def test_params(self, model_report):
        model_report(net(), X)

    @pytest.mark.model_budget(flops="1G", params="off")
    def test_off(self, model_report):
        model_report(net(), X)

@pytest.mark.model_budget(flops="1G")
def test_without_fixture():
    pass

@pytest.mark.model_budget(flops="1G")
def test_without_call(model_report):
    pass

@pytest.mark.model_budget(flops="1G")
def test_skipped(model_report):
    pytest.skip("not here")

@pytest.mark.model_budget(flops="+10%", baseline="base.json")
@pytest.mark.parametrize("width", [16, 32])
def test_baseline(model_report, width):
    model_report(net(width), X)

@pytest.mark.model_budget(flops="+10%", baseline="nowhere.json")
def test_no_baseline(model_report):
    model_report(net(), X)

def test_shape(model_report):
    model_report(net(), torch.randn(4, 3, 9, 9))
"""
INVALID = {
    "model_budget(flop='1G')": "unknown metric 'flop', nearest: flops",
    "model_budget(flops='10%')": "'10%' is not an absolute limit",
    "model_budget(flops='1 banana')": "is not a limit for flops",
    "model_budget(flops='+10%')": "+10% needs a baseline",
    "model_budget(checkpoint=0)": "0 needs a baseline",
    "model_budget(step_time='+5%', baseline='base.json')": "a counted report has no measured time",
    "model_budget": "has no limit",
    "model_budget('flops=1G')": "'flops=1G' is not a table",
}


@dataclass(frozen=True)
class Run:
    outcomes: dict[str, str]  # of each test
    sections: dict[str, str]  # what is shown of each that failed, as one line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("plugin")
    invalid = [
        f"\n@pytest.mark.{marker}\ndef test_invalid_{i}(model_report):\n    pass\n" for i, marker in enumerate(INVALID)
    ]
    (folder / "test_models.py").write_text(TESTS + "".join(invalid))
    # without the entry point, which an installation of an earlier version lacks
    plugin = ["-p", "profiler_kit.integrations.pytest_plugin", "-p", "no:profiler-kit"]
    output = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-rA", "-p", "no:cacheprovider", "--strict-markers", "--rootdir", folder],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    ).stdout  # fmt: skip
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) \S*?::(?:\w+::)?([\w\[\]]+)", output, re.MULTILINE)
    sections = re.findall(
        r"^_{3,} (?:ERROR at setup of )?(?:\w+\.)?([\w\[\]]+) _{3,}\n(.*?)(?=^[_=]{3,})", output, re.M | re.S
    )
    return Run({name: outcome for outcome, name in outcomes}, {name: " ".join(text.split()) for name, text in sections})


def test_every_test_ends_as_it_should(run: Run) -> None:
    invalid = {f"test_invalid_{i}": "ERROR" for i in range(len(INVALID))}
    passed = ("test_holds[8]", "test_holds[16]", "test_without_marker", "test_off", "test_baseline[16]")
    failed = (
        "test_broken", "test_params", "test_without_fixture", "test_without_call", "test_baseline[32]", "test_no_baseline",
        "test_shape",
    )  # fmt: skip
    assert run.outcomes == invalid | dict.fromkeys(passed, "PASSED") | dict.fromkeys(failed, "FAILED")
    assert not [name for name, text in run.sections.items() if "During handling" in text or "Traceback" in text]


def test_a_broken_budget_shows_the_layers_with_the_largest_part(run: Run) -> None:
    written = run.sections["test_broken"]
    assert written.startswith("Sequential: 3 of 4 budgets broken")
    assert "FLOPs, step: 1.64 M is 64.0 % above the 1 M allowed (@pytest.mark.model_budget flops)" in written
    assert "Largest: 3 (Linear) 1.383 M, 84.3 %; 0 (Conv2d) 248.8 K, 15.2 %" in written
    assert "Parameters of 3: 57,700 is 5670.0 % above the 1,000 allowed" in written
    assert "The peak is at optimizer" in written
    assert "optimizer state 454.3 KiB" in written
    assert "--accept" not in written, "no file has these budgets"


def test_the_nearest_marker_replaces_single_limits(run: Run) -> None:
    assert "Parameters: 58,148 is" in run.sections["test_params"]
    assert "FLOPs, step: 1.64 M is" not in run.sections["test_params"]


@pytest.mark.parametrize(("number", "message"), list(enumerate(INVALID.values())))
def test_an_invalid_marker_never_passes(number: int, message: str, run: Run) -> None:
    assert message in run.sections[f"test_invalid_{number}"]


def test_a_marked_test_that_counts_no_model_fails(run: Run) -> None:
    for name in ("test_without_fixture", "test_without_call"):
        assert run.sections[name].startswith("the test has the marker model_budget and counts no model")


def test_a_baseline_allows_relative_limits_and_explains_the_change(run: Run) -> None:
    assert "0 out_channels 16 -> 32" in run.sections["test_baseline[32]"]
    assert "nowhere.json" in run.sections["test_no_baseline"]


def test_a_model_that_cannot_be_counted_is_one_message(run: Run) -> None:
    assert run.sections["test_shape"].startswith("shape mismatch in 3 (Linear): got 4x784, needs 4x576")


def test_the_plugin_costs_a_test_run_nothing() -> None:
    """Every test run in an environment with this package imports it."""
    program = (
        "import pytest, sys; before = set(sys.modules); import profiler_kit.integrations.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    ours = ["profiler_kit", "profiler_kit._version", "profiler_kit.integrations"]
    assert [name for name in loaded if name.startswith("profiler_kit")] == [*ours, f"{ours[-1]}.pytest_plugin"]
    assert not {"torch", "numpy", "msgspec", "rich"} & set(loaded)
