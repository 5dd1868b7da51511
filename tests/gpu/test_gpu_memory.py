"""GPU tests of memory prediction: predicted peaks, with measured workspaces, against measured peaks."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from profiler_kit.pipeline.analyze import analyze  # noqa: E402
from profiler_kit.records.report import Report  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.report.tables import peaks_table  # noqa: E402

MODELS = Path(__file__).resolve().parents[2] / "models"
CONFIGS = ["default", "benchmark", "no-tf32", "cudnn-off"]
ASKS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)
    def forward(self, x):
        y = self.fc(x)
        return y * 2 if y.sum().item() > 0 else y
example_inputs = torch.ones(256, 64)
"""


def successful_runs(report: Report) -> list[ConfigRun]:
    assert report.runs
    for run in report.runs:
        assert run.failure is None, run.failure
    return list(report.runs)


def relative_error(run: ConfigRun) -> float:
    assert run.predicted is not None, run.notes
    assert run.peak_allocated_bytes is not None
    return abs(run.predicted.allocated_bytes - run.peak_allocated_bytes) / run.peak_allocated_bytes


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_every_configuration_of_the_case_study_is_predicted(version: str) -> None:
    report = analyze(str(MODELS / f"convnet_{version}.py"), configs=CONFIGS, budget_s=8)
    runs = successful_runs(report)
    for run in runs:
        assert relative_error(run) <= 0.01, run.config.name
        assert run.predicted is not None
        assert run.predicted.uncertain == ()  # every op has a measured workspace
        assert run.memory is not None
        assert run.memory.calls == ()  # reports do not store it
        assert (run.predicted.peak_path, run.predicted.peak_phase) == (run.memory.peak_path, run.memory.peak_phase)
    table = peaks_table(report)
    assert table is not None
    assert len(table.rows) == len(runs)
    low = [f for f in report.findings if f.rule == "memory_prediction" and f.severity != "info"]
    assert low == []


@pytest.mark.parametrize("model", ["mnist_cnn.py", "transformer.py", "resnet.py:resnet18"])
def test_other_models_are_predicted(model: str) -> None:
    report = analyze(str(MODELS / model), configs=["default", "cudnn-off"], budget_s=4)
    for run in successful_runs(report):
        findings = [f for f in report.findings if f.rule == "memory_prediction" and f.severity == "low"]
        assert relative_error(run) <= 0.03 or findings, run.config.name  # a larger error needs a finding


def test_a_model_that_reads_values_has_measured_peaks_and_a_note(tmp_path: Path) -> None:
    file = tmp_path / "asks.py"
    file.write_text(ASKS)
    report = analyze(str(file), configs=["default"], budget_s=2, loss="sum", optimizer="sgd")
    assert successful_runs(report)[0].peak_allocated_bytes
    assert report.static is not None
    memory = report.static.memory
    assert memory is not None
    assert memory.traced_on == "cpu"
    assert any("asks.py:10" in note for note in memory.notes)
