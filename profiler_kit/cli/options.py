"""Options that several commands share, one function per group, and the target spec that they describe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.cli import choices
from profiler_kit.cli.values import (
    parse_names,
    parse_non_negative,
    parse_positive,
    parse_positive_integers,
    parse_seconds,
)

if TYPE_CHECKING:
    from profiler_kit.records.seen import SeenRun
    from profiler_kit.records.target import TargetSpec

DEFAULT_BUDGET_S = 60.0
WHOLE_COMMAND: Final = 2.0  # of the time limit of a count: for a command that counts and shows
REST_S: Final = 60.0  # for imports and the report
TARGET_HELP: Final = (
    "model to profile: file.py (the model, its arguments and inputs are read from the file and its repository), "
    "file.py:NAME or package.module:NAME, where NAME is a model, a class or a function that "
    "returns a model; or a model of an installed zoo: torchvision:NAME, timm:NAME, hf:NAME or hf:FOLDER (a folder with a "
    "transformers config)"
)


def add_target_options(parser: argparse.ArgumentParser, *, several_batches: bool = False, batch: bool = True) -> None:
    """Add the options that describe a target. With `several_batches`, ``--batch`` accepts more than one size.

    `batch`: whether ``--batch`` is one of them.
    """
    group = parser.add_argument_group("target")
    group.add_argument(
        "-i", "--input", action="append", default=[], metavar="SPEC",
        help="input as [name=]DIMS[:dtype][[lo:hi]], for example 8,3,224,224 or ids=8,128:int64[0:50257]; "
        "xs[0]=... or batch.image=... for an item of a list or dict; NAME:=VALUE for a value that is not a tensor; or "
        "file.py:FUNCTION that returns all inputs (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--kw",
        action="append",
        default=[],
        metavar="K=V",
        help="constructor argument: a literal or an expression in the file's namespace, for example width=64 or "
        "config=Config(n_layer=2) (repeatable)",
    )
    group.add_argument(
        "--mode", choices=("train", "infer"), default="train",
        help="profile a training step, or only the forward pass (default: train)",
    )  # fmt: skip
    group.add_argument(
        "--loss", metavar="NAME",
        help="loss function, such as cross_entropy, mse or sum, or a loss that the model returns, such as output[1] "
        "or output.loss (default: the loss of the file or of its training script, or one that fits the output)",
    )  # fmt: skip
    group.add_argument(
        "--optimizer", metavar="NAME",
        help="optimizer, for example sgd or adamw (default: the file's configure_optimizer, or adamw)",
    )  # fmt: skip
    group.add_argument(
        "--dtype", metavar="DTYPE", help="dtype of parameters and floating-point inputs, for example bfloat16"
    )
    group.add_argument("--amp", metavar="DTYPE", help="run forward and loss under autocast to bfloat16 or float16")
    group.add_argument("--channels-last", action="store_true", help="use the NHWC memory layout for model and inputs")
    if batch:
        group.add_argument(
            "--batch", type=parse_positive_integers if several_batches else parse_positive, metavar="N",
            help="set the batch size of the inputs"
            + ("; with a list such as 8,16,32, also predict the memory of the other sizes" if several_batches else ""),
        )  # fmt: skip
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="random seed of weights, inputs and labels (default: 0)"
    )
    group.add_argument(
        "--from-run", metavar="REPORT",
        help="take model, inputs and settings from this report.json of run, or none (default: the one in "
        "profiler_kit_out/NAME, if the script's run wrote it)",
    )  # fmt: skip
    group.add_argument(
        "--no-slice", action="store_true",
        help="import the file as it is; by default, only the statements that the model depends on run: no training loop, "
        "data set, download or file output",
    )  # fmt: skip


def target_spec(
    options: argparse.Namespace,
    target: str | None = None,
    *,
    allow_guess: bool = True,
    command: tuple[str, ...] | None = None,
) -> TargetSpec:
    """The target spec of the parsed options.

    `command` holds the words of the command line around the target, for hints (default: the command's name).
    `target`: its text; "" for options that several targets share.
    """
    from profiler_kit.records.target import TargetSpec

    text, batch = target if target is not None else options.target, getattr(options, "batch", None)
    return TargetSpec(
        command=command or (options.verb, ""),
        spec=text,
        inputs=tuple(options.input),
        kwargs=tuple(options.kw),
        mode=options.mode,
        loss=options.loss,
        optimizer=options.optimizer,
        dtype=options.dtype,
        amp=options.amp,
        channels_last=options.channels_last,
        batch=batch[0] if isinstance(batch, tuple) else batch,
        seed=options.seed,
        sliced=not options.no_slice,
        allow_guess=allow_guess,
        seen=seen_run(text, options.from_run) if text else None,
    )


def seen_run(target: str, report: str | None) -> SeenRun | None:
    """The run of the target that loading learns from, for the value `report` of ``--from-run``. Raises UsageError."""
    from profiler_kit.pipeline.seen_runs import find_run

    return None if report == "none" else find_run(target, Path(report) if report is not None else None)


def add_device_option(parser: argparse._ActionsContainer) -> None:
    """Add the option that selects the device."""
    parser.add_argument(
        "--device", default="auto", metavar="DEV", help="device to run on: auto, cpu, cuda or cuda:N (default: auto)"
    )


def add_measure_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that control how a target is measured."""
    group = parser.add_argument_group("measurement")
    add_device_option(group)
    group.add_argument(
        "--configs", type=parse_names, metavar="A,B",
        help=f"measure only these configurations: {choices.cudnn_configurations()}; join flags with +, for example "
        "benchmark+no-tf32 (default: all that apply to this device)",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=parse_seconds, default=DEFAULT_BUDGET_S, metavar="TIME", dest="budget_s",
        help="time for steps, shared by all processes; process start and first steps take additional time (default: 60s)",
    )  # fmt: skip
    group.add_argument(
        "--steps",
        type=parse_positive,
        metavar="N",
        help="number of timed steps in each process, regardless of --budget",
    )
    group.add_argument(
        "--timeout", type=parse_seconds, metavar="TIME",
        help="stop a process that takes longer (default: 180 s plus ten times its share of --budget), and counting too "
        "(default: 10m)",
    )  # fmt: skip


def add_timeout_option(parser: argparse.ArgumentParser) -> None:
    """Add the time limit of commands that count."""
    parser.add_argument(
        "--timeout", type=parse_seconds, metavar="TIME",
        help="fail if loading and counting take longer (default: 10m)",
    )  # fmt: skip


def limit_command(options: argparse.Namespace) -> None:
    """Limit the whole command, whose targets count twice at most: objects of the model may also hang when they are deleted."""
    from profiler_kit.pipeline.target_errors import COUNT_TIMEOUT_S
    from profiler_kit.process.supervision import end_after

    end_after(WHOLE_COMMAND * (getattr(options, "timeout", None) or COUNT_TIMEOUT_S) + REST_S)


def add_convention_options(parser: argparse.ArgumentParser, *, strict: bool = False, cross_check: bool = False) -> None:
    """Add the options of counting: the convention and, if requested, the checks of the count."""
    from profiler_kit.records.counts import DEFAULT_CONVENTION

    group = parser.add_argument_group("counting")
    group.add_argument(
        "--convention", default=DEFAULT_CONVENTION, metavar="NAME",
        help=f"convention for counting MACs and FLOPs: {choices.conventions()} (default: {DEFAULT_CONVENTION})",
    )  # fmt: skip
    if strict:
        group.add_argument("--strict", action="store_true", help="fail with exit status 1 if an op has no formula")
    if cross_check:
        group.add_argument(
            "--cross-check",
            action="store_true",
            help="also run fvcore, and show its figure of each layer",
        )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select output formats and files."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "-f", "--format", metavar="FMT", help=f"format on stdout: {choices.formats()} (default: terminal)"
    )
    group.add_argument(
        "-o", "--output", action="append", default=[], type=Path, metavar="FILE",
        help=f"also write this file, in the format of its suffix: {choices.suffixes()} (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--open",
        action="store_true",
        help="open the report as a page in a browser: the .html file of -o, or a temporary one",
    )
    group.add_argument(
        "--detail", action="store_true", help="show all sections on the terminal, not only those that fit on a screen"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="hide progress and notes on stderr")


def add_finding_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows one finding instead of the report."""
    parser.add_argument(
        "--finding", type=parse_positive, metavar="N",
        help="show only finding N, with the rows of the report behind it",
    )  # fmt: skip


def add_table_options(parser: argparse.ArgumentParser, *, trace_views: tuple[str, ...] = ()) -> None:
    """Add the options that select and shape a report's tables. `trace_views` are accepted in addition to the target views."""
    group = parser.add_argument_group("tables")
    group.add_argument(
        "--by", choices=("tree", "layer", "op", "what-if", *trace_views),
        help="table rows: tree (modules including children), layer (modules excluding children), op or what-if"
        + ("; the others show one table of the traced steps, or of a trace, alone" if trace_views else "")
        + " (default: layer for a measured report, otherwise tree)",
    )  # fmt: skip
    group.add_argument(
        "--top",
        type=parse_positive,
        default=10,
        metavar="N",
        help="maximum number of rows in a table, or of children per module in a tree (default: 10)",
    )
    group.add_argument(
        "--depth", type=parse_non_negative, metavar="N",
        help="maximum depth; deeper modules are added to their parent (default: no limit; for tree, what fits on a screen)",
    )  # fmt: skip
    group.add_argument(
        "--sort", metavar="COLUMN",
        help="sort by flops, macs, params, bytes, memory, time or any CSV column; model keeps the model's order "
        "(default: model for tree, otherwise time or FLOPs)",
    )  # fmt: skip
    group.add_argument("--run", metavar="NAME", help="configuration whose phases and layers are shown")
    group.add_argument(
        "--unit", choices=("flop", "mac"), default="flop", help="show work in FLOPs or in MACs (default: flop)"
    )
