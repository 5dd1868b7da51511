"""Memory on the command line: which GPU, other batches, what fits, checkpoints; and that the report is saved with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.cli import main
from profiler_kit.records.counts import MemoryEstimate
from profiler_kit.records.serde import read_report


def memory(here: Path, *options: str) -> MemoryEstimate:
    assert main(["count", "net.py", "-q", "-o", "memory.json", *options]) == 0
    static = read_report(here / "memory.json").static
    assert static is not None
    assert static.memory is not None
    return static.memory


@pytest.mark.parametrize("gpu", ["sm75", "sm80", "sm86", "sm90"])
def test_the_gpu_is_named(here: Path, gpu: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = memory(here, "--gpu", gpu)
    assert found.device is not None
    assert found.device.profile == gpu
    printed = capsys.readouterr().out
    assert "Memory at the peak" in printed
    assert f"On {gpu} (" in printed


def test_a_gpu_that_is_not_known(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "net.py", "--gpu", "sm12"]) == 2
    assert "sm90" in capsys.readouterr().err


def test_inference_has_its_memory_too(here: Path) -> None:
    found = memory(here, "--mode", "infer")
    assert found.saved_bytes == 0
    assert found.device is not None
    assert found.device.peak_phase == "forward"


def test_several_batches(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = memory(here, "--batch", "2,4,8")
    assert [answer.batch for answer in found.what_ifs] == [None, 4, 8]
    assert found.what_ifs[0].allocated_bytes <= found.what_ifs[1].allocated_bytes <= found.what_ifs[2].allocated_bytes
    assert "What if" in capsys.readouterr().out


def test_what_fits(here: Path) -> None:
    found = memory(here, "--fits", "2GiB")
    largest = [answer for answer in found.what_ifs if answer.batch is not None]
    assert largest
    assert all(answer.total_bytes <= 2 << 30 for answer in largest)


@pytest.mark.parametrize("wrong", [["--fits", "much"], ["--batch", "2,x"], ["--batch", "0"]])
def test_what_is_no_size(here: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "net.py", *wrong]) == 2
    assert wrong[1].split(",")[-1] in capsys.readouterr().err


def test_a_checkpoint_of_no_module(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "net.py", "--checkpoint", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
