"""Axes of the CPU: threads and oneDNN."""

from __future__ import annotations

from typing import Any, Final

from profiler_kit.configurations.axis import SAME_PRECISION, Axis, Change, StepControls
from profiler_kit.records.target import TargetInfo

_CPU: Final = frozenset({"cpu"})
_HALF: Final = "half"
_MAX_THREADS: Final = 4096


def _read(value: str) -> str:
    if value == _HALF:
        return value
    if not (value.isdecimal() and value.isascii()) or not 1 <= int(value) <= _MAX_THREADS:
        raise ValueError(f"{value!r} is neither a number of threads nor {_HALF!r}")
    return str(int(value))


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    import torch

    current = torch.get_num_threads()
    if value == _HALF:
        return "torch already uses one thread" if current == 1 else None
    return f"torch already uses {value} threads" if int(value) == current else None


def _threads(value: str, runner: StepControls) -> None:
    import torch

    # after loading: the model's file may have set a number, which is halved
    torch.set_num_threads(max(1, torch.get_num_threads() // 2) if value == _HALF else int(value))


def _no_onednn(value: str, device: str) -> None:
    import torch

    # not by set_flags, which would also set the precision of matrix products
    mkldnn: Any = torch.backends.mkldnn
    mkldnn.enabled = False


def _no_onednn_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    import torch

    return None if torch.backends.mkldnn.is_available() else "this torch build has no oneDNN"


AXES: Final = (
    Axis(
        name="no_onednn",
        change=Change(line="torch.backends.mkldnn.enabled = False", numerics=SAME_PRECISION),
        doc="oneDNN disabled: torch's native CPU kernels instead",
        devices=_CPU,
        skip_reason=_no_onednn_skip_reason,
        process=_no_onednn,
    ),
    Axis(
        name="threads",
        change=Change(line="torch.set_num_threads({})", numerics=SAME_PRECISION),
        values=f"N|{_HALF}",
        bare="",
        fresh=True,
        doc="number of threads within an op; half: half of torch's current number",
        devices=_CPU,
        parse_value=_read,
        skip_reason=_pointless,
        runner=_threads,
    ),
)
