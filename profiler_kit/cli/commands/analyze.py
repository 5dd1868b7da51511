"""The command `analyze`: count, measure, attribute, explain, and write a report folder."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from profiler_kit import errors
from profiler_kit.cli import choices, files, output, tensorboard
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_convention_options,
    add_finding_option,
    add_measure_options,
    add_output_options,
    add_table_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import parse_names, parse_positive, parse_size
from profiler_kit.records.inspect_options import TraceView

if TYPE_CHECKING:
    from profiler_kit.pipeline.ranks import JoinedJob
    from profiler_kit.records.experiments import ExperimentOptions


QUICK_CONFIGS = ("default", "benchmark")
QUICK_BUDGET_S = 10.0
_REFERENCE = re.compile(r" \[\d+\](?=[.;,])")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of target, measurement, experiments and output."""
    from profiler_kit.records.parallel import STRATEGIES

    parser.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    add_target_options(parser)
    add_measure_options(parser)
    _add_experiment_options(parser)
    parser.add_argument(
        "--quick", action="store_true",
        help=f"measure {' and '.join(QUICK_CONFIGS)} alone, with {QUICK_BUDGET_S:g} s of steps: the main cause within a minute",
    )  # fmt: skip
    parser.add_argument(
        "--parallel", choices=STRATEGIES,
        help="train on all ranks of a job that torchrun has started, with DistributedDataParallel or FSDP2 (fully_shard); "
        "rank 0 writes the report",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="report folder (default: profiler_kit_out/NAME)")
    tensorboard.add_tensorboard_option(parser, in_report_folder=True)
    add_convention_options(parser)
    add_output_options(parser)
    add_finding_option(parser)
    add_table_options(parser, trace_views=get_args(TraceView))


def run(options: argparse.Namespace) -> int:
    """Analyze the target. If every run failed, raises the first failure after the report is written.

    In a job of several ranks, rank 0 writes the report, and the others run what it announces.
    """
    from profiler_kit.pipeline import ranks

    if options.parallel is None:
        ranks.check_alone()
        return _run(options, None)
    with ranks.join_job(options.parallel, target_spec(options), options.device, _experiment_options(options)) as job:
        if job.ranks is not None:
            return _run(options, job)
        job.serve(target_spec(options))
        return errors.OK


def _run(options: argparse.Namespace, job: JoinedJob | None) -> int:
    from profiler_kit.pipeline.analyze import all_failed, analyze_spec

    folder = options.out if options.out is not None else Path("profiler_kit_out") / output.folder_name(options.target)
    inputs = [options.target, *options.input, options.shapes or ""]
    output.check_options(options, inputs=inputs)
    if options.quick and options.configs is not None:
        raise errors.UsageError("--quick selects the configurations", hint="leave out --quick or --configs")
    configs, budget_s = options.configs, options.budget_s
    if options.quick:
        configs, budget_s = QUICK_CONFIGS, min(budget_s, QUICK_BUDGET_S)
    report_files = [folder / name for name in output.REPORT_FILES if (folder / name).exists()]
    files.check_outputs(report_files, inputs, hint="use another folder with --out")
    for part in (folder, folder / "traces", *([folder / tensorboard.FOLDER] if options.tensorboard else [])):
        output.check_folder(part, "--out")
    tensorboard.check_tensorboard(options)
    with output.errors_at_end() as attempt:
        with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet) as progress:
            analysis = analyze_spec(
                target_spec(options),
                device=options.device,
                configs=configs,
                budget_s=budget_s,
                steps=options.steps,
                timeout_s=options.timeout,
                traces=folder / "traces",
                on_progress=progress.show,
                on_process=progress.start_process,
                on_answer=partial(_print_answer, progress),
                convention=options.convention,
                experiments=_experiment_options(options),
                job=job,
            )
            progress.show("writing the report")
            try:
                attempt(output.write_report_folder, analysis, folder)
                attempt(output.annotate_traces, analysis)
            except KeyboardInterrupt:  # this takes a second and saves up to an hour of measurements: try again
                analysis = replace(analysis, interrupted=True)
                attempt(output.write_report_folder, analysis, folder)
            if options.tensorboard:
                progress.show("writing the files for TensorBoard")
                board = folder / tensorboard.FOLDER
                attempt(tensorboard.write_report, analysis.report, folder, board, options, analysis.timeline)
        output.warn_about_guesses(options, analysis.report)
        attempt(output.emit_report, analysis.report, options, folder / "report.html")
        output.print_note(f"report: {folder}/ ({', '.join(output.REPORT_FILES)}, traces/)", options)
    if analysis.interrupted:
        print("interrupted: the report contains the measurements that finished", file=sys.stderr)
        return errors.INTERRUPTED
    failure = all_failed(analysis.report)
    if failure is not None:
        raise failure
    return errors.OK


def _print_answer(progress: Progress, configs: tuple[str, ...], sentences: tuple[str, ...]) -> None:
    names = configs[0] if len(configs) == 1 else f"{len(configs)} configurations, one process each"
    # the findings that the numbers refer to are not shown yet
    progress.print("\n".join([f"first result ({names}):", *(_REFERENCE.sub("", sentence) for sentence in sentences)]))


def _add_experiment_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("experiments")
    group.add_argument(
        "--also", type=parse_names, action="extend", default=[], metavar="A,B",
        help=f"also measure these configurations, built from cuDNN flags and {choices.axes()}; join with +, for example "
        "benchmark+channels_last (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--try", action="store_true", dest="trials",
        help="try the advice of the findings: measure before and after in fresh processes, and report each gain",
    )  # fmt: skip
    group.add_argument(
        "--steps-planned", type=parse_positive, metavar="N",
        help="planned number of training steps; reports whether cudnn.benchmark breaks even by then",
    )  # fmt: skip
    group.add_argument(
        "--shapes", metavar="A,B",
        help="run with changing input shapes under default and benchmark: sizes such as 192,224x256, full shapes, "
        "a file with one shape per line, or auto",
    )  # fmt: skip
    group.add_argument(
        "--memory-limit", type=parse_size, metavar="SIZE",
        help="repeat runs that use more memory than this limit, for example 4GiB, under the limit; cuDNN may then choose "
        "slower algorithms (CUDA only)",
    )  # fmt: skip


def _experiment_options(options: argparse.Namespace) -> ExperimentOptions | None:
    from profiler_kit.records.experiments import ExperimentOptions

    experiments = ExperimentOptions(
        also=tuple(options.also),
        trials=options.trials,
        steps_planned=options.steps_planned,
        shapes=options.shapes,
        memory_limit_bytes=options.memory_limit,
    )
    return None if experiments == ExperimentOptions() else experiments


COMMAND = Command(
    name="analyze",
    summary="count, measure under each cuDNN configuration, attribute and explain",
    examples=("analyze my_model.py", "analyze my_model.py:Net -i 32,3,224,224 --budget 30s"),
    add_options=add_options,
    run=run,
)
