"""Test of scripts/lab/record_ranks.py on a CPU: `inspect` reads its traces, and truth.json describes the same steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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

    ranks = inspect([tmp_path / "rank0.json.gz", tmp_path / "rank1.json.gz"]).report.ranks
    assert ranks is not None
    assert ranks.common_steps == 2
    for row, rank_truth in zip(ranks.ranks, truth["ranks"], strict=True):
        assert row.step_ns == pytest.approx(1e6 * sum(rank_truth["traced_step_ms"][:2]) / 2, rel=0.1)
    late = max(ranks.stragglers, key=lambda straggler: straggler.late_ns)
    assert (late.rank, late.doing) == (1, "forward (aten::mm)")
