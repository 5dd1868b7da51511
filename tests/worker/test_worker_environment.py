"""What a process says of the flags it runs under."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from profiler_kit.worker.environment import backend, describe

HAS_PRECISIONS = hasattr(torch.backends.cudnn, "conv")  # since torch 2.9


def test_precisions_are_read_back_where_torch_has_them() -> None:
    flags = {flag.name: flag.value for flag in describe(torch.device("cpu")).flags}
    for name in ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"):
        assert (name in flags) == HAS_PRECISIONS
        assert flags.get(name, "none") in ("none", "ieee", "tf32", "bf16")


def test_the_legacy_switch_moves_the_newer_precision_too() -> None:
    before = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        flags = {flag.name: flag.value for flag in describe(torch.device("cpu")).flags}
        assert flags["cudnn.allow_tf32"] == "False"
        assert flags.get("cudnn.conv.fp32_precision") != "tf32"
    finally:
        torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(("hip", "library"), [(None, "cudnn"), ("6.4", "miopen")])
def test_convolutions_run_in_torch_s_own_kernels_where_its_library_is_missing(
    hip: str | None, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr("torch.backends.cudnn.is_available", lambda: True)
    assert backend("cuda:1") == library
    monkeypatch.setattr("torch.backends.cudnn.is_available", lambda: False)
    assert (backend("cuda"), backend("cpu"), backend("mps")) == ("native", "cpu", "mps")


@pytest.mark.parametrize(
    ("version", "told"),
    [(91002, "91002"), (None, None), (RuntimeError("cuDNN version incompatibility: 9.1\n..."), "!")],
)
def test_a_cudnn_of_another_version_is_written_down_and_no_failure(
    version: int | RuntimeError | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> int | None:
        if isinstance(version, RuntimeError):
            raise version
        return version

    properties = SimpleNamespace(name="H100", total_memory=1, major=9, minor=0)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: properties)
    monkeypatch.setattr("torch.backends.cudnn.version", answer)
    wanted = "unreadable: cuDNN version incompatibility: 9.1" if told == "!" else told
    assert describe(torch.device("cuda")).cudnn == wanted
