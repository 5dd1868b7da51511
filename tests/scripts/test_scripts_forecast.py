"""The benchmark of the forecast: cases, random changes, and their tables; measured on the CPU, without kernels."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.forecast.prices import prices_for
from scripts.bench.forecast import (
    TIMED_STEPS,
    Outcome,
    cases_of,
    network_of,
    pair_of,
    predict,
    print_outcomes,
    print_ratios,
    ratios,
    write_step_times,
)
from scripts.lab.price_table import read_recordings
from scripts.lab.record_prices import build_step

ROOT = Path(__file__).resolve().parents[2]
NETWORK = """
import torch
from torch import nn
OPTIMIZER = "sgd"
def build(batch=4):
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 10)), (torch.randn(batch, 3, 8, 8),)
def loss(output):
    return output.square().mean()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(NETWORK)
    return tmp_path


def test_every_network_has_a_case_of_each_mode(folder: Path) -> None:
    cases = cases_of(folder)
    assert len({case.key for case in cases}) == len(cases) == 10
    assert {case.mode.opt for case in cases} == {"sgdm"}
    assert (cases[0].mode.p, cases[0].mode.train) == ("fp32", True)
    model, inputs, _ = network_of(cases[0].file, "meta")
    assert {each.device.type for each in (*model.parameters(), *inputs)} == {"meta"}


def test_a_case_is_predicted(folder: Path) -> None:
    training, inference = (predict(case) for case in (cases_of(folder)[0], cases_of(folder)[5]))
    assert training is not None
    assert inference is not None
    assert training.kernel_ns.median > 2 * inference.kernel_ns.median > 0


def test_steps_are_timed_beside_the_host(folder: Path) -> None:
    write_step_times(folder, folder / "steps.json", 60, "cpu")
    written = json.loads((folder / "steps.json").read_text())
    keys = [" ".join(case.key) for case in cases_of(folder)]
    assert [*written["step_ns"]] == keys
    assert all(len(times) == TIMED_STEPS and min(times) > 0 for times in written["step_ns"].values())
    assert min(written["host_ns"]) > 0


def shapes(number: int) -> tuple[Any, ...]:
    family, draw, mode = pair_of(number)
    model, _ = build_step(family, draw, mode, "meta")
    return family, mode, draw.made, [tuple(parameter.shape) for parameter in model.parameters()]


def test_a_pair_is_a_network_and_a_changed_copy() -> None:
    changed = 0
    for pair in range(12):
        before, after = shapes(2 * pair), shapes(2 * pair + 1)
        assert before == shapes(2 * pair)
        assert before[0] == after[0]
        changed += before != after
    assert changed > 6  # other changes, of a batch for instance, do not show in parameters


def line(seed: int, size: int, us: float) -> dict[str, Any]:
    """A recorded network with one sum."""
    mode = {"p": "fp32", "cl": False, "train": True, "opt": "sgd"}
    row = ["aten.add", f"float32[{size}], float32[{size}]", f"float32[{size}]", 1, us, 1, "add"]
    return {"family": "mlp", "seed": seed, "mode": mode, "step_ns": [1000], "rows": [row]}


def test_ratios_of_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "changes.jsonl.gz"
    lines = [line(0, 1 << 24, 60.0), line(1, 1 << 26, 240.0), line(2, 1 << 24, 60.0), line(5, 8, 2.0)]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    priced = prices_for(H100)
    assert priced is not None
    ((family, measured, predicted),) = ratios(file, priced[0])  # the others have no counterpart
    assert (family, measured) == ("mlp", 4)
    small, large = (priced[0].price(call.work).ns for call in read_recordings([file])[1][:2])
    assert predicted == pytest.approx(large / small)
    print_ratios([(family, measured, predicted), ("mlp", 0.9, 1.2)])
    assert "sign right in 1 of 2" in capsys.readouterr().out


def test_a_failure_is_counted_and_has_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcomes([Outcome("a", "m", 1e6, 2e6, 1.1e6, 2e6, None), Outcome("b", "m", 1e6, 2e6, 0.8e6, 1e6, 4e6)])
    total = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("all"))
    assert "15.0 / 19.0" in total
    assert "300.0 / 300.0, 1 failed" in total


@pytest.mark.jobs
def test_it_runs_to_the_end_on_a_cpu(folder: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "scripts.bench.forecast", *words]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    measured, changes = str(folder / "measured.jsonl.gz"), str(folder / "changes.jsonl.gz")
    assert "10 lines" in run("measure", str(folder), "--device", "cpu", "--out", measured)
    with gzip.open(measured, "rt") as lines:
        records = [json.loads(each) for each in lines]
    assert {len(record["step_ns"]) for record in records} == {12}
    assert {record["host"]["torch"] for record in records} == {torch.__version__}
    estimates = folder / "estimates.json"
    run("estimate", str(folder), "--out", str(estimates))
    assert len(json.loads(estimates.read_text())) == 10
    assert "train bf16" in run("compare", str(folder), "--measured", measured, "--estimates", str(estimates))
    run("changes", "--device", "cpu", "--pairs", "1", "--seconds", "0", "--out", changes)
    assert "0 pairs" in run("ratios", "--measured", changes)  # there are no kernels
