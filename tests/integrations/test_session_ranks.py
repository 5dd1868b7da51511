"""A session in a distributed job: real ranks with gloo, one of which does more work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.serde import read_saved

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.jobs,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo"),
]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
import profiler_kit
from profiler_kit.integrations import session
folder, other = sys.argv[1:]
if folder != other:
    session.RANK_WAIT_S = 2.0
dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
more = torch.randn(900, 900)
with profiler_kit.session(model, out=other if rank else folder, warmup=2, steps=4, traced=3) as s:
    for _ in range(12):
        if rank:
            more @ more
        loss = nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.zeros(8, dtype=torch.int64))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        s.step()
dist.barrier()
sys.stderr.flush()
os._exit(0)  # gloo's threads sometimes abort the interpreter's regular exit
"""


def run_two_ranks(tmp_path: Path, folder: Path, other: Path) -> str:
    """Run the script on two ranks and return what they printed on stderr."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        [*argv, str(folder), str(other)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_rank_0_compares_all_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    (folder / "traces").mkdir(parents=True)
    (folder / "traces" / "rank1.json.gz").write_text("of an earlier run")
    assert "ranks.html" in run_two_ranks(tmp_path, folder, folder)
    report, ranks = read_saved(folder / "report.json"), read_saved(folder / "ranks.json")
    assert isinstance(report, Report)
    assert report.static is not None
    assert report.static.params == 64 * 64 + 64 + 64 * 10 + 10
    assert isinstance(ranks, TraceReport)
    assert ranks.ranks is not None
    names = {trace.rank: {operator.name for operator in trace.operators} for trace in ranks.traces}
    assert set(names) == {0, 1}
    assert [("aten::matmul" in names[rank]) for rank in (0, 1)] == [False, True], "the second rank multiplies matrices"
    assert sorted(file.name for file in folder.glob("report.*")) == ["report.html", "report.json", "report.md"]


def test_a_rank_without_a_trace_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    printed = run_two_ranks(tmp_path, folder, tmp_path / "another_disk")
    assert "no trace of rank 1 after 2 s" in printed
    assert (folder / "report.json").exists()
    assert not (folder / "ranks.json").exists()
    assert not (tmp_path / "another_disk" / "report.json").exists(), "rank 0 reports"


PROGRAM = """\
import time, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    if dist.get_rank() == 1:
        time.sleep(0.1)  # more than a process waits for a core on a busy machine
    optimizer.zero_grad()
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_run_says_on_its_screen_which_rank_is_late(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    argv = [
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "profiler_kit",
        "run",
        "--out",
        "out",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *argv, "train.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ranks = json.loads((tmp_path / "out" / "ranks.json").read_text())
    assert ranks["findings"][0]["rule"] == "stragglers"
    assert ranks["verdict"]["sentences"][0] in " ".join(done.stderr.split())
