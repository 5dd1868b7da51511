"""Sweeps: many models x batch sizes x configurations in one table, which a later call continues."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.util
import os
import re
import shlex
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from profiler_kit.errors import KitError, ReportError, UsageError
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.pipeline.reports import TOOL, now
from profiler_kit.pipeline.sweep_engines import Engine, LocalEngine, RayEngine, TaskEnd
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.metrics import find_metric, value_of
from profiler_kit.records.progress import OnProcess, ProcessStart, ignore_processes
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps, loads, loads_report
from profiler_kit.records.sweeps import Sweep, SweepResult, SweepRun, SweepTask, SweepVerb
from profiler_kit.records.target import TargetSpec, inputs_text
from profiler_kit.statistics.noise import noise_of
from profiler_kit.temporary_files import replacement

JOURNAL: Final = "results.jsonl"
LISTED_ZOOS: Final = ("timm", "torchvision")
REPORTS: Final = "reports"
PATTERN: Final = re.compile(r"[*?\[]")
DEFAULT_TASK_TIMEOUT_S: Final = 1800.0
MAX_NAME_CHARS: Final = 80
LOCK_S: Final = 5.0  # to wait for a sweep that was just killed to disappear


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What each task does, and where.

    - `verb`: ``analyze`` measures, ``count`` only counts. `argv`: the words that all tasks share, such as ``--mode infer``.
    - `configs`: the configurations; None for all that apply. `batches`: the batch sizes; empty for each model's own.
    - `devices`: names such as ``cpu`` or ``cuda:1``; ``auto`` for all GPUs, or the CPU where there is none.
    - `engine`: ``local`` or ``ray``. `ray_address`: of the cluster; empty for one on this machine.
    - `task_timeout_s`: the limit of a task. `retries_failed`: whether tasks that failed in an earlier call run again.
    """

    verb: SweepVerb = "analyze"
    argv: tuple[str, ...] = ()
    configs: tuple[str, ...] | None = None
    batches: tuple[int, ...] = ()
    devices: tuple[str, ...] = ("auto",)
    engine: str = "local"
    ray_address: str = ""
    task_timeout_s: float = DEFAULT_TASK_TIMEOUT_S
    retries_failed: bool = False


class UnsavedResultError(UsageError):
    """A result could not be written. `sweep` has all results, also that one."""

    def __init__(self, error: OSError, folder: Path, sweep: Sweep) -> None:
        super().__init__(
            f"cannot write a result: {error.strerror}",
            where=str(folder),
            hint="free disk space; the same command continues, and runs the last task again",
        )
        self.sweep = sweep


def run_sweep(
    models: Sequence[str],
    folder: Path,
    options: SweepOptions,
    *,
    check_words: Callable[[Sequence[str]], None] = lambda words: None,
    on_progress: OnProgress = ignore_progress,
    on_process: OnProcess = ignore_processes,
) -> tuple[Sweep, bool]:
    """Run the tasks of `models` that `folder` has no result of, and return all results and whether Ctrl-C stopped them.

    `models`: TARGET texts, patterns such as ``timm:resnet*``, and list files (.txt). Each result is appended to the journal in
    `folder` when its task ends, so a killed sweep loses only the running tasks. `check_words` checks the options in a list file.

    Raises:
        UsageError: no model, a pattern without a match, an unknown device, or another sweep that writes to `folder`.
        UnsavedResultError: a result cannot be written, for example because the disk is full. The sweep stops.
        TargetError: the zoo of a pattern is not installed.
    """
    require_torch()
    devices = _devices(options) if options.verb == "analyze" else ()
    tasks = sweep_tasks(models, options, devices[0].partition(":")[0] if devices else "", check_words)
    (folder / REPORTS).mkdir(parents=True, exist_ok=True)
    with _journal(folder / JOURNAL) as (journal, earlier):
        results = {result.task.key: result for result in earlier if not (options.retries_failed and result.failure)}
        pending = [task for task in tasks if task.key not in results]
        skipped = len(tasks) - len(pending)
        if skipped:
            on_progress(f"{skipped} of {len(tasks)} tasks have a result already")
        interrupted = False
        disk_error: OSError | None = None
        started_s = time.monotonic()
        try:
            with contextlib.closing(_engine(options, devices, on_progress).run(pending)) as ends:
                for number, (task, end) in enumerate(ends, start=1):
                    result = results[task.key] = _result(task, end)
                    try:
                        result = results[task.key] = _stored(result, end, folder, journal)
                    except OSError as error:
                        disk_error = error
                        break
                    left_s = (time.monotonic() - started_s) / number * (len(pending) - number)
                    name = f"{_words(task)}: {f'failed: {result.failure}' if result.failure else 'done'}"
                    left_ns = round(left_s * 1e9)
                    on_process(ProcessStart(number=number, count=len(pending), name=name, left_ns=left_ns))
        except KeyboardInterrupt:
            interrupted = True
        on_process(None)
    keys = dict.fromkeys([*(task.key for task in tasks), *results])
    notes = []
    if again := sum(result.attempts > 1 for result in results.values()):
        notes.append(f"{again} of {len(results)} tasks were started again because their worker was lost.")
    sweep = Sweep(
        tool=TOOL,
        created=now(),
        planned=len(keys),
        results=tuple(results[key] for key in keys if key in results),
        notes=tuple(notes),
    )
    if disk_error is not None:
        raise UnsavedResultError(disk_error, folder, sweep)
    return sweep, interrupted


def sweep_tasks(
    models: Sequence[str],
    options: SweepOptions,
    device: str,
    check_words: Callable[[Sequence[str]], None] = lambda words: None,
) -> tuple[SweepTask, ...]:
    """The tasks, in the order of `models`, without duplicates. Raises UsageError, TargetError."""
    configs = ("--configs", ",".join(options.configs)) if options.configs is not None else ()
    tasks: dict[str, SweepTask] = {}
    for model, words in _models(models, check_words):
        for batch in options.batches or (None,):
            sizes = ("--batch", str(batch)) if batch is not None else ()
            task = SweepTask(
                model=model,
                verb=options.verb,
                argv=(*words, *options.argv, *configs, *sizes),
                batch=batch,
                device=device,
            )
            tasks.setdefault(task.key, task)
    if not tasks:
        raise UsageError(
            "no model", hint="name a target, a pattern such as timm:resnet*, or a .txt file with one per line"
        )
    return tuple(tasks.values())


def _models(
    models: Sequence[str], check_words: Callable[[Sequence[str]], None]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each TARGET text with the options that its line of a list file adds."""
    for text in models:
        if text.endswith(".txt"):
            for number, line in enumerate(_lines(Path(text)), start=1):
                try:
                    words = shlex.split(line, comments=True)
                    if words:
                        check_words(words[1:])
                except (ValueError, UsageError) as error:
                    hint = error.hint if isinstance(error, UsageError) else "close the quotation mark"
                    raise UsageError(
                        str(getattr(error, "message", error)), where=f"{text}:{number}", hint=hint
                    ) from error
                if words:
                    yield from ((model, tuple(words[1:])) for model in _expanded(words[0]))
        else:
            yield from ((model, ()) for model in _expanded(text))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"cannot read this list: {getattr(error, 'strerror', None) or error}",
            where=str(file),
            hint="give a text file with one target per line",
        ) from error


def _expanded(model: str) -> tuple[str, ...]:
    """The TARGET texts of `model`. Raises UsageError for a name that no task could load."""
    place, _, _ = model.partition(":")
    if place.endswith(".py"):
        from profiler_kit.loading.scripts.source import require_file

        require_file(TargetSpec(spec=model, command=("sweep", "")))
        return (model,)
    if PATTERN.search(model) is None and not (place in LISTED_ZOOS and importlib.util.find_spec(place)):
        return (model,)
    from profiler_kit.loading.zoo.patterns import zoo_models

    return zoo_models(model)


def _devices(options: SweepOptions) -> tuple[str, ...]:
    """The devices by name. Raises UsageError for one that does not exist, and for devices of several kinds."""
    from profiler_kit.worker import environment

    if options.devices == ("auto",):
        return environment.all_devices()
    if options.engine == "ray":  # the devices are those of the cluster
        return options.devices
    devices = tuple(dict.fromkeys(environment.pick_device(name) for name in options.devices))
    if len({name.partition(":")[0] for name in devices}) > 1:
        raise UsageError("devices of several kinds give times that do not compare", hint="run one sweep for each kind")
    return devices


def _engine(options: SweepOptions, devices: tuple[str, ...], on_progress: OnProgress) -> Engine:
    if options.engine == "ray":
        kind = devices[0].partition(":")[0] if devices else ""
        return RayEngine(
            address=options.ray_address, kind=kind, timeout_s=options.task_timeout_s, on_progress=on_progress
        )
    return LocalEngine(devices=devices, timeout_s=options.task_timeout_s)


@contextlib.contextmanager
def _journal(file: Path) -> Iterator[tuple[BinaryIO, list[SweepResult]]]:
    """The journal, open at its end and locked, and its results. A line that a killed sweep did not finish is removed.

    Raises UsageError if another process has it open, ReportError if a line is not a result.
    """
    with file.open("a+b", buffering=0) as journal:
        until_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until_s:
                    raise UsageError(
                        "another sweep writes to this file",
                        where=str(file),
                        hint="wait for it, or choose another folder with --out",
                    ) from error
            time.sleep(0.02)
        journal.seek(0)
        content = journal.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            journal.truncate(len(whole))
        results = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                results.append(loads(SweepResult, line, f"{file}:{number}"))
            except ReportError as error:
                raise ReportError(
                    error.message, where=error.where, hint="remove this line; its task runs again"
                ) from error
        yield journal, results


def _stored(result: SweepResult, end: TaskEnd, folder: Path, journal: BinaryIO) -> SweepResult:
    """Add `result` to the journal, and its report to `folder`. Raises OSError."""
    if result.name:
        file = folder / REPORTS / f"{_file_name(result.task)}.json"
        with replacement(file) as partial:
            partial.write_text(end.report, encoding="utf-8")
        result = replace(result, report=f"{REPORTS}/{file.name}")
    _append(journal, result)
    return result


def _append(journal: BinaryIO, result: SweepResult) -> None:
    """Add `result` to the journal, completely or not at all. Raises OSError."""
    line = dumps(result, indent=None).encode()
    size = os.fstat(journal.fileno()).st_size
    try:
        if os.write(journal.fileno(), line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(journal.fileno())
    except OSError:
        os.ftruncate(journal.fileno(), size)
        raise


def _result(task: SweepTask, end: TaskEnd) -> SweepResult:
    """The result of a task, with the figures of its report."""
    result = SweepResult(
        task=task,
        finished=now(),
        wall_ns=end.wall_ns,
        place=end.place,
        attempts=end.attempts,
        failure=end.failure.removeprefix(f"{task.model}: "),
        hint=end.hint,
    )
    if not end.report:
        return result if result.failure else replace(result, failure="no report was written")
    try:
        report = loads_report(end.report, task.model)
    except KitError as error:  # a full disk
        return replace(result, failure=result.failure or error.message)
    return with_report(result, report)


def with_report(result: SweepResult, report: Report) -> SweepResult:
    """`result` with the figures of its report."""
    runs = tuple(_runs(report))
    timed = next((run for run in report.runs if run.failure is None), None)
    forecast = report.static.forecast if report.static is not None else None
    return replace(
        result,
        name=report.target.name,
        device_name=timed.environment.device_name or "" if timed is not None and timed.environment is not None else "",
        inputs=inputs_text(report.target.inputs),
        examples=timed.samples if timed is not None else result.task.batch,
        inputs_are_guessed=report.target.inputs_are_guessed,
        params=_counted(report, "params"),
        macs=_counted(report, "macs"),
        forward_flops=_counted(report, "forward_flops"),
        flops=_counted(report, "flops"),
        saved_bytes=_counted(report, "saved") if report.target.mode == "train" else None,
        predicted_bytes=_counted(report, "peak"),
        uncounted=_counted(report, "uncounted") or 0,
        kernel_ns=forecast.kernel_ns.median if forecast is not None else None,
        step_ns=forecast.step_ns.median if forecast is not None else None,
        runs=runs,
    )


def _counted(report: Report, key: str) -> int | None:
    metric = find_metric(key)
    assert metric is not None
    return value_of(report, metric)


def _runs(report: Report) -> Iterator[SweepRun]:
    runs = [run for run in report.runs if run.config.repeat_of is None]
    noise = noise_of(report)
    flops = _counted(report, "flops")
    for run in runs:
        step_s = run.step_ns.median * 1e-9 if run.step_ns is not None and run.step_ns.median else None
        difference = noise.difference(runs[0], run) if run is not runs[0] else None
        yield SweepRun(
            config=run.config.name,
            failure=run.failure.message if run.failure is not None else "",
            step_ns=run.step_ns,
            processes=len(noise.processes(run)),
            ratio=difference.ratio if difference is not None else None,
            outcome=difference.outcome if difference is not None else None,
            examples_per_s=_rate(run.samples, step_s),
            flops_per_s=_rate(flops if _same_work(run) else None, step_s),
            peak_bytes=run.peak_allocated_bytes,
        )


def _same_work(run: ConfigRun) -> bool:
    """Whether the counted FLOPs are those of the run: no setting of it changes the batch."""
    return run.config.setting("batch") is None


def _rate(amount: int | None, step_s: float | None) -> float | None:
    return amount / step_s if amount and step_s else None


def _words(task: SweepTask) -> str:
    return f"{task.model}, batch {task.batch}" if task.batch is not None else task.model


def _file_name(task: SweepTask) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", _words(task)).strip("._")[:MAX_NAME_CHARS]
    return f"{name}-{zlib.crc32(task.key.encode()):08x}"
