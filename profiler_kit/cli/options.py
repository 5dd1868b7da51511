"""The command line's grammar. Built without importing torch, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn, get_args

from profiler_kit._version import VERSION
from profiler_kit.cli.inspect_options import inspect_options
from profiler_kit.cli.measure_options import laboratory_options, measure_options
from profiler_kit.cli.values import numbers, positive, size, whole
from profiler_kit.devices.registry import DEFAULT, architecture_names, choices, devices, with_peaks
from profiler_kit.errors import UsageError
from profiler_kit.records.counts import DEFAULT_CONVENTION, MemoryQuestions
from profiler_kit.records.target import TargetSpec
from profiler_kit.records.trace_asks import TraceView
from profiler_kit.records.variation import CHANGES, Variation, read_variations, spelled

DESCRIPTION = "Where a PyTorch model's FLOPs, memory and time go, and why."
EPILOG = """\
examples:
  profiler-kit analyze my_model.py
  profiler-kit analyze my_model.py:Net -i 32,3,224,224 --budget 30s
  profiler-kit count pkg.nets:build --kw width=64 -i 'ids=8,1024:int64[0:50257]' -o layers.csv
  profiler-kit inspect trace.json.gz
  profiler-kit inspect rank*.json.gz --by module
  profiler-kit compare models/convnet_v0.py models/convnet_v1.py
  profiler-kit check my_model.py --base main --budget flops=+10%
  profiler-kit show profiler_kit_out/my_model -f markdown
  profiler-kit env

exit status: 0 ok, 1 a budget is broken or (--strict) an op has no formula, 2 usage,
  3 the target or a trace could not be loaded or run, 4 nothing comparable, 130 interrupted (what was measured before is kept)
"""
TARGET_HELP = (
    "file.py, file.py:name or package.module:name; name is a model, a class or a function that returns a model. "
    "Or a zoo's, where it is installed: torchvision:NAME, timm:NAME, hf:NAME or hf:FOLDER (a transformers config)"
)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are ours: one message with a hint, exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError where argparse would print its usage and exit."""
        raise UsageError(message, hint=f"{self.prog} --help shows what there is")


def parser() -> Parser:
    """The parser of the whole command line; the parsed namespace's `verb` names the command."""
    top = Parser(
        prog="profiler-kit",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"profiler-kit {VERSION}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=Parser)
    _analyze(verbs.add_parser("analyze", help="count, measure under each cuDNN configuration, attribute, explain"))
    _count(verbs.add_parser("count", help="static only: FLOPs, MACs, parameters and memory per layer, no device"))
    _inspect(verbs.add_parser("inspect", help="any torch.profiler trace: where its time went, and what was waited for"))
    _compare(
        verbs.add_parser(
            "compare", help="two targets, reports or traces: what differs in time, work and memory, and why"
        )
    )
    _check(verbs.add_parser("check", help="pre-merge gate: compare with a git revision and apply budgets"))
    _show(verbs.add_parser("show", help="render a saved report again, in any format; needs no torch"))
    _env(verbs.add_parser("env", help="this machine for the tool: devices, versions, what they really reach"))
    return top


def target_spec(
    given: argparse.Namespace,
    target: str | None = None,
    *,
    allow_guess: bool = True,
    command: tuple[str, ...] | None = None,
) -> TargetSpec:
    """The target that the parsed options name; `command` is the words beside it, where there are more than the verb."""
    return TargetSpec(
        command=command or (given.verb, ""),
        spec=target if target is not None else given.target,
        inputs=tuple(given.input),
        kwargs=tuple(given.kw),
        mode=given.mode,
        loss=given.loss,
        optimizer=given.optimizer,
        dtype=given.dtype,
        amp=given.amp,
        channels_last=given.channels_last,
        batch=given.batch[0] if isinstance(given.batch, tuple) else given.batch,
        seed=given.seed,
        allow_guess=allow_guess,
    )


def target_argv(given: argparse.Namespace) -> list[str]:
    """The options of `given` that shape the target, as words of a command line again."""
    words: list[str] = []
    for text in given.input:
        words += ["-i", text]
    for text in given.kw:
        words += ["--kw", text]
    words += ["--mode", given.mode, "--seed", str(given.seed)]
    for name in ("loss", "optimizer", "dtype", "amp", "batch"):
        value = getattr(given, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    if given.convention != DEFAULT_CONVENTION:
        words += ["--convention", given.convention]
    return [*words, "--channels-last"] if given.channels_last else words


def _analyze(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    _target_options(sub)
    measure_options(sub)
    laboratory_options(sub)
    sub.add_argument("--out", type=Path, metavar="DIR", help="the report folder (default: profiler_kit_out/NAME)")
    _convention_options(sub)
    _output_options(sub)
    _report_options(sub)


def _count(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    _target_options(sub, several_batches=True)
    _memory_options(sub)
    _convention_options(sub, strict=True, cross_check=True)
    _hardware_option(sub)
    _output_options(sub)
    _report_options(sub)


def _inspect(sub: argparse.ArgumentParser) -> None:
    inspect_options(sub)
    _output_options(sub)


def _compare(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("a", metavar="A", help="a target, a report.json or its folder, or a trace (then B is one too)")
    sub.add_argument("b", metavar="B", help="the same")
    _target_options(sub)
    measure_options(sub)
    sub.add_argument("--static", action="store_true", help="count only, measure nothing")
    _convention_options(sub)
    _output_options(sub)


def _check(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    sub.add_argument("--base", metavar="REV", help="git revision or report.json to compare with (default: merge base)")
    sub.add_argument(
        "--budget", action="append", default=[], metavar="METRIC=LIMIT", help="flops=+10%%, params=26M … (repeatable)"
    )
    _target_options(sub)
    _convention_options(sub, strict=True)
    _output_options(sub)


def _show(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("report", type=Path, metavar="REPORT", help="a report.json or its folder, or what inspect wrote")
    _output_options(sub)
    _report_options(sub, traces=True)


def _env(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--device", default="auto", metavar="DEV", help="auto (default), cuda, cuda:1, cpu")
    sub.add_argument("--fresh", action="store_true", help="measure the ceilings again instead of taking the kept ones")
    _output_options(sub)


def _target_options(sub: argparse.ArgumentParser, *, several_batches: bool = False) -> None:
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
    if several_batches:
        size = "replace the inputs' batch size; as 8,16,32 the memory at the others too"
        group.add_argument("--batch", type=numbers, metavar="N", help=size)
    else:
        group.add_argument("--batch", type=positive, metavar="N", help="replace the inputs' batch size")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of weights, inputs and labels (default: 0)")


def _memory_options(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("memory")
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help=f"whose memory is predicted: {choices(devices())}; an architecture ({architecture_names()}) is its best-known "
        f"card (default: the one here, or {DEFAULT.short[0]})",
    )
    group.add_argument("--fits", type=size, metavar="SIZE", help="the largest batch that fits, as 24GiB")
    group.add_argument(
        "--checkpoint", action="append", default=[], metavar="PATH",
        help="what if this module kept its inputs alone; auto proposes modules, for --fits if given (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--what-if", action="append", default=[], type=_variations, metavar="CHANGE,…",
        help=f"the memory with this changed ({', '.join(spelled(change) for change in CHANGES)}); "
        "several by comma together, a bare amp or optimizer each in a row of its own (repeatable)",
    )  # fmt: skip


def memory_questions(given: argparse.Namespace) -> MemoryQuestions | None:
    """What is asked about memory beyond the step as it is; None for nothing."""
    asked = MemoryQuestions(
        batches=(given.batch or ())[1:],
        fits_bytes=given.fits,
        checkpoint=tuple("" if path == "(root)" else path for path in given.checkpoint),
        variations=tuple(one for several in given.what_if for one in several),
    )
    return None if asked == MemoryQuestions() else asked


def _convention_options(sub: argparse.ArgumentParser, *, strict: bool = False, cross_check: bool = False) -> None:
    group = sub.add_argument_group("what counts")
    group.add_argument(
        "--convention", default=DEFAULT_CONVENTION, metavar="NAME",
        help="kit (default), torch (as FlopCounterMode), fvcore, or model-flops (as MFU takes them)",
    )  # fmt: skip
    if strict:
        group.add_argument("--strict", action="store_true", help="fail, with status 1, if any op has no formula")
    if cross_check:
        group.add_argument(
            "--cross-check", action="store_true", help="run fvcore and FlopCounterMode too, and explain each difference"
        )


def _output_options(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("output")
    group.add_argument(
        "-f", "--format", metavar="FMT", help="what stdout gets: terminal (default), markdown, json, csv"
    )
    group.add_argument(
        "-o", "--output", action="append", default=[], type=Path, metavar="FILE", help="format by suffix (repeatable)"
    )
    group.add_argument(
        "--detail", action="store_true", help="all sections on the terminal, not only those that fit a screen"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def _hardware_option(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("roofline")
    group.add_argument(
        "--hardware", metavar="NAME",
        help=f"bound each layer and op on this device by its datasheet: {choices(with_peaks())}; or here: as measured, once",
    )  # fmt: skip


def _report_options(sub: argparse.ArgumentParser, *, traces: bool = False) -> None:
    group = sub.add_argument_group("tables")
    group.add_argument(
        "--by", choices=("tree", "layer", "op", "what-if", *(get_args(TraceView) if traces else ())),
        help="modules with all below them, layers' own figures, ops, or what-ifs alone (default: layer after runs, else tree)"
        + ("; the others are of traces, as inspect has them" if traces else ""),
    )  # fmt: skip
    group.add_argument(
        "--top",
        type=positive,
        default=10,
        metavar="N",
        help="rows of a table, in a tree below one module (default: 10)",
    )
    group.add_argument(
        "--depth",
        type=whole,
        metavar="N",
        help="add what is deeper to its parent (default: none, or a screen of tree)",
    )
    group.add_argument(
        "--sort", metavar="COLUMN",
        help="by flops, macs, params, bytes, memory, time or any CSV column, or model: its own order (default: time, FLOPs)",
    )  # fmt: skip
    group.add_argument("--run", metavar="NAME", help="the configuration whose phases and layers are shown")
    group.add_argument(
        "--unit", choices=("flop", "mac"), default="flop", help="show work in FLOPs (default) or in MACs alone"
    )


def _variations(text: str) -> tuple[Variation, ...]:
    try:
        return read_variations(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
