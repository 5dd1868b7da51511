"""The names that options accept, for their help: read from the registries, so that a newcomer there is listed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CONVENTIONS: Final = Path(__file__).resolve().parents[1] / "counting" / "conventions"
_CONVENTION: Final = re.compile(r'^CONVENTION = Convention\(\s*name="([^"]+)"', re.MULTILINE)


def formats() -> str:
    """The output formats."""
    from profiler_kit.render import renderers

    return ", ".join(renderer.name for renderer in renderers())


def suffixes() -> str:
    """The suffixes of files that a format is written to."""
    from profiler_kit.render import renderers

    return ", ".join(suffix for renderer in renderers() for suffix in renderer.suffixes)


def conventions() -> str:
    """The conventions of counting. Their files are read as text: importing them needs torch."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(CONVENTIONS.glob("*.py")))
    return ", ".join(name for text in texts for name in _CONVENTION.findall(text))


def gpus() -> str:
    """The devices whose memory can be simulated, and which is taken where none is named."""
    from profiler_kit.devices.registry import DEFAULT, architecture_names, choices, devices

    return (
        f"{choices(devices())}; an architecture ({architecture_names()}) is its best-known card (default: the one here, or "
        f"{DEFAULT.short[0]})"
    )


def cards() -> str:
    """The devices with a datasheet, by their short names."""
    from profiler_kit.devices.registry import choices, with_peaks

    return choices(with_peaks())


def cudnn_configurations() -> str:
    """The default configuration and cuDNN's flags."""
    from profiler_kit.configurations.naming import DEFAULT, FLAGS

    return ", ".join((DEFAULT, *FLAGS))


def axes() -> str:
    """The axes, as a configuration's name spells them."""
    from profiler_kit.configurations.naming import all_axes, spelled

    return ", ".join(spelled(axis) for axis in all_axes())


def changes() -> str:
    """The changes of ``--what-if``."""
    from profiler_kit.records.variation import CHANGES, spelled

    return ", ".join(spelled(change) for change in CHANGES)
