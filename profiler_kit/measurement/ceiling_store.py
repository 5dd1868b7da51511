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
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.errors import KitError, ReportError
from profiler_kit.measurement.worker_process import run_worker, worker_folder
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.ceilings import Ceilings
from profiler_kit.records.jobs import CeilingsJob
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json

# With Python's start (importing torch, creating the context) both stay near 5 s.
GPU_BUDGET_S: Final = 1.5
CPU_BUDGET_S: Final = 2.0
START_UP_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Saved, kind="ceilings_cache"):
    """A cache file: for what the ceilings hold, and the ceilings."""

    key: tuple[str, ...]
    ceilings: Ceilings


def ceilings_of(
    device: str,
    key: tuple[str, ...],
    *,
    fresh: bool = False,
    limit_s: float | None = None,
    on_progress: OnProgress = silent,
) -> tuple[Ceilings | None, tuple[str, ...]]:
    """The ceilings of `device`, kept or measured now (always now if `fresh`), and notes; None where they can't be measured.

    `key` says what they hold for, the device's name first. Nothing else should use the device meanwhile. `limit_s` ends a
    measurement that takes longer. `on_progress` is called before measuring. Raises KeyboardInterrupt, the process ended.
    """
    file = _file(key)
    if not fresh and file is not None:
        kept_ceilings = _read(file, key)
        if kept_ceilings is not None:
            return kept_ceilings, ()
    seconds = GPU_BUDGET_S if device.startswith("cuda") else CPU_BUDGET_S
    on_progress(f"measuring what {key[0]} reaches, once (about {seconds:g} s, and Python's start)")
    ceilings, failure = _measured(device, seconds, limit_s)
    if ceilings is None:
        return None, (f"The device's ceilings could not be measured: {failure}",)
    if not ceilings.steady:
        varied = (
            f"What {key[0]} reaches varied by up to {ceilings.largest_spread_percent:.0f} % while it was measured, as something "
            "else used it: it is not kept, and no roof is made of it; run profiler-kit env when the machine is idle."
        )
        return ceilings, (varied,)
    return ceilings, _write(file, Kept(key=key, ceilings=ceilings))


def cache_folder() -> Path | None:
    """Where ceilings are kept: ``profiler_kit`` under $XDG_CACHE_HOME, else under ~/.cache; None where the user has no home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # a relative path is to be ignored, says the XDG Base Directory Specification
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
    """The ceilings kept in `file`; None where there are none for `key`, or they can't be read."""
    try:
        kept = from_json(Kept, json.loads(file.read_bytes()), str(file))
    except (OSError, ValueError, RecursionError, ReportError):
        return None
    return kept.ceilings if kept.key == key and _is_possible(kept.ceilings) else None


def _is_possible(ceilings: Ceilings) -> bool:
    """Whether every rate is a positive number: an edited or damaged file may hold anything that is JSON."""
    rates = [rate.flops_per_s for rate in ceilings.rates]
    if ceilings.bandwidth_bytes_per_s is not None:
        rates.append(ceilings.bandwidth_bytes_per_s)
    return all(math.isfinite(rate) and rate > 0 for rate in rates)


def _measured(device: str, budget_s: float, limit_s: float | None) -> tuple[Ceilings | None, str]:
    limit_s = limit_s if limit_s is not None else START_UP_S + 10 * budget_s
    with worker_folder() as folder:
        job = CeilingsJob(device=device, budget_s=budget_s)
        try:
            ceilings, outcome = run_worker("ceilings", job, folder, Ceilings, timeout_s=limit_s)
        except (KitError, ValueError) as error:
            return None, str(error).splitlines()[0]
    if ceilings is not None:
        return ceilings, ""
    if outcome.timed_out:
        return None, f"no result after {limit_s:g} s"
    return None, f"the process ended with {outcome.ending}: {outcome.last_words or 'no message'}"


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
