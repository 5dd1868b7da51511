"""Hardware counters of one step by Nsight Compute (``ncu``): executed operations and DRAM bytes of each convolution's kernels.

ncu replays every kernel several times and reads a few counters each time, with base clocks and empty caches. So operations
and bytes are valid for any step. Times are not, and are not recorded.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.measurement import counter_metrics
from profiler_kit.measurement.counter_metrics import KernelRow, Metrics, UnreadableError
from profiler_kit.measurement.worker_process import run_worker
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import ConvolutionPart, ConvolutionTiming, CountedKernel, KernelCounters
from profiler_kit.records.jobs import CountersEnd, CountersJob
from profiler_kit.records.target import TargetSpec
from profiler_kit.temporary_files import temporary_folder

OTHER_KERNELS: Final = "(rest)"  # the path of kernels that no convolution launched
TIMEOUT_S: Final = 600.0  # import, algorithm search, and several replays of each kernel of a step
QUERY_TIMEOUT_S: Final = 60.0

PROGRAM: Final = "ncu"
PLACES: Final = ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu")
HINTS: Final = {
    "ERR_NVGPUCTRPERM": "this user has no permission to read them (ERR_NVGPUCTRPERM). Run as root, give the container "
    "CAP_SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    "driver resource was unavailable": "another program is using them. Pause it (DCGM: dcgmi profile --pause) and run again",
}
# ncu reports this when the worker fails during shutdown. Once the step is complete, that does not matter.
ENDED_BADLY: Final = "returned an error code"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPart:
    """Counters of one part of the convolution at `path` per step, in total and by kernel, sorted by operations.

    `part` is None for the path `OTHER_KERNELS`, which has all kernels outside convolutions.
    """

    path: str
    part: ConvolutionPart | None
    counters: KernelCounters
    kernels: tuple[CountedKernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters of one step under the configuration `config`: the convolutions' parts in order, then all other kernels."""

    config: str
    parts: tuple[CountedPart, ...]


class _NoCountersError(Exception):
    """The reason why counters are missing, as the end of a sentence."""


def find_ncu() -> Path | None:
    """The path of ncu: from PATH, otherwise the newest version in the usual places; None if it is not installed."""
    on_path = shutil.which(PROGRAM)
    if on_path is not None:
        return Path(on_path)
    for pattern in PLACES:
        root = Path(pattern).anchor
        programs = [
            path for path in Path(root).glob(pattern.removeprefix(root)) if path.is_file() and os.access(path, os.X_OK)
        ]
        if programs:
            return max(programs, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))])
    return None


def count(
    spec: TargetSpec,
    config: RunConfig,
    *,
    device: str,
    timeout_s: float | None = None,
    on_progress: OnProgress = ignore_progress,
) -> tuple[Counters | None, tuple[str, ...]]:
    """The counters of one step of `spec` under `config`, and notes. On failure the counters are None and the note has the reason.

    A separate process runs warm-up steps, including algorithm search, then one counted step: forward, loss and backward (in
    ``infer`` mode forward only). Nothing else should use the device meanwhile. `timeout_s` limits the process (default: 600 s).
    On KeyboardInterrupt it is terminated.
    """
    if not device.startswith("cuda"):
        return None, (f"Hardware counters were not read: only NVIDIA devices are supported, not {device}.",)
    ncu = find_ncu()
    if ncu is None:
        return None, (
            "Hardware counters were not read: Nsight Compute (ncu) is not on PATH or in the usual folders. "
            "Install it, or add its folder to PATH.",
        )
    try:
        metrics = _supported_metrics(ncu)
        rows = _run_ncu(ncu, metrics, spec, config, device, timeout_s or TIMEOUT_S, on_progress)
    except _NoCountersError as reason:
        return None, (f"Hardware counters were not read: {reason}.",)
    except (KitError, OSError) as error:
        return None, (f"Hardware counters were not read: {str(error).splitlines()[0]}.",)
    return Counters(config=config.name, parts=_parts(rows)), _notes(rows, metrics)


def with_counters(convolutions: Iterable[ConvolutionTiming], counted: Counters) -> tuple[ConvolutionTiming, ...]:
    """`convolutions` with the counters of their path and part. A part whose timed kernel was not counted stays without counters.

    Algorithm search may choose differently in each process. Counters of another algorithm would be misleading.
    """
    return tuple(
        replace(timing, counters=part.counters, counted_kernels=part.kernels)
        if part is not None and _same_kernel(timing, part)
        else timing
        for timing, part in _pairs(convolutions, counted)
    )


def kernel_mismatches(convolutions: Iterable[ConvolutionTiming], counted: Counters) -> tuple[str, ...]:
    """A note that lists the parts whose timed kernel was not counted; empty if there are none."""
    names = [
        f"{timing.path or 'the model itself'} ({timing.part})"
        for timing, part in _pairs(convolutions, counted)
        if part is not None and not _same_kernel(timing, part)
    ]
    if not names:
        return ()
    return (
        f'No counters for {", ".join(names)} under "{counted.config}": the process that read the counters ran other kernels '
        "than the timed process.",
    )


def _pairs(
    convolutions: Iterable[ConvolutionTiming], counted: Counters
) -> Iterator[tuple[ConvolutionTiming, CountedPart | None]]:
    by_part = {(part.path, part.part): part for part in counted.parts}
    return ((timing, by_part.get((timing.path, timing.part))) for timing in convolutions)


@functools.lru_cache(maxsize=4)
def _supported_metrics(ncu: Path) -> Metrics:
    """The metrics to request from the devices of this machine. The result is cached."""
    query = process.run([ncu, "--query-metrics"], timeout_s=QUERY_TIMEOUT_S)
    if query.timed_out:
        raise _NoCountersError(f"ncu did not list its metrics within {QUERY_TIMEOUT_S:g} s")
    if not query.ok:
        raise _NoCountersError(_failure_reason(query.stdout, query))
    metrics = counter_metrics.select_metrics(counter_metrics.metric_names(query.stdout))
    if metrics is None:
        raise _NoCountersError("ncu has no metrics for the DRAM bytes and operations of this device")
    return metrics


def _run_ncu(
    ncu: Path,
    metrics: Metrics,
    spec: TargetSpec,
    config: RunConfig,
    device: str,
    timeout_s: float,
    on_progress: OnProgress,
) -> tuple[KernelRow, ...]:
    with temporary_folder("worker") as folder:
        table = folder / "ncu.csv"
        end, outcome = run_worker(
            "counters_run",
            CountersJob(spec=spec, config=config, device=device),
            folder,
            CountersEnd,
            timeout_s=timeout_s,
            launcher=_command(ncu, metrics, table),
            on_progress=on_progress,
        )
        # The model's own output may look like ncu's, so only ncu's file is read.
        text = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    _check(outcome, text, end, timeout_s)
    try:
        rows = counter_metrics.parse_table(text, metrics)
    except UnreadableError as error:
        raise _NoCountersError(f"the output of ncu cannot be parsed ({error})") from error
    if not rows:
        raise _NoCountersError("ncu recorded no kernel on the device" if outcome.ok else _failure_reason(text, outcome))
    return rows


def _command(ncu: Path, metrics: Metrics, table: Path) -> tuple[str, ...]:
    return (
        *(str(ncu), "--nvtx", "--csv", "--page", "raw", "--print-units", "base"),
        *("--profile-from-start", "off", "--target-processes", "all"),
        *("--log-file", str(table), "--metrics", ",".join(metrics.names)),
    )


def _check(outcome: process.Outcome, table: str, end: CountersEnd | None, timeout_s: float) -> None:
    """Raise unless the step completed and ncu reported no error, because counters of some kernels are not the step's."""
    if outcome.timed_out:
        raise _NoCountersError(
            f"no result after {timeout_s:g} s, so the process was terminated. Raise --timeout: ncu replays each kernel many times"
        )
    if end is None or any(ENDED_BADLY not in error for error in counter_metrics.error_messages(table)):
        raise _NoCountersError(_failure_reason(table, outcome))
    if end.failure is not None:
        raise _NoCountersError(end.failure.rstrip("."))


def _failure_reason(text: str, outcome: process.Outcome) -> str:
    """The reason of a failure, from ncu's messages or the last output of the process."""
    hint_of_sign = next((hint for sign, hint in HINTS.items() if sign in text or sign in outcome.log_tail), None)
    if hint_of_sign is not None:
        return hint_of_sign
    message = next(iter(counter_metrics.error_messages(text)), outcome.last_log_line) or "no message"
    return f"ncu ended with {outcome.ending} ({message.rstrip('.')})"


def _parts(rows: tuple[KernelRow, ...]) -> tuple[CountedPart, ...]:
    groups: dict[tuple[str, ConvolutionPart | None], list[KernelRow]] = {}
    for row in rows:
        key = (row.path, row.part) if row.path is not None else (OTHER_KERNELS, None)
        groups.setdefault(key, []).append(row)
    return tuple(
        CountedPart(path=path, part=part, counters=_sum(group), kernels=_sum_by_kernel(group))
        for (path, part), group in sorted(
            groups.items(), key=lambda item: item[0] == (OTHER_KERNELS, None)
        )  # REST last
    )


def _sum_by_kernel(rows: list[KernelRow]) -> tuple[CountedKernel, ...]:
    groups: dict[str, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault(row.kernel, []).append(row)
    kernels = [CountedKernel(name=name, counters=_sum(group)) for name, group in groups.items()]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.counters.flops, -kernel.counters.dram_bytes)))


def _sum(rows: list[KernelRow]) -> KernelCounters:
    first, *others = (row.counters for row in rows)
    return functools.reduce(lambda total, summand: total + summand, others, first)


def _notes(rows: tuple[KernelRow, ...], metrics: Metrics) -> tuple[str, ...]:
    notes = []
    incomplete = sum(not row.counters.complete for row in rows)
    if incomplete:
        notes.append(
            f"This device has no counter for the operations of tensor cores. {incomplete} of {len(rows)} kernels used them, so "
            "their executed operations are incomplete."
        )
    if not any(row.path is not None for row in rows):
        notes.append("Hardware counters: the counted step ran no convolution.")
    return tuple(notes)


_NAMESPACES: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\b\w+::")
_WORDS: Final = frozenset({"void", "const", "unsigned", "true", "false", "bool", "int", "long", "enum"})


def _same_kernel(timing: ConvolutionTiming, counted: CountedPart) -> bool:
    """Whether the timed kernel is among the counted ones. The profiler and ncu format template arguments differently."""
    timed_names = _identifiers(timing.kernel)
    return any(_identifiers(kernel.name) == timed_names for kernel in counted.kernels)


def _identifiers(kernel: str) -> tuple[str, ...]:
    """The identifiers in a kernel's name and template arguments, without parameters, namespaces, numbers and casts."""
    plain = re.sub(r"\((?:int|bool|unsigned int|long|enum \w+|[\w:]+)\)(?=[-\w])", "", _NAMESPACES.sub("", kernel))
    without_parameters = plain.partition("(")[0]
    return tuple(word for word in re.findall(r"[A-Za-z_]\w*", without_parameters) if word not in _WORDS)
