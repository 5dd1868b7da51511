"""The axis of the batch size."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis, Change, StepControls
from profiler_kit.records.target import TargetInfo, TargetSpec

MAX_ROWS: Final = 2**31 - 1
_BATCH: Final = re.compile(r"(?P<number>[0-9]{1,10}(?:\.[0-9]{1,6})?)(?P<times>x?)")


def _read(value: str) -> str:
    match = _BATCH.fullmatch(value.strip().lower())
    if match is None or ("." in match["number"] and not match["times"]):
        raise ValueError(f"{value!r} is neither a number of rows (16) nor a factor (2x, 0.5x)")
    if not match["times"]:
        if not 1 <= int(match["number"]) <= MAX_ROWS:
            raise ValueError(f"{value!r} is not a number from 1 to {MAX_ROWS}")
        return str(int(match["number"]))
    factor = float(match["number"])
    if not 0 < factor <= MAX_ROWS or factor == 1:
        raise ValueError(f"{value!r} leaves an empty batch" if factor == 0 else f"{value!r} does not change the batch")
    return f"{factor:.6f}".rstrip("0").rstrip(".") + "x"


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is not None and info.has_loader:
        return "the target's own data loader sets the batch size"
    rows = next((tensor.shape[0] for tensor in info.inputs if tensor.shape), None) if info is not None else None
    if rows is None:
        return None
    new_rows = max(1, math.floor(rows * float(value[:-1]) + 0.5)) if value.endswith("x") else int(value)
    return f"the target's batch size is already {rows:,}" if new_rows == rows else None


def _spec(value: str, spec: TargetSpec) -> TargetSpec:
    if value.endswith("x"):
        return replace(spec, batch_factor=float(value[:-1]))
    return replace(spec, batch=int(value), batch_factor=None)


def _runner(value: str, runner: StepControls) -> None:
    info = runner.info
    if info.inputs_from == "loader" and not info.has_loader:
        runner.notes.append(
            "The data loader was not used: every step had the same batch, from rows of the loader's first batch."
        )


AXES: Final = (
    Axis(
        name="batch",
        change=Change(
            line="batch_size = {}",
            memory="larger activations",
            numerics="other training: adapt the learning rate",
            in_training=True,
        ),
        values="N|Fx",
        bare="",
        doc="another batch size: a number of rows, or a multiple of the target's batch (2x, 0.5x); existing rows are repeated",
        devices=EVERYWHERE,
        parse_value=_read,
        skip_reason=_pointless,
        spec=_spec,
        runner=_runner,
    ),
)
