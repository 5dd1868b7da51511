"""Tests of the comparison of predicted and measured savings."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from profiler_kit.pipeline.inspect import inspect
from scripts.bench.diagnosis import pairs

pytestmark = pytest.mark.jobs

TRACES = Path(__file__).parents[1] / "fixtures" / "diagnosis"
PROGRAM = """
import torch
def setup():
    return torch.nn.Linear(4, 4)
def step(model):
    model(torch.randn(2, 4)).sum().backward()
"""


def folder_of(tmp_path: Path, *times: tuple[str, list[float]]) -> Path:
    """A folder with these times, and a trace of each slow program."""
    rows = [json.dumps({"name": name, "steps_ns": steps_ns}) for name, steps_ns in times]
    (tmp_path / pairs.TIMES).write_text("\n".join((*rows, json.dumps({"name": "c_slow", "error": "exit code 1"}))))
    for name, _ in times:
        if name.endswith(pairs.SLOW):
            shutil.copy(TRACES / "chest_xrays.cuda.plain.json.gz", tmp_path / f"{name}.json.gz")
    return tmp_path


def test_a_prediction_is_the_slow_step_without_the_saving_of_the_finding(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ("a_slow", [11e6, 9e6, 10e6]), ("a_fixed", [5e6, 5e6]), ("b_slow", [1e6]))
    report = inspect([tmp_path / "a_slow.json.gz"]).report
    finding = next(item for item in report.findings if item.saving is not None)
    (row,) = pairs.predictions(folder, {"a": finding.rule})  # b has not been repaired
    assert finding.saving is not None
    assert (row.name, row.rule, row.slow_ns, row.fixed_ns) == ("a", finding.rule, 10e6, 5e6)
    assert row.predicted_ns == pytest.approx(10e6 * (1 - finding.saving.median))
    assert (row.measured_saving, row.predicted_saving) == (0.5, pytest.approx(finding.saving.median))
    assert pairs.predictions(folder, None) == [row]
    (unnamed,) = pairs.predictions(folder, {})
    assert (unnamed.rule, unnamed.predicted_ns, unnamed.has_sign) == ("", None, False)


@pytest.mark.parametrize(
    ("fixed_ns", "predicted_ns", "close_to_fixed", "close_to_slow", "has_sign"),
    [(5e6, 5.7e6, True, True, True), (5e6, 6.4e6, False, True, True), (5e6, 8e6, False, False, True),
     (12e6, 9e6, False, False, False), (5e6, None, False, False, False)],
)  # fmt: skip
def test_a_prediction_is_close_or_has_the_right_sign(
    fixed_ns: float, predicted_ns: float | None, close_to_fixed: bool, close_to_slow: bool, has_sign: bool
) -> None:
    row = pairs.Prediction(name="a", rule="r", slow_ns=10e6, fixed_ns=fixed_ns, predicted_ns=predicted_ns)
    assert (row.is_close(row.fixed_ns), row.is_close(row.slow_ns), row.has_sign) == (
        close_to_fixed, close_to_slow, has_sign,
    )  # fmt: skip


def test_a_slow_program_is_timed_and_traced_and_its_pair_only_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "BLOCK_S", 0.001)
    monkeypatch.setattr(pairs, "WARMUP_S", 0.0)
    for name in ("a_slow", "a_fixed"):
        program = tmp_path / f"{name}.py"
        program.write_text(PROGRAM)
        row = pairs.record_program(program, tmp_path, stacks=False)
        assert row["name"] == name
        assert len(row["steps_ns"]) == pairs.BLOCKS
        assert min(row["steps_ns"]) > 0
    trace = json.loads(gzip.decompress((tmp_path / "a_slow.json.gz").read_bytes()))
    steps = {event["name"] for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep")}
    assert len(steps) == pairs.TRACED_STEPS
    assert not (tmp_path / "a_fixed.json.gz").exists()
