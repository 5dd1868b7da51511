"""`analyze --parallel` on two real ranks with gloo: the report, a rank that dies, and wrong calls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from torch_versions import needs_sharding_on_cpu
from waiting import free_port

from profiler_kit.records.report import Report
from profiler_kit.records.serde import read_saved
from profiler_kit.records.traces import TraceSummary

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.jobs,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo"),
]

ROOT = Path(__file__).resolve().parents[2]
# Rank 1 multiplies matrices.
LATE = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])
        self.extra = torch.ones(512, 512)

    def forward(self, x):
        y = self.body(x)
        if os.environ.get("RANK") == "1" and x.device.type != "meta":
            for _ in range(20):
                y = y + 0 * (self.extra @ self.extra).sum()
        return y
"""
DIES = """
import os, signal
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(64, 64), 0

    def forward(self, x):
        self.calls += 1
        if os.environ.get("RANK") == "1" and self.calls == 4 and x.device.type != "meta":
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.layer(x)
"""


class Rank(NamedTuple):
    """How the process of one rank ended."""

    status: int
    stdout: str
    stderr: str


def run_ranks(folder: Path, source: str, *options: str, ranks: int = 2) -> list[Rank]:
    """Run `analyze` on a file with `source` in a job without a launcher's store, as in a job that Slurm starts."""
    file = folder / "net.py"
    file.write_text(source)
    job = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    argv = [
        sys.executable,
        "-m",
        "profiler_kit",
        "analyze",
        str(file),
        "--device",
        "cpu",
        "--out",
        str(folder / "out"),
        *options,
    ]
    children = [
        subprocess.Popen(
            argv,
            env={**os.environ, **job, "RANK": str(rank), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    ended = []
    for child in children:
        stdout, stderr = child.communicate()
        ended.append(Rank(child.returncode, stdout, stderr))
    return ended


def calls_of(trace: TraceSummary, name: str) -> int:
    """How often the operator was called."""
    return sum(operator.calls for operator in trace.operators if operator.name == name)


def report_of(folder: Path) -> Report:
    """The saved report."""
    report = read_saved(folder / "out" / "report.json")
    assert isinstance(report, Report)
    return report


def test_the_report_has_all_ranks(tmp_path: Path) -> None:
    first, second = run_ranks(
        tmp_path,
        LATE,
        "-i",
        "4,512",
        "--parallel",
        "ddp",
        "--configs",
        "default,bucket_mb=1",
        "--steps",
        "4",
        "--budget",
        "8s",
    )
    assert first.status == 0, first.stderr
    assert (second.status, second.stdout) == (0, ""), second.stderr
    report = report_of(tmp_path)
    plan = report.target.parallel
    assert plan is not None
    assert (plan.strategy, plan.ranks) == ("ddp", 2)
    assert [run.config.name for run in report.runs if run.config.repeat_of is None] == ["default", "bucket_mb=1"]
    for run in report.runs:
        assert run.failure is None
        assert [rank.rank for rank in run.ranks] == [0, 1]
        assert all(rank.step_ns is not None for rank in run.ranks)
    traces = {file.name for file in (tmp_path / "out" / "traces").iterdir()}
    assert {"default.json.gz", "default.rank1.json.gz"} <= traces

    assert report.ranks is not None
    ranks = report.ranks.ranks
    assert ranks is not None
    products = {trace.rank: calls_of(trace, "aten::matmul") for trace in report.ranks.traces}
    steps = ranks.common_steps
    assert (products[0], products[1] >= 20 * steps) == (0, True), "rank 1 multiplies matrices"
    for row in ranks.ranks:
        assert row.compute_ns + row.exposed_ns + row.idle_ns == row.step_ns
    # 6 MiB of gradients in buckets of 1 MiB (the first) and 25 MiB
    assert report.static is not None
    assert report.static.memory is not None
    (estimate,) = report.static.memory.parallel
    assert len(ranks.collectives) == sum(sent.calls for sent in estimate.communication)
    assert "collectives of a step" in first.stdout
    assert "each in a fresh process per rank, 2 ranks with ddp" in first.stdout


def test_a_rank_that_dies_is_a_recorded_failure(tmp_path: Path) -> None:
    first, second = run_ranks(
        tmp_path, DIES, "-i", "4,64", "--parallel", "ddp", "--configs", "default", "--budget", "4s"
    )
    assert first.status == 3
    assert second.status == 0, second.stderr
    (run,) = report_of(tmp_path).runs
    assert run.failure is not None
    assert run.failure.message == "rank 1: the process crashed (SIGSEGV)"
    assert "rank 1: the process crashed (SIGSEGV)" in first.stderr


@needs_sharding_on_cpu
def test_sharded_parameters_are_measured(tmp_path: Path) -> None:
    first, _ = run_ranks(
        tmp_path, LATE, "-i", "4,512", "--parallel", "fsdp2", "--configs", "default", "--steps", "3", "--budget", "6s"
    )
    assert first.status == 0, first.stderr
    report = report_of(tmp_path)
    assert report.ranks is not None
    assert report.ranks.ranks is not None
    assert {row.kind for row in report.ranks.ranks.collectives} >= {"all_gather"}
    (run,) = [run for run in report.runs if run.config.repeat_of is None]
    assert run.failure is None
    assert len(run.ranks) == 2


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (["--parallel", "ddp"], {}, "--parallel needs a job of several processes"),
        ([], {"RANK": "0", "WORLD_SIZE": "2"}, "this is rank 0 of 2, and each rank would do the same work"),
        (["--parallel", "ddp", "--mode", "infer"], {"RANK": "0", "WORLD_SIZE": "2"}, "--parallel measures training"),
        (
            ["--parallel", "ddp", "--device", "cuda:1"],
            {"RANK": "0", "WORLD_SIZE": "2"},
            "each rank has a GPU of its own",
        ),
        (
            ["--parallel", "ddp", "--shapes", "batch=1,2"],
            {"RANK": "0", "WORLD_SIZE": "2"},
            "--shapes runs in one process",
        ),
        (["--parallel", "ddp"], {"RANK": "x", "WORLD_SIZE": "2"}, "RANK, WORLD_SIZE, LOCAL_RANK or MASTER_PORT"),
    ],
)
def test_wrong_calls_say_what_to_do(
    tmp_path: Path,
    options: list[str],
    environment: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from profiler_kit.cli import main

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    if environment:
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environment}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "net.py"
    file.write_text(LATE)
    assert main(["analyze", str(file), "--out", str(tmp_path / "out"), *options]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert re.search(r"^hint: \S", printed, re.MULTILINE)
    assert not (tmp_path / "out").exists()
