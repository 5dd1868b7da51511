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
    assert "Peak memory" in printed
    assert f"Predicted for {gpu} (" in printed


@pytest.mark.parametrize("card", ["h100", "H100 SXM", "NVIDIA H100 80GB HBM3"])
def test_a_card_predicts_what_its_architecture_predicts(here: Path, card: str) -> None:
    assert memory(here, "--gpu", card) == memory(here, "--gpu", "sm90")


@pytest.mark.parametrize(("card", "profile"), [("gtx1080ti", "sm61"), ("v100", "sm70"), ("l40s", "sm89")])
def test_a_card_without_measurements_is_simulated_by_its_architectures_row(here: Path, card: str, profile: str) -> None:
    found = memory(here, "--gpu", card).device
    assert found is not None
    assert (found.profile, found.allocated_bytes > 0) == (profile, True)


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


def test_changes_stand_in_every_format(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--what-if", "amp=bfloat16,zero_grad=keep", "--what-if", "optimizer", "--batch", "4"]
    found = memory(here, *options)
    assert found.what_ifs[0].change == "as it is (batch 4)"
    assert found.what_ifs[1].change == "amp bfloat16, zero_grad to zeros"
    assert len({answer.optimizer for answer in found.what_ifs if answer.optimizer}) > 3
    capsys.readouterr()
    assert main(["show", "memory.json", "--by", "what-if", "-f", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(found.what_ifs)
    assert lines[0].startswith("change,allocated_bytes,difference_bytes")
    assert main(["show", "memory.json", "-f", "markdown"]) == 0
    assert "zero_grad to zeros" in capsys.readouterr().out


def test_the_time_that_checkpointing_adds_is_computed_where_hardware_is_named(here: Path) -> None:
    timed = memory(here, "--checkpoint", "(root)", "--hardware", "h100").what_ifs[1]
    assert timed.change == "checkpoint (root)"
    assert timed.recompute_ns is not None
    assert (timed.recompute_ns > 0) == bool(timed.recompute_flops)
    assert memory(here, "--checkpoint", "(root)").what_ifs[1].recompute_ns is None


def test_where_not_even_one_sample_fits_it_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = memory(here, "--fits", "1MiB")
    assert {answer.fits for answer in found.what_ifs} == {"no"}
    assert "1 MiB" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["speed", "optimizer=none_such", "amp=int8", "checkpoint=nowhere"])
def test_a_change_that_is_none(here: Path, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "net.py", "-q", "--what-if", wrong]) == 2
    error = capsys.readouterr().err
    assert wrong.split("=")[-1] in error
    assert "hint:" in error
