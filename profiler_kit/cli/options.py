"""Options that several verbs share, one function per group, and the target that they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.cli import choices
from profiler_kit.cli.values import names, numbers, positive, seconds, whole

if TYPE_CHECKING:
    from profiler_kit.records.target import TargetSpec

TARGET_HELP: Final = (
    "file.py, file.py:name or package.module:name; name is a model, a class or a function that returns a model. "
    "Or a zoo's, where it is installed: torchvision:NAME, timm:NAME, hf:NAME or hf:FOLDER (a transformers config)"
)


def add_target_options(sub: argparse.ArgumentParser, *, several_batches: bool = False) -> None:
    """Adds the options that shape a target; `several_batches`: ``--batch`` may name more than one size."""
    group = sub.add_argument_group("target")
    group.add_argument(
        "-i", "--input", action="append", default=[], metavar="SPEC",
        help="[name=]DIMS[:dtype][[lo:hi]], as 8,3,224,224 or ids=8,128:int64[0:50257], or file.py:function (repeatable)",
    )  # fmt: skip
    group.add_argument("--kw", action="append", default=[], metavar="K=V", help="constructor argument (repeatable)")
    group.add_argument("--mode", choices=("train", "infer"), default="train", help="default: train")
    group.add_argument("--loss", metavar="NAME", help="cross_entropy, mse, sum … (default: the file's loss_fn)")
    group.add_argument("--optimizer", metavar="NAME", help="sgd, adamw … (default: the file's configure_optimizer)")
    group.add_argument("--dtype", metavar="DTYPE", help="of parameters and floating inputs: float32, bfloat16 …")
    group.add_argument("--amp", metavar="DTYPE", help="autocast forward and loss to bfloat16 or float16")
    group.add_argument("--channels-last", action="store_true", help="NHWC memory layout of model and inputs")
    group.add_argument(
        "--batch", type=numbers if several_batches else positive, metavar="N",
        help="replace the inputs' batch size" + ("; as 8,16,32 the memory at the others too" if several_batches else ""),
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of weights, inputs and labels (default: 0)")


def target_spec(
    options: argparse.Namespace,
    target: str | None = None,
    *,
    allow_guess: bool = True,
    command: tuple[str, ...] | None = None,
) -> TargetSpec:
    """The target that the parsed options name; `command` is the words beside it, where there are more than the verb."""
    from profiler_kit.records.target import TargetSpec

    return TargetSpec(
        command=command or (options.verb, ""),
        spec=target if target is not None else options.target,
        inputs=tuple(options.input),
        kwargs=tuple(options.kw),
        mode=options.mode,
        loss=options.loss,
        optimizer=options.optimizer,
        dtype=options.dtype,
        amp=options.amp,
        channels_last=options.channels_last,
        batch=options.batch[0] if isinstance(options.batch, tuple) else options.batch,
        seed=options.seed,
        allow_guess=allow_guess,
    )


def add_device_option(sub: argparse._ActionsContainer) -> None:
    """Adds the option that picks the device to run on."""
    sub.add_argument("--device", default="auto", metavar="DEV", help="auto (default), cuda, cuda:1, cpu")


def add_measure_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options that say how a target is measured."""
    group = sub.add_argument_group("measure")
    add_device_option(group)
    group.add_argument(
        "--configs", type=names, metavar="A,B",
        help=f"only these configurations, joined by + as benchmark+no-tf32: {choices.cudnn_configurations()} "
        "(default: all that mean something here)",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=seconds, default=60.0, metavar="TIME", dest="budget_s",
        help="time for steps, shared by all processes; starting them and the first steps come on top (default: 60s)",
    )  # fmt: skip
    group.add_argument("--steps", type=positive, metavar="N", help="timed steps in each process, whatever they take")
    group.add_argument(
        "--timeout", type=seconds, metavar="TIME",
        help="end a process that takes longer (default: 180 s and ten times its share of --budget)",
    )  # fmt: skip


def add_convention_options(sub: argparse.ArgumentParser, *, strict: bool = False, cross_check: bool = False) -> None:
    """Adds the options that say what counts as work, and how sure the count must be."""
    from profiler_kit.records.counts import DEFAULT_CONVENTION

    group = sub.add_argument_group("what counts")
    group.add_argument(
        "--convention", default=DEFAULT_CONVENTION, metavar="NAME",
        help=f"whose MACs and FLOPs: {choices.conventions()} (default: {DEFAULT_CONVENTION})",
    )  # fmt: skip
    if strict:
        group.add_argument("--strict", action="store_true", help="fail, with status 1, if any op has no formula")
    if cross_check:
        group.add_argument(
            "--cross-check", action="store_true", help="run fvcore and FlopCounterMode too, and explain each difference"
        )


def add_output_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options that say where results go, and in which format."""
    group = sub.add_argument_group("output")
    group.add_argument(
        "-f", "--format", metavar="FMT", help=f"what stdout gets: {choices.formats()} (default: terminal)"
    )
    group.add_argument(
        "-o", "--output", action="append", default=[], type=Path, metavar="FILE",
        help=f"write this file too, in the format of its suffix: {choices.suffixes()} (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--detail", action="store_true", help="all sections on the terminal, not only those that fit a screen"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def add_table_options(sub: argparse.ArgumentParser, *, trace_views: tuple[str, ...] = ()) -> None:
    """Adds the options that choose and shape a report's tables; `trace_views` are offered beside the views of targets."""
    group = sub.add_argument_group("tables")
    group.add_argument(
        "--by", choices=("tree", "layer", "op", "what-if", *trace_views),
        help="modules with all below them, layers' own figures, ops, or what-ifs alone (default: layer after runs, else tree)"
        + ("; the others are of traces, as inspect has them" if trace_views else ""),
    )  # fmt: skip
    group.add_argument(
        "--top",
        type=positive,
        default=10,
        metavar="N",
        help="rows of a table, in a tree below one module (default: 10)",
    )
    group.add_argument(
        "--depth", type=whole, metavar="N", help="add what is deeper to its parent (default: none, or a screen of tree)"
    )
    group.add_argument(
        "--sort", metavar="COLUMN",
        help="by flops, macs, params, bytes, memory, time or any CSV column, or model: its own order (default: time, FLOPs)",
    )  # fmt: skip
    group.add_argument("--run", metavar="NAME", help="the configuration whose phases and layers are shown")
    group.add_argument(
        "--unit", choices=("flop", "mac"), default="flop", help="show work in FLOPs (default) or in MACs alone"
    )
