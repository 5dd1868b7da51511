"""What a process says of the flags it runs under."""

from __future__ import annotations

import torch

from profiler_kit.measure.environment import describe


def test_precisions_are_read_back_or_said_not_to_be_there() -> None:
    flags = {flag.name: flag.value for flag in describe(torch.device("cpu")).flags}
    for name in ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"):
        known = flags[name] in ("none", "ieee", "tf32", "bf16")
        assert known or "no attribute" in flags[name], flags[name]  # before torch 2.9


def test_the_legacy_switch_moves_the_newer_precision_too() -> None:
    before = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        flags = {flag.name: flag.value for flag in describe(torch.device("cpu")).flags}
        assert flags["cudnn.allow_tf32"] == "False"
        assert flags["cudnn.conv.fp32_precision"] != "tf32"
    finally:
        torch.backends.cudnn.allow_tf32 = before
