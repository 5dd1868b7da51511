"""Test of scripts/lab/record_ranks.py on a CPU: `inspect` reads its traces, and truth.json describes the same steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.jobs

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no Gloo")
def test_recorded_ranks_can_be_inspected(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.lab.record_ranks", "--device", "cpu", "--small", "--steps", "3"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [*command, "--extra-ms", "20", "--out", str(tmp_path)], capture_output=True, text=True, env=env
    )
    assert process.returncode == 0, process.stderr
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert [rank["straggler"] for rank in truth["ranks"]] == [False, True]
    assert [len(rank["extra_ms"]) for rank in truth["ranks"]] == [0, 3]

    from profiler_kit import inspect

    report = inspect([tmp_path / "rank0.json.gz", tmp_path / "rank1.json.gz"]).report
    ranks = report.ranks
    assert ranks is not None
    assert ranks.common_steps == 2
    for row, rank_truth in zip(ranks.ranks, truth["ranks"], strict=True):
        truth_ns = 1e6 * sum(rank_truth["traced_step_ms"][:2]) / 2
        assert truth_ns / 10 < row.step_ns < 10 * truth_ns, (
            "both clocks read ns, but a busy machine may run between them"
        )
    products = [sum(op.calls for op in trace.operators if op.name == "aten::mm") for trace in report.traces]
    assert products[1] >= products[0] + 3, "the extra work"
