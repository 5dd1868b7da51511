"""This machine: devices, measured peaks next to those of the datasheet, and the packages that profiler_kit uses.

The packages have their purposes and installed versions; missing ones have their errors.
"""

from __future__ import annotations

import datetime
import gc
import importlib.util
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from profiler_kit._version import VERSION
from profiler_kit.command_lines import install_command
from profiler_kit.errors import TargetError
from profiler_kit.foreign import installed_version
from profiler_kit.process import usable_cores
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.machine import Machine, Package
from profiler_kit.records.report import Tool

# (distribution, purpose): the requirements and extras of pyproject.toml, and packages for some targets and options.
PACKAGES: Final = (
    ("torch", "counting and measuring"),
    ("numpy", "reading traces"),
    ("msgspec", "reading traces and saved reports"),
    ("rich", "text on the terminal"),
    ("tabulate", "Markdown tables"),
    ("pyyaml", "configurations that a repository states in YAML"),
    ("tomlkit", "changes of budgets in pyproject.toml"),
    ("cloudpickle", "analyze(model, inputs) in Python"),
    *((("tomli", "budgets in pyproject.toml"),) if sys.version_info < (3, 11) else ()),
    ("pandas", "dataframe(report) and Inspection.events()"),
    ("pyarrow", "inspect --to parquet, and results.parquet of sweep"),
    ("matplotlib", "charts as images"),
    ("tensorboard", "--tensorboard"),
    ("nvidia-ml-py", "clock and temperature of an NVIDIA GPU"),
    ("fvcore", "count --cross-check"),
    ("mcp", "the command mcp"),
    ("ray", "sweep --engine ray"),
    ("torchvision", "targets torchvision:NAME"),
    ("timm", "targets timm:NAME"),
    ("transformers", "targets hf:NAME and hf:FOLDER"),
)


def packages() -> tuple[Package, ...]:
    """Every package of `PACKAGES` with its installed version; None if it is not installed."""
    return tuple(Package(name=name, version=installed_version(name), purpose=purpose) for name, purpose in PACKAGES)


def install_torch() -> str:
    """The command that installs torch."""
    return install_command("profiler-kit[torch]")


def require_torch() -> None:
    """Raise TargetError with the install command if torch is not installed."""
    try:
        installed = importlib.util.find_spec("torch") is not None
    except ImportError:
        installed = False
    if not installed:
        raise TargetError("counting and measuring need torch, which is not installed", hint=install_torch())


@contextmanager
def collection_paused() -> Iterator[None]:
    """Inside the block, the garbage collector does not run. For imports, which create many objects and hardly any garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def missing_package(error: Exception) -> TargetError | None:
    """Return the error for an import of a package of `PACKAGES` that is not installed; None for any other `error`."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    purpose = dict(PACKAGES).get(name or "")
    if purpose is None:
        return None
    hint = install_torch() if name == "torch" else install_command(name or "")
    return TargetError(f"the package {name} is not installed; profiler_kit needs it for {purpose}", hint=hint)


def env(
    device: str = "auto", *, fresh: bool = False, host: bool = False, on_progress: OnProgress = ignore_progress
) -> Machine:
    """Describe this machine: devices, versions, the measured peaks of `device`, and the configurations that apply to it.

    Peaks are measured once and saved; `fresh` measures them again. `host` also measures how fast the host runs
    eager PyTorch. Raises UsageError for a missing device.
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
    machine = _with_torch(machine, device, fresh, on_progress)
    if not host:
        return machine
    from profiler_kit.worker.host_speed import host_factor

    on_progress("measuring the host")
    return replace(machine, host_factor=round(host_factor(), 2))


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
