"""The registered devices, and lookups by torch's exact name or by a name that a user types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from profiler_kit._family import members
from profiler_kit.devices import cards
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device, Peaks
from profiler_kit.errors import UsageError

DEFAULT_DEVICE: Final = H100  # simulated if no GPU is named or present: most figures were measured on it


@cache
def devices() -> tuple[Device, ...]:
    """All devices of `devices/cards/`, the newest architecture first, the CPU last."""
    listed = [device for member in members(cards) for device in getattr(member, "DEVICES", ())]
    return tuple(sorted(listed, key=lambda device: -device.architecture.capability))


def devices_with_peaks() -> tuple[Device, ...]:
    """The devices with datasheet peaks: the choices of ``--hardware``."""
    return tuple(device for device in devices() if device.peaks is not None)


def device_choices(among: Iterable[Device]) -> str:
    """The devices' names as help and error messages list them."""
    return ", ".join(device.short_names[0] for device in among)


def architecture_names() -> str:
    """The architectures with a representative card, oldest first, as help lists them."""
    names = [
        device.architecture.name
        for device in devices()
        if device.is_cuda and device.architecture.name in device.short_names
    ]
    return ", ".join(reversed(names))


def peaks_of(device_name: str | None) -> Peaks | None:
    """The peaks of the device with torch's name `device_name`; None if no entry has exactly that name."""
    return next((device.peaks for device in devices() if device_name in device.torch_names), None)


def find_device(name: str, option: str, among: Sequence[Device], *, also: str = "") -> Device:
    """The device that a user calls `name`: torch's name or a short one, in any case, with or without dashes.

    A part of a name is enough if only one device of `among` matches.

    Raises:
        UsageError: no device or several devices match; the hint for `option` lists the choices and ends with `also`.
    """
    key = _normalized(name)
    keys = [(device, [_normalized(label) for label in (*device.torch_names, *device.short_names)]) for device in among]
    exact = [device for device, device_keys in keys if key in device_keys]
    partial = [device for device, device_keys in keys if key and any(key in device_key for device_key in device_keys)]
    if exact or len(partial) == 1:
        return (exact or partial)[0]
    problem = f"matches {len(partial)} devices" if partial else "is not a known device"
    raise UsageError(f"{name!r} {problem}", where=option, hint=f"one of: {device_choices(partial or among)}{also}")


def _normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]|nvidia|geforce|tesla", "", name.lower())
