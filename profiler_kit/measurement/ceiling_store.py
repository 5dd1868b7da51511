"""Measured device peaks, cached in the user's cache folder.

Peaks are measured in a fresh process. They depend on the device, its driver, the torch version, the number of CPU threads
and the switches that override arithmetic. Each combination has its own cache file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import KitError, ReportError
from profiler_kit.measurement.worker_process import run_worker
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.jobs import CeilingsJob
from profiler_kit.records.machine import Ceilings
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.temporary_files import replacement, temporary_folder

# Start-up included (importing torch, creating the context), a measurement takes about 5 s on either.
GPU_BUDGET_S: Final = 1.5
CPU_BUDGET_S: Final = 2.0
START_UP_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCeilings(Saved, kind="ceilings_cache"):
    """The content of a cache file: the measured peaks, and the key they are valid for."""

    key: tuple[str, ...]
    ceilings: Ceilings


def load_or_measure(
    device: str,
    key: tuple[str, ...],
    *,
    fresh: bool = False,
    limit_s: float | None = None,
    on_progress: OnProgress = ignore_progress,
) -> tuple[Ceilings | None, tuple[str, ...]]:
    """The peaks of `device`, from the cache or measured now (always measured if `fresh`), and notes; None if this fails.

    `key` identifies the device and software, with the device's name first. Nothing else should use the device during a
    measurement. `limit_s` is the timeout of the measurement. `on_progress` is called before it starts. On KeyboardInterrupt
    the process is terminated.
    """
    file = _file(key)
    if not fresh and file is not None:
        cached = _read(file, key)
        if cached is not None:
            return cached, ()
    seconds = GPU_BUDGET_S if device.startswith("cuda") else CPU_BUDGET_S
    on_progress(f"measuring the peaks of {key[0]} (about {seconds:g} s plus start-up, then cached)")
    ceilings, failure = _measure(device, seconds, limit_s)
    if ceilings is None:
        return None, (f"The device's peaks could not be measured: {failure}",)
    if not ceilings.steady:
        unsteady = (
            f"The peaks of {key[0]} varied by up to {ceilings.largest_spread_percent:.0f} % while they were measured, because "
            "something else used the device. They are neither cached nor used as a roof. "
            f"Run {kit_command('env')} when the machine is idle."
        )
        return ceilings, (unsteady,)
    return ceilings, _write(file, CachedCeilings(key=key, ceilings=ceilings))


def cache_folder() -> Path | None:
    """The folder of cached peaks: ``profiler_kit`` under $XDG_CACHE_HOME or ~/.cache; None if the user has no home folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG Base Directory Specification says to ignore a relative path
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # a container's user without an entry in /etc/passwd
            return None
    return base / "profiler_kit"


def _file(key: tuple[str, ...]) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    name = re.sub(r"[^a-z0-9]+", "-", key[0].lower()).strip("-")
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()[:12]
    return folder / "ceilings" / f"{name[:40]}-{digest}.json"


def _read(file: Path, key: tuple[str, ...]) -> Ceilings | None:
    """The peaks cached in `file`; None if it has none for `key` or cannot be read."""
    try:
        cached = from_json(CachedCeilings, json.loads(file.read_bytes()), str(file))
    except (OSError, ValueError, RecursionError, ReportError):
        return None
    return cached.ceilings if cached.key == key and _is_possible(cached.ceilings) else None


def _is_possible(ceilings: Ceilings) -> bool:
    """Whether every rate is a positive number. An edited or damaged file may hold any JSON value."""
    rates = [rate.flops_per_s for rate in ceilings.rates]
    if ceilings.bandwidth_bytes_per_s is not None:
        rates.append(ceilings.bandwidth_bytes_per_s)
    return all(math.isfinite(rate) and rate > 0 for rate in rates)


def _measure(device: str, budget_s: float, limit_s: float | None) -> tuple[Ceilings | None, str]:
    limit_s = limit_s if limit_s is not None else START_UP_S + 10 * budget_s
    with temporary_folder("worker") as folder:
        job = CeilingsJob(device=device, budget_s=budget_s)
        try:
            ceilings, outcome = run_worker("ceilings", job, folder, Ceilings, timeout_s=limit_s)
        except (KitError, ValueError) as error:
            return None, str(error).splitlines()[0]
    if ceilings is not None:
        return ceilings, ""
    if outcome.timed_out:
        return None, f"no result after {limit_s:g} s"
    return None, f"the process ended with {outcome.ending}: {outcome.last_log_line or 'no message'}"


def _write(file: Path | None, cached: CachedCeilings) -> tuple[str, ...]:
    """Write `cached` to `file` atomically; returns a note if the folder is not writable."""
    if file is None:
        return (
            "The measured peaks could not be cached: the user has no home folder. They are measured on every run; "
            "set $XDG_CACHE_HOME to a writable folder.",
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacement(file) as partial:
            partial.write_text(dumps(cached), encoding="utf-8")
    except OSError as error:
        return (
            f"The measured peaks could not be cached in {file.parent}: {error.strerror}. They are measured on every run; "
            "set $XDG_CACHE_HOME to a writable folder.",
        )
    return ()
