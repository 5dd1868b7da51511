"""What a CPU computes with: threads, oneDNN."""

from __future__ import annotations

from typing import Any, Final

from profiler_kit.configurations.axis import Axis, StepControls
from profiler_kit.records.target import TargetInfo

_CPU: Final = frozenset({"cpu"})
_HALF: Final = "half"
_MOST_THREADS: Final = 4096


def _read(value: str) -> str:
    if value == _HALF:
        return value
    if not (value.isdecimal() and value.isascii()) or not 1 <= int(value) <= _MOST_THREADS:
        raise ValueError(f"{value!r} is neither a number of threads nor {_HALF}")
    return str(int(value))


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    import torch

    now = torch.get_num_threads()
    if value == _HALF:
        return "torch uses one thread as it is" if now == 1 else None
    return f"torch uses {value} as it is" if int(value) == now else None


def _threads(value: str, runner: StepControls) -> None:
    import torch

    # after loading: half of what the model's own file may have set
    torch.set_num_threads(max(1, torch.get_num_threads() // 2) if value == _HALF else int(value))


def _no_onednn(value: str, device: str) -> None:
    import torch

    # one by one: set_flags would set the precision of matrix products too
    mkldnn: Any = torch.backends.mkldnn
    mkldnn.enabled = False


def _no_onednn_is_pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    import torch

    return None if torch.backends.mkldnn.is_available() else "this torch is built without oneDNN"


AXES: Final = (
    Axis(
        name="no_onednn",
        doc="without oneDNN: torch's own CPU code for what it would have done",
        devices=_CPU,
        pointless=_no_onednn_is_pointless,
        process=_no_onednn,
    ),
    Axis(
        name="threads",
        values=f"N|{_HALF}",
        bare="",
        doc="so many threads within an op; half: of those that torch would use",
        devices=_CPU,
        read=_read,
        pointless=_pointless,
        runner=_threads,
    ),
)
