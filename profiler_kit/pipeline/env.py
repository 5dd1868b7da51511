"""The verb `env`: this machine's devices, versions, and measured peaks beside the datasheet's."""

from __future__ import annotations

import datetime
import platform
from dataclasses import replace

from profiler_kit._version import VERSION
from profiler_kit.pipeline.packages import INSTALL_TORCH, packages
from profiler_kit.process import usable_cores
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.machine import Machine
from profiler_kit.records.report import Tool


def env(device: str = "auto", *, fresh: bool = False, say: OnProgress | None = None) -> Machine:
    """This machine: devices, versions, what `device` reaches, which configurations mean something.

    Ceilings are measured once and kept; `fresh` measures them again. Raises UsageError for a device that is not there.
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
        from profiler_kit.worker import environment  # noqa: F401 imports torch, as all that is needed below does
    except ImportError as error:
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) and error.name == "torch" else str(error)
        note = (
            f"torch {reason}: saved reports can be shown and compared here, and traces inspected; "
            f"nothing can be counted or measured: {INSTALL_TORCH}"
        )
        return replace(machine, notes=(note,))
    return _with_torch(machine, device, fresh, say or silent)


def _with_torch(machine: Machine, device_name: str, fresh: bool, say: OnProgress) -> Machine:
    from profiler_kit.diagnosis.roofline import roofs
    from profiler_kit.measurement import ceiling_store
    from profiler_kit.measurement import plan as configs
    from profiler_kit.pipeline.roofs import ceilings_of
    from profiler_kit.worker import ceilings, environment

    device = environment.pick_device(device_name)
    plan = configs.plan(environment.backend(device), has_tf32=environment.has_tf32(device), again=False)
    where = environment.describe(device)
    reached, notes = ceilings_of(device, fresh=fresh, say=say)
    folder = ceiling_store.cache_folder()
    built, devices = environment.built_for(), environment.devices()
    if built is not None and not any(entry.id.startswith("cuda") for entry in devices):
        notes = (
            f"torch is built for {built} and sees no such device: see whether there is a driver (nvidia-smi).",
            *notes,
        )
    return replace(
        machine,
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
