"""What this machine is for the tool: versions, devices and measured ceilings, joined with the datasheet table."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from dataclasses import replace
from typing import Final

from profiler_kit._version import VERSION
from profiler_kit.process import usable_cores
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.machine import Machine, Package
from profiler_kit.records.report import SCHEMA, Tool

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


def env(device: str = "auto", *, fresh: bool = False, say: OnProgress | None = None) -> Machine:
    """What this machine is for the tool: devices, versions, what `device` reaches, which configurations mean something.

    Ceilings are measured once and kept; `fresh` measures them again. Raises UsageError for a device that is not there.
    """
    without_torch = Machine(
        schema=SCHEMA,
        tool=Tool(name="profiler_kit", version=VERSION),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        python=platform.python_version(),
        platform=platform.platform(),
        cores=usable_cores(),
        packages=tuple(Package(name=name, version=_version(name), purpose=purpose) for name, purpose in PACKAGES),
    )
    try:
        from profiler_kit.worker import environment  # noqa: F401 imports torch, as all that is needed below does
    except ImportError as error:
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) and error.name == "torch" else str(error)
        note = f"torch {reason}: saved reports can be shown and compared here, nothing can be counted or measured."
        return replace(without_torch, notes=(note,))
    return _with_torch(without_torch, device, fresh, say or silent)


def _with_torch(machine_info: Machine, asked: str, fresh: bool, say: OnProgress) -> Machine:
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
        machine_info,
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


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
