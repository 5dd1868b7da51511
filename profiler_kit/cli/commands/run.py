"""The command `run`: a program that nobody has changed, recorded while it runs."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.cli import choices
from profiler_kit.cli.commands import Command, Outcome
from profiler_kit.cli.values import parse_names, parse_non_negative, parse_positive
from profiler_kit.command_lines import kit_command
from profiler_kit.errors import UsageError

if TYPE_CHECKING:
    from profiler_kit.records.configs import RunConfig

OUT: Final = Path("profiler_kit_out")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options before the program, and the program with all that follows it."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder of the report (default: {OUT}/ and the name of the program)"
    )
    parser.add_argument(
        "--steps", type=parse_positive, default=20, metavar="N", help="steps to time without the profiler (default: 20)"
    )
    parser.add_argument(
        "--traced", type=parse_non_negative, default=3, metavar="N", help="steps to trace afterwards (default: 3)"
    )
    parser.add_argument(
        "--stacks", action="store_true",
        help="record the calls of Python functions in the traced steps, which makes these slower: findings name lines",
    )  # fmt: skip
    parser.add_argument(
        "--skip", type=parse_positive, metavar="N",
        help="steps to run before the timed ones (default: until their times agree, at most 10)",
    )  # fmt: skip
    parser.add_argument(
        "--at", type=parse_positive, default=1, metavar="STEP", help="look at nothing before this step (default: 1)"
    )
    parser.add_argument(
        "--later", action="store_true",
        help="record nothing until the command trigger asks for it, as often as it does; each time into a new subfolder",
    )  # fmt: skip
    parser.add_argument(
        "--configs", type=parse_names, metavar="A,B",
        help=f"run the program under these configurations, and compare them: {choices.cudnn_configurations()}; with "
        "several, each in a process of its own, which ends after the report",
    )  # fmt: skip
    parser.add_argument("--stop", action="store_true", help="end the program after the report; its finally blocks run")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but failures on stderr")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE [ARG...]", help="run a module, as python -m does"
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG...]", help="a script and its arguments"
    )


def run(options: argparse.Namespace) -> Outcome:
    """Check the program, and return its run, which takes this process over."""
    from profiler_kit.integrations.attachment import Later
    from profiler_kit.integrations.program import Program
    from profiler_kit.integrations.program_session import RunOptions, run_program, run_under
    from profiler_kit.integrations.session import require_folder

    words = options.module or options.script[options.script[:1] == ["--"] :]
    if not words:
        raise UsageError("no program to run", hint=f"name a script: {kit_command('run', 'train.py')}")
    program = Program(name=words[0], is_module=bool(options.module), arguments=tuple(words[1:]))
    program.check()
    configs = _configs(options)
    name = program.name if program.is_module else Path(program.name).resolve().stem
    out = (options.out or OUT / name).absolute()
    require_folder(out, hint="use another folder: --out DIR")
    settings = RunOptions(
        out=out,
        steps=options.steps,
        traced=options.traced,
        stacks=options.stacks,
        skip=options.skip,
        at=options.at,
        stop=options.stop,
        quiet=options.quiet,
        config=configs[0] if configs else None,
    )
    if len(configs) > 1:
        return run_under(configs, program, settings)
    return Later(program, settings).run if options.later else partial(run_program, program, settings)


def _configs(options: argparse.Namespace) -> list[RunConfig]:
    """The configurations of ``--configs``. Raises UsageError."""
    from profiler_kit.configurations.naming import EVERYWHERE, parse_config

    configs = {config.name: config for config in (parse_config(name, EVERYWHERE) for name in options.configs or ())}
    others = [name for name, config in configs.items() if not config.is_plain]
    if others:
        raise UsageError(
            f"--configs {others[0]}: more than cuDNN flags", hint="make other changes in the program, or use analyze"
        )
    if configs and options.later:
        raise UsageError("--configs and --later exclude each other", hint="leave one of them out")
    if len(configs) > 1 and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        hint = "start the job once for each configuration, with one name in --configs"
        raise UsageError("a job of several ranks runs under one configuration", hint=hint)
    return list(configs.values())


COMMAND: Final = Command(
    name="run",
    summary="run a program unchanged, find its loop, and report on some of its steps",
    examples=("run train.py --epochs 1",),
    add_options=add_options,
    run=run,
    runs_user_code=False,
)
