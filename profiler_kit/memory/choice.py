"""Which device to simulate: the one asked for, the one that is there, or the one most figures were measured on."""

from __future__ import annotations

from dataclasses import replace

import torch

from profiler_kit.devices.profiles import CPU, PROFILES, SM90, Profile, Row, profile_named


def profile_for(name: str | None = None, device: str | None = None) -> Profile:
    """The profile called `name`; else that of `device` (``cpu``, ``cuda:0``); else that of a GPU that is here, or sm90.

    A GPU has the profile of its compute capability, or of the nearest older one, with its own number of multiprocessors.
    Raises UsageError where there is no profile of that name.
    """
    if name is not None:
        return profile_named(name)
    if device is not None and not device.startswith("cuda"):
        return CPU
    if torch.version.hip is not None or not torch.cuda.is_available():
        return SM90
    found = torch.cuda.get_device_properties(device if device is not None else "cuda")
    base = nearest(10 * found.major + found.minor)
    row = Row(found.multi_processor_count, f"asked of this machine's {found.name}")
    return replace(base, card=found.name, multiprocessors=row)


def nearest(capability: int) -> Profile:
    """The profile of `capability` (major times ten plus minor), or of the nearest older one; of the oldest below that."""
    cards = sorted((profile for profile in PROFILES.values() if profile.is_cuda), key=lambda each: each.capability)
    older = [profile for profile in cards if profile.capability <= capability]
    return older[-1] if older else cards[0]
