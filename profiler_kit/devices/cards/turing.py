"""Turing: T4."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_CORES, SM75
from profiler_kit.devices.device import Device, Figure, Peaks

_T4: Final = (
    "NVIDIA T4 datasheet: https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/"
    "t4-tensor-core-datasheet-951643.pdf; bandwidth at the full memory clock from its product brief, table 2: "
    "https://manualmachine.com/pny/tcst4mpb/8129101-user-manual"
)

T4: Final = Device(
    label="T4",
    short=("t4", "sm75"),
    names=("Tesla T4",),
    architecture=SM75,
    multiprocessors=Figure(40, FROM_CORES),
    peaks=Peaks(fp32=8.1e12, fp16=65e12, bandwidth=320e9, source=_T4),
)
DEVICES: Final = (T4,)
