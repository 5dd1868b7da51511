"""The verb `analyze`: the whole job. Counts, measures, attributes, explains, and leaves a report folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit import errors
from profiler_kit.cli import choices, output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_convention_options,
    add_measure_options,
    add_output_options,
    add_table_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import names, positive, size

if TYPE_CHECKING:
    from profiler_kit.records.laboratory import LaboratoryQuestions


def add_options(sub: argparse.ArgumentParser) -> None:
    """Adds the target, how it is measured, the laboratory, and where results go."""
    sub.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    add_target_options(sub)
    add_measure_options(sub)
    _add_laboratory_options(sub)
    sub.add_argument("--out", type=Path, metavar="DIR", help="the report folder (default: profiler_kit_out/NAME)")
    add_convention_options(sub)
    add_output_options(sub)
    add_table_options(sub)


def run(options: argparse.Namespace) -> int:
    """Analyzes the target. Raises the failure that every run had, once the report is written."""
    from profiler_kit.pipeline.analyze import all_failed, analyze_spec

    output.check(options)
    folder = options.out if options.out is not None else Path("profiler_kit_out") / output.slug(options.target)
    with output.foreign_output_on_stderr(), Progress(quiet=options.quiet) as progress:
        analysis = analyze_spec(
            target_spec(options),
            device=options.device,
            configs=options.configs,
            budget_s=options.budget_s,
            steps=options.steps,
            timeout_s=options.timeout,
            traces=folder / "traces",
            say=progress.say,
            convention=options.convention,
            asked=_laboratory_questions(options),
        )
        progress.say("writing the report")
        output.write_report_folder(analysis, folder)
    output.warn(analysis.report)
    try:
        output.emit_report(analysis.report, options)
    finally:
        output.note(f"report: {folder}/ (report.json, report.md, layers.csv, traces/)", options)
    if analysis.interrupted:
        print("interrupted: the report holds what was measured before", file=sys.stderr)
        return errors.INTERRUPTED
    failure = all_failed(analysis.report)
    if failure is not None:
        raise failure
    return errors.OK


def _add_laboratory_options(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("laboratory")
    group.add_argument(
        "--also", type=names, action="extend", default=[], metavar="A,B",
        help="measure these configurations too, joined by + as benchmark+channels_last (repeatable): " + choices.axes(),
    )  # fmt: skip
    group.add_argument(
        "--try", action="store_true", dest="trials",
        help="run what the findings advise, before and after in fresh processes, and say what each gained",
    )  # fmt: skip
    group.add_argument(
        "--steps-planned", type=positive, metavar="N",
        help="how many steps you mean to train: does benchmark's search for algorithms pay by then?",
    )  # fmt: skip
    group.add_argument(
        "--shapes", metavar="A,B",
        help="run over changing input shapes, under default and benchmark: sizes as 192,224x256, whole shapes, "
        "a file with one a line, or auto",
    )  # fmt: skip
    group.add_argument(
        "--memory-limit", type=size, metavar="SIZE",
        help="run again under this cap, as 4GiB, what takes more: cuDNN then has fewer algorithms to choose from (CUDA)",
    )  # fmt: skip
    group.add_argument(
        "--counters", action="store_true",
        help="executed operations and DRAM bytes of each convolution by hardware counters (CUDA; needs Nsight Compute, ncu)",
    )  # fmt: skip


def _laboratory_questions(options: argparse.Namespace) -> LaboratoryQuestions | None:
    from profiler_kit.records.laboratory import LaboratoryQuestions

    questions = LaboratoryQuestions(
        also=tuple(options.also),
        trials=options.trials,
        steps_planned=options.steps_planned,
        shapes=options.shapes,
        memory_limit_bytes=options.memory_limit,
        counters=options.counters,
    )
    return None if questions == LaboratoryQuestions() else questions


COMMAND = Command(
    name="analyze",
    summary="count, measure under each cuDNN configuration, attribute, explain",
    examples=("analyze my_model.py", "analyze my_model.py:Net -i 32,3,224,224 --budget 30s"),
    add_options=add_options,
    run=run,
)
