"""All devices that are known, found by torch's exact name or by what a person types."""

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

DEFAULT: Final = H100  # simulated where no GPU is named or present: most figures were measured on it


@cache
def devices() -> tuple[Device, ...]:
    """All devices of `devices/cards/`, the newest architecture first, the CPU last."""
    listed = [device for member in members(cards) for device in getattr(member, "DEVICES", ())]
    return tuple(sorted(listed, key=lambda device: -device.architecture.capability))


def with_peaks() -> tuple[Device, ...]:
    """The devices that a datasheet's peaks are known for: what ``--hardware`` takes."""
    return tuple(device for device in devices() if device.peaks is not None)


def choices(among: Iterable[Device]) -> str:
    """The names of devices as help and error messages list them."""
    return ", ".join(device.short[0] for device in among)


def architecture_names() -> str:
    """The architectures that one of their cards stands for, the oldest first, as help lists them."""
    names = [one.architecture.name for one in devices() if one.is_cuda and one.architecture.name in one.short]
    return ", ".join(reversed(names))


def peaks_of(device_name: str | None) -> Peaks | None:
    """The peaks of the device torch calls `device_name`; None where no entry has exactly that name."""
    return next((device.peaks for device in devices() if device_name in device.names), None)


def find(asked: str, option: str, among: Sequence[Device], *, also: str = "") -> Device:
    """The device that a person calls `asked`: torch's name or a short one, in any case, with or without dashes.

    A part of a name will do where only one device of `among` has it. Raises UsageError for `option` that lists the choices;
    `also` ends that list.
    """
    wanted = _plain(asked)
    named = [(device, [_plain(name) for name in (*device.names, *device.short)]) for device in among]
    exact = [device for device, names in named if wanted in names]
    partial = [device for device, names in named if wanted and any(wanted in name for name in names)]
    if exact or len(partial) == 1:
        return (exact or partial)[0]
    problem = f"could be {len(partial)} devices" if partial else "is not a known device"
    raise UsageError(f"{asked!r} {problem}", where=option, hint=f"one of: {choices(partial or among)}{also}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|nvidia|geforce|tesla", "", name.lower())
