"""GPU tests of `analyze --parallel` on two devices: late rank, peak memory and exposed communication, against CUDA events."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

from scripts.bench.ranks import cases_for, compare  # noqa: E402


@pytest.mark.parametrize("name", ["late", "exposed", "fsdp2"])
def test_figures_of_ranks_agree_with_cuda_events(name: str, tmp_path: Path) -> None:
    row = compare(name, cases_for("cuda")[name], 2, "cuda", "10s", tmp_path)
    assert row["predicted_mib"] == pytest.approx(row["reported_peak_mib"], rel=0.05)
    assert row["reported_step_ms"] == pytest.approx(row["step_ms"], rel=0.1)
    if name == "late":
        assert row["late_rank"] == 1
        assert row["reported_excess_ms"] == pytest.approx(row["extra_ms"], rel=0.05)
    if name == "exposed":
        assert row["reported_exposed_ms"] == pytest.approx(row["exposed_ms"], rel=0.05)
