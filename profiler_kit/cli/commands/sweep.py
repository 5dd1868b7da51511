"""The command `sweep`: many models x batch sizes x configurations in one table that a later call continues."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from profiler_kit import errors
from profiler_kit.cli import choices, files, output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import add_output_options, add_target_options, target_spec
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import parse_names, parse_positive_integers, parse_seconds
from profiler_kit.command_lines import kit_command

SWEEP_FILES: Final = ("sweep.html", "sweep.json", "sweep.csv")
PARQUET: Final = "results.parquet"
BUDGET_S: Final = 20.0
TASK_TIMEOUT_S: Final = 1800.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of models, tasks, engine and output."""
    parser.add_argument(
        "models", nargs="+", metavar="MODEL",
        help="a target as in analyze, a pattern such as timm:resnet* or torchvision:*, or a .txt file with one of these per "
        "line, each with options of its own if needed (net.py -i 8,3,64,64)",
    )  # fmt: skip
    group = parser.add_argument_group("tasks")
    group.add_argument(
        "--count", action="store_true", help="only count FLOPs and memory, on all cores; measure nothing"
    )
    group.add_argument(
        "--gpu", metavar="NAME",
        help=f"with --count: predict memory and time on this device, and sort by the time of a step: {choices.gpus()}",
    )  # fmt: skip
    group.add_argument(
        "--configs", type=parse_names, metavar="A,B",
        help=f"measure only these configurations: {choices.cudnn_configurations()}, joined with + (default: default alone)",
    )  # fmt: skip
    group.add_argument(
        "--batches", type=parse_positive_integers, default=(), metavar="N,M",
        help="run each model with these batch sizes (default: the model's own)",
    )  # fmt: skip
    group.add_argument(
        "--devices", type=parse_names, default=("auto",), metavar="A,B",
        help="devices of one kind, each of which takes a task at a time: cuda:0,cuda:1 or cpu (default: auto, all GPUs or "
        "the CPU)",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=parse_seconds, default=BUDGET_S, metavar="TIME", dest="budget_s",
        help=f"time for the steps of each task (default: {BUDGET_S:g}s)",
    )  # fmt: skip
    group.add_argument(
        "--task-timeout", type=parse_seconds, default=TASK_TIMEOUT_S, metavar="TIME",
        help="record a task that takes longer as failed (default: 30m)",
    )  # fmt: skip
    group.add_argument("--retry-failed", action="store_true", help="run the tasks again that failed in an earlier call")
    group.add_argument(
        "--out", type=Path, default=Path("profiler_kit_out/sweep"), metavar="DIR",
        help="folder of the results; a call with the same folder continues (default: profiler_kit_out/sweep)",
    )  # fmt: skip
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--engine", choices=("local", "ray"), default="local",
        help="local: processes on this machine; ray: tasks of a Ray cluster, which places and repeats them (default: local)",
    )  # fmt: skip
    group.add_argument("--ray-address", default="", metavar="ADDRESS", help="address of the Ray cluster, such as auto")
    add_target_options(parser, batch=False)
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the tasks that have no result yet, and show the table. Failed tasks are results, unless all of them failed."""
    from profiler_kit.pipeline.sweep import JOURNAL, SweepOptions, UnsavedResultError, run_sweep
    from profiler_kit.report.sweeps import sweep_document
    from profiler_kit.units import plural

    if options.gpu is not None and not options.count:
        raise errors.UsageError("--gpu predicts without a device", hint="add --count, or select devices with --devices")
    lists = [model for model in options.models if model.endswith(".txt")]
    written = [options.out / name for name in (*SWEEP_FILES, PARQUET, JOURNAL)]
    output.check_options(options, inputs=[*options.models, *options.input])
    for part in (options.out, options.out / "reports"):
        output.check_folder(part, "--out")
    files.check_outputs([file for file in written if file.exists()], lists, hint="use another folder with --out")
    sweep_options = SweepOptions(
        verb="count" if options.count else "analyze",
        argv=(*target_spec(options, "").option_words(), *_verb_words(options)),
        configs=None if options.count else options.configs or ("default",),
        batches=options.batches,
        devices=options.devices,
        engine=options.engine,
        ray_address=options.ray_address,
        task_timeout_s=options.task_timeout,
        retries_failed=options.retry_failed,
    )
    unsaved: UnsavedResultError | None = None
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet) as progress:
        try:
            sweep, interrupted = run_sweep(
                options.models,
                options.out,
                sweep_options,
                check_words=_check_words,
                on_progress=progress.print,
                on_process=progress.start_process,
            )
        except UnsavedResultError as error:  # hours of work: the table on stdout has it all
            sweep, interrupted, unsaved = error.sweep, False, error
    document = sweep_document(sweep)
    with output.errors_at_end() as attempt:
        if unsaved is None:
            for name in SWEEP_FILES:
                attempt(output.write_document, document, options.out / name)
            attempt(_write_parquet, sweep, options)
        attempt(output.emit, document, options, options.out / SWEEP_FILES[0])
    if unsaved is not None:
        raise unsaved
    output.print_note(f"results: {options.out}/ ({JOURNAL}, {', '.join(SWEEP_FILES)}, reports/)", options)
    if interrupted:
        left = sweep.planned - len(sweep.results)
        print(f"interrupted: {plural(left, 'task')} left; the same command continues", file=sys.stderr)
        return errors.INTERRUPTED
    if sweep.results and all(result.failure for result in sweep.results):
        raise errors.TargetError(
            f"all {plural(len(sweep.results), 'task')} failed; the first one: {sweep.results[0].failure}",
            where=sweep.results[0].task.model,
            hint=sweep.results[0].hint or kit_command("count", sweep.results[0].task.model),
        )
    return errors.OK


def _verb_words(options: argparse.Namespace) -> tuple[str, ...]:
    """The options of the command that each task runs, as words."""
    if not options.count:
        return ("--budget", f"{options.budget_s:g}s")
    return ("--gpu", options.gpu) if options.gpu is not None else ()


def _check_words(words: Sequence[str]) -> None:
    """Raise UsageError for words of a list file that are not options of a target."""
    from profiler_kit.cli.parser import Parser

    parser = Parser(prog="profiler-kit sweep", add_help=False, allow_abbrev=False)
    add_target_options(parser, batch=False)
    parser.parse_args(words)


def _write_parquet(sweep: object, options: argparse.Namespace) -> None:
    """Write the table as Parquet, or print which packages that needs."""
    import importlib.util

    if any(importlib.util.find_spec(package) is None for package in ("pandas", "pyarrow")):
        output.print_note(f"{PARQUET} was not written: pip install 'profiler-kit[tables]'", options)
        return
    from profiler_kit.report.frames import dataframe

    with files.replaced_file(options.out / PARQUET) as partial:
        dataframe(sweep).to_parquet(partial)  # type: ignore[arg-type]


COMMAND = Command(
    name="sweep",
    summary="count or measure many models, batch sizes and configurations in one table; resumable",
    examples=(
        "sweep 'timm:resnet*' --batches 1,32 --mode infer",
        "sweep models.txt --configs default,benchmark --engine ray",
    ),
    add_options=add_options,
    run=run,
)
