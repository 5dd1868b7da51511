"""The packages that profiler_kit uses, with their purposes and installed versions; the errors for missing ones."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from profiler_kit.command_lines import install_command
from profiler_kit.errors import TargetError
from profiler_kit.foreign import installed_version
from profiler_kit.records.machine import Package

# (distribution, purpose): the requirements and extras of pyproject.toml, and packages for some targets and options.
PACKAGES: Final = (
    ("torch", "counting and measuring"),
    ("numpy", "reading traces"),
    ("msgspec", "reading traces and saved reports"),
    ("rich", "text on the terminal"),
    ("tabulate", "Markdown tables"),
    ("cloudpickle", "analyze(model, inputs) in Python"),
    *((("tomli", "budgets in pyproject.toml"),) if sys.version_info < (3, 11) else ()),
    ("pandas", "dataframe(report) and Inspection.events()"),
    ("pyarrow", "inspect --to parquet, and results.parquet of sweep"),
    ("matplotlib", "charts as images"),
    ("tensorboard", "--tensorboard"),
    ("nvidia-ml-py", "clock and temperature of an NVIDIA GPU"),
    ("fvcore", "count --cross-check"),
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
