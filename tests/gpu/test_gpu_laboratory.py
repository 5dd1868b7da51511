"""GPU tests of the sweep: interleaved repeats, a failure in one configuration, and trials of advice."""

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
from profiler_kit.records.experiments import ExperimentOptions  # noqa: E402

NET = """
import os
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 7, padding=3)
    def forward(self, x):
        if x.is_cuda and torch.backends.cudnn.benchmark:
            {action}
        return self.conv(x)
example_inputs = torch.zeros(4, 8, 64, 64)
"""
FAILURES = {
    "killed during the algorithm search": ("self.conv(x); os.kill(os.getpid(), 9)", "out_of_memory", "SIGKILL"),
    "out of memory": ("torch.empty(1 << 46, device=x.device)", "out_of_memory", "CUDA out of memory"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_in_one_configuration_does_not_affect_others(name: str, tmp_path: Path) -> None:
    action, kind, message_part = FAILURES[name]
    file = tmp_path / "net.py"
    file.write_text(NET.format(action=action))
    report = analyze(
        str(file), loss="sum", optimizer="sgd", configs=["default", "benchmark", "deterministic"], budget_s=3
    )
    failed = report.run("benchmark")
    assert failed is not None
    assert failed.failure is not None
    assert failed.failure.kind == kind
    assert message_part in failed.failure.message
    others = [run for run in report.runs if run is not failed]
    assert [run.config.name for run in others] == ["default", "deterministic", "default (again)"]
    assert all(run.failure is None and run.step_ns is not None for run in others)
    assert others[1].repeat is not None
    assert "failed_runs" in {finding.rule for finding in report.findings}


def test_advice_is_tried_together_with_an_extra_configuration(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET.format(action="pass"))
    report = analyze(
        str(file),
        loss="sum",
        optimizer="sgd",
        configs=["default"],
        steps=5,
        experiments=ExperimentOptions(also=("cuda_graph",), trials=True),
    )
    names = {run.config.name for run in report.runs}
    assert {"default", "cuda_graph", "default (again)"} <= names
    assert all(run.failure is None for run in report.runs), [run.failure for run in report.runs]
    assert any(finding.trial is not None and finding.trial.tried for finding in report.findings)
    assert report.sweep is not None
    print(f"wall time {report.sweep.wall_ns / 1e9:.1f} s, estimate {report.sweep.needed_ns / 1e9:.1f} s")
