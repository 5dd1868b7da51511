"""The parent's side of the ceilings: measured in a fresh process, kept in the user's cache folder.

A ceiling holds for a device, its driver, the torch that drives it, the threads it may use and the switches that override
arithmetic; a file is kept for each such combination.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from profiler_kit import process
from profiler_kit.errors import KitError, ReportError
from profiler_kit.measurement.launcher import child_environment
from profiler_kit.records.ceilings import Ceilings
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.worker import ceilings, environment
from profiler_kit.worker.ceilings import CeilingsJob

VERSION: Final = 1  # of the method: raised where old figures would not compare with new ones
START_UP_S: Final = 120.0
OVERRIDES: Final = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Saved, kind="ceilings_cache"):
    """A cache file: for what the ceilings hold, and the ceilings."""

    key: tuple[str, ...]
    ceilings: Ceilings


def ceilings_of(
    device: str, *, fresh: bool = False, limit_s: float | None = None, say: Callable[[str], None] | None = None
) -> tuple[Ceilings | None, tuple[str, ...]]:
    """The ceilings of `device`, kept or measured now (always now if `fresh`), and notes; None where they can't be measured.

    Nothing else should use the device meanwhile. `limit_s` ends a measurement that takes longer. `say` is told before
    measuring. Raises KeyboardInterrupt, the process ended.
    """
    key = _key(device)
    file = _file(key)
    if not fresh and file is not None:
        kept = _read(file, key)
        if kept is not None:
            return kept, ()
    seconds = ceilings.budget_s(device)
    if say is not None:
        say(f"measuring what {key[0]} reaches, once (about {seconds:g} s, and Python's start)")
    found, failure = _measured(device, seconds, limit_s)
    if found is None:
        return None, (f"The device's ceilings could not be measured: {failure}",)
    if not found.steady:
        varied = (
            f"What {key[0]} reaches varied by up to {found.largest_spread_percent:.0f} % while it was measured, as something "
            "else used it: it is not kept, and no roof is made of it; run profiler-kit env when the machine is idle."
        )
        return found, (varied,)
    return found, _write(file, Kept(key=key, ceilings=found))


def cache_folder() -> Path | None:
    """Where ceilings are kept: ``profiler_kit`` under $XDG_CACHE_HOME, else under ~/.cache; None where the user has no home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # a relative path is to be ignored, says the XDG Base Directory Specification
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # a container's user without an entry in /etc/passwd
            return None
    return base / "profiler_kit"


def _key(device: str) -> tuple[str, ...]:
    where = environment.describe(torch.device(device))
    held = [where.device_name, where.device, f"torch {where.torch}", f"method {VERSION}"]
    if device.startswith("cuda"):
        held.append(f"driver {ceilings.driver_version()}")
    else:
        held.append(f"{where.threads} threads")
    return (*held, *(f"{name}={os.environ[name]}" for name in OVERRIDES if name in os.environ))


def _file(key: tuple[str, ...]) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    name = re.sub(r"[^a-z0-9]+", "-", key[0].lower()).strip("-")
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()[:12]
    return folder / "ceilings" / f"{name[:40]}-{digest}.json"


def _read(file: Path, key: tuple[str, ...]) -> Ceilings | None:
    """The ceilings kept in `file`; None where there are none for `key`, or they can't be read."""
    try:
        kept = from_json(Kept, json.loads(file.read_bytes()), str(file))
    except (OSError, ValueError, RecursionError, ReportError):
        return None
    return kept.ceilings if kept.key == key and _is_possible(kept.ceilings) else None


def _is_possible(found: Ceilings) -> bool:
    """Whether every rate is a positive number: an edited or damaged file may hold anything that is JSON."""
    rates = [rate.flops_per_s for rate in found.rates]
    if found.bandwidth_bytes_per_s is not None:
        rates.append(found.bandwidth_bytes_per_s)
    return all(math.isfinite(rate) and rate > 0 for rate in rates)


def _measured(device: str, budget_s: float, limit_s: float | None) -> tuple[Ceilings | None, str]:
    with tempfile.TemporaryDirectory(prefix="profiler_kit_") as folder:
        result, file = Path(folder) / "result.json", Path(folder) / "job.json"
        file.write_text(dumps(CeilingsJob(device=device, budget_s=budget_s, result=str(result))), encoding="utf-8")
        limit_s = limit_s if limit_s is not None else START_UP_S + 10 * budget_s
        try:
            outcome = process.run(
                [sys.executable, "-m", "profiler_kit.worker.ceilings", str(file)],
                env=child_environment(),
                timeout_s=limit_s,
                log=Path(folder) / "log.txt",
            )
            if not result.exists():
                return None, _ending(outcome, limit_s)
            return from_json(
                Ceilings, json.loads(result.read_text(encoding="utf-8")), "the measuring process's result"
            ), ""
        except (KitError, ValueError) as error:
            return None, str(error).splitlines()[0]


def _ending(outcome: process.Outcome, limit_s: float) -> str:
    if outcome.timed_out:
        return f"no result after {limit_s:g} s"
    last = outcome.log_tail.strip().splitlines()[-1:] or ["no message"]
    return f"the process ended with {outcome.signal_name or f'exit status {outcome.returncode}'}: {last[0]}"


def _write(file: Path | None, kept: Kept) -> tuple[str, ...]:
    """Keeps `kept` in `file`, whole or not at all; a note where the folder can't be written."""
    if file is None:
        return (
            "The measured ceilings could not be kept: no home folder, no $XDG_CACHE_HOME; they are measured each time.",
        )
    partial = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(dumps(kept))
        Path(partial).replace(file)
        partial = ""
    except OSError as error:
        return (
            f"The measured ceilings could not be kept in {file.parent}: {error.strerror}; they are measured each time.",
        )
    finally:
        if partial:
            with contextlib.suppress(OSError):
                Path(partial).unlink()
    return ()
