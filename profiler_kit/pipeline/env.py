"""What this machine is for the tool: versions, devices and measured ceilings, joined with the datasheet table."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from profiler_kit._version import VERSION
from profiler_kit.records.machine import Machine, Package
from profiler_kit.records.report import SCHEMA, Tool

Say = Callable[[str], None]

# What a distribution is called, and what the tool does with it.
PACKAGES: Final = (
    ("torch", "counting and measuring; saved reports are shown without it"),
    ("numpy", "torch warns without it"),
    ("tabulate", "Markdown tables"),
    ("pandas", "dataframe(report)"),
    ("torchvision", "targets torchvision:NAME"),
    ("timm", "targets timm:NAME"),
    ("transformers", "targets hf:NAME and hf:FOLDER"),
)


def machine(device: str, *, fresh: bool, say: Say) -> Machine:
    """This machine, with the ceilings of `device` (kept ones unless `fresh`). Raises UsageError for no such device."""
    found = Machine(
        schema=SCHEMA,
        tool=Tool(name="profiler_kit", version=VERSION),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        python=platform.python_version(),
        platform=platform.platform(),
        cores=_cores(),
        packages=tuple(Package(name=name, version=_version(name), purpose=purpose) for name, purpose in PACKAGES),
    )
    try:
        from profiler_kit.worker import environment  # noqa: F401 imports torch, as all that is needed below does
    except ImportError as error:
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) and error.name == "torch" else str(error)
        note = f"torch {reason}: saved reports can be shown and compared here, nothing can be counted or measured."
        return replace(found, notes=(note,))
    return _with_torch(found, device, fresh, say)


def _with_torch(found: Machine, asked: str, fresh: bool, say: Say) -> Machine:
    from profiler_kit.diagnosis.roofline import roofs
    from profiler_kit.measurement import ceiling_store
    from profiler_kit.measurement import plan as configs
    from profiler_kit.pipeline.roofs import ceilings_of
    from profiler_kit.worker import ceilings, environment

    device = environment.pick_device(asked)
    plan = configs.plan(environment.backend(device), has_tf32=environment.has_tf32(device), again=False)
    where = environment.describe(device)
    reached, notes = ceilings_of(device, fresh=fresh, say=say)
    folder = ceiling_store.cache_folder()
    built, devices = environment.built_for(), environment.devices()
    if built is not None and not any(one.id.startswith("cuda") for one in devices):
        notes = (
            f"torch is built for {built} and sees no such device: see whether there is a driver (nvidia-smi).",
            *notes,
        )
    return replace(
        found,
        environment=where,
        driver=ceilings.driver_version(),
        torch_cuda=built,
        simd=environment.simd(),
        devices=devices,
        configs=plan.configs,
        config_notes=plan.notes,
        ceilings=reached,
        roofs=roofs(where.device_name, reached),
        cache=str(folder) if folder is not None else None,
        notes=(*notes, *(reached.notes if reached is not None else ())),
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def env(device: str = "auto", *, fresh: bool = False, say: Say | None = None) -> Machine:
    """What this machine is for the tool: devices, versions, what `device` reaches, which configurations mean something.

    Ceilings are measured once and kept; `fresh` measures them again. Raises UsageError for a device that is not there.
    """
    return machine(device, fresh=fresh, say=say or (lambda line: None))
