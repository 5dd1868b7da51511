"""GPU tests of `run` under torchrun, on two devices: one report of all ranks, in which the late rank is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / "tests" / "training_programs.py")
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RUN = ("-m", "profiler_kit", "run", "-q", "--steps", "10", "--traced", "3")
NEEDS_TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.mark.parametrize(
    ("program", "device"),
    [
        pytest.param("two-gpus", "cuda", marks=[pytest.mark.gpu, NEEDS_TWO]),
        pytest.param("two-ranks", "cpu", marks=pytest.mark.jobs),
    ],
)
def test_rank_0_reports_all_ranks_and_names_the_late_one(program: str, device: str, tmp_path: Path) -> None:
    alone = output(tmp_path, *LAUNCHER, PROGRAM, program, "60")
    assert len(alone) == 2
    assert output(tmp_path, *LAUNCHER, *RUN, "--out", "out", PROGRAM, program, "60") == alone  # the bits of both ranks
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["runs"][0]["environment"]["device"].startswith(device)
    ranks = json.loads((tmp_path / "out" / "ranks.json").read_text())
    assert [trace["rank"] for trace in ranks["traces"]] == [0, 1]
    assert [straggler["rank"] for straggler in ranks["ranks"]["stragglers"]] == [1]


def output(folder: Path, *words: str) -> list[str]:
    """The lines that a program prints, in the order of ranks."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())
