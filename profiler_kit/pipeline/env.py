"""This machine: devices, versions, and measured peaks next to those of the datasheet."""

from __future__ import annotations

import datetime
import platform
from dataclasses import replace

from profiler_kit._version import VERSION
from profiler_kit.pipeline.packages import install_torch, packages
from profiler_kit.process import usable_cores
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.machine import Machine
from profiler_kit.records.report import Tool


def env(device: str = "auto", *, fresh: bool = False, on_progress: OnProgress = ignore_progress) -> Machine:
    """Describe this machine: devices, versions, the measured peaks of `device`, and the configurations that apply to it.

    Peaks are measured once and saved; `fresh` measures them again. Raises UsageError for a missing device.
    """
    machine = Machine(
        tool=Tool(name="profiler_kit", version=VERSION),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        python=platform.python_version(),
        platform=platform.platform(),
        cores=usable_cores(),
        packages=packages(),
    )
    try:
        from profiler_kit.worker import environment  # noqa: F401 imports torch, like everything below
    except ImportError as error:
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) and error.name == "torch" else str(error)
        note = (
            f"torch {reason}: saved reports and traces can be read, but targets cannot be counted or measured. "
            f"To install torch, run: {install_torch()}"
        )
        return replace(machine, notes=(note,))
    return _with_torch(machine, device, fresh, on_progress)


def _with_torch(machine: Machine, device_name: str, fresh: bool, on_progress: OnProgress) -> Machine:
    from profiler_kit.diagnosis.roofline import roofs
    from profiler_kit.measurement import ceiling_store
    from profiler_kit.measurement import plan as configs
    from profiler_kit.pipeline.rooflines import ceilings_of
    from profiler_kit.worker import ceilings, environment

    device = environment.pick_device(device_name)
    plan = configs.make_plan(environment.backend(device), has_tf32=environment.has_tf32(device), again=False)
    description = environment.describe(device)
    peaks, notes = ceilings_of(device, fresh=fresh, on_progress=on_progress)
    folder = ceiling_store.cache_folder()
    cuda_version, devices = environment.accelerator_platform(), environment.devices()
    if cuda_version is not None and not any(entry.id.startswith("cuda") for entry in devices):
        notes = (
            f"torch is built for {cuda_version} but finds no such device: check the driver with nvidia-smi.",
            *notes,
        )
    return replace(
        machine,
        environment=description,
        driver=ceilings.driver_version(),
        torch_cuda=cuda_version,
        simd=environment.simd_name(),
        devices=devices,
        configs=plan.configs,
        config_notes=tuple(map(str, plan.notes)),
        ceilings=peaks,
        roofs=roofs(description.device_name, peaks),
        cache=str(folder) if folder is not None else None,
        notes=(*notes, *(peaks.notes if peaks is not None else ())),
    )
