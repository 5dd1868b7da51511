"""The CPU as a device whose memory is simulated."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import HOST
from profiler_kit.devices.device import Device, Figure

CPU: Final = Device(label="any CPU", short_names=("cpu",), architecture=HOST, multiprocessors=Figure(0, "none"))
DEVICES: Final = (CPU,)
