"""The names that options accept, read from the registries for the help text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CONVENTIONS: Final = Path(__file__).resolve().parents[1] / "counting" / "conventions"
_CONVENTION: Final = re.compile(r'^CONVENTION = Convention\(\s*name="([^"]+)"', re.MULTILINE)


def formats() -> str:
    """Names of the output formats."""
    from profiler_kit.render import format_names

    return ", ".join(format_names())


def suffixes() -> str:
    """File suffixes of the output formats."""
    from profiler_kit.render import renderers

    return ", ".join(suffix for renderer in renderers() for suffix in renderer.suffixes)


def conventions() -> str:
    """Names of the counting conventions. Their files are read as text, because importing them needs torch."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(CONVENTIONS.glob("*.py")))
    return ", ".join(name for text in texts for name in _CONVENTION.findall(text))


def gpus() -> str:
    """Devices whose memory can be simulated, and the default device."""
    from profiler_kit.devices.registry import DEFAULT_DEVICE, architecture_names, device_choices, devices

    return (
        f"{device_choices(devices())}; an architecture ({architecture_names()}) selects its best-known card (default: the device "
        f"of this machine, or {DEFAULT_DEVICE.short_names[0]})"
    )


def cards() -> str:
    """Short names of the devices with datasheet peaks."""
    from profiler_kit.devices.registry import device_choices, devices_with_peaks

    return device_choices(devices_with_peaks())


def cudnn_configurations() -> str:
    """The default configuration and the cuDNN flags."""
    from profiler_kit.configurations.naming import CUDNN_FLAGS, DEFAULT_CONFIG

    return ", ".join((DEFAULT_CONFIG, *CUDNN_FLAGS))


def axes() -> str:
    """The axes, as written in a configuration name."""
    from profiler_kit.configurations.naming import all_axes, axis_syntax

    return ", ".join(axis_syntax(axis) for axis in all_axes())


def changes() -> str:
    """Changes that ``--what-if`` accepts."""
    from profiler_kit.records.variation import CHANGES, change_syntax

    return ", ".join(change_syntax(change) for change in CHANGES)
