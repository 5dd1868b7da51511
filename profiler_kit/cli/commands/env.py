"""The command `env`: devices, versions and measured peaks."""

from __future__ import annotations

import argparse

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import add_device_option, add_output_options
from profiler_kit.cli.progress import Progress


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of device and output."""
    add_device_option(parser)
    parser.add_argument("--fresh", action="store_true", help="measure peaks again instead of using saved ones")
    parser.add_argument(
        "--host", action="store_true", help="measure how fast the host runs eager PyTorch, for count --host"
    )
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    """Show the devices, versions and measured peaks of this machine."""
    from profiler_kit.pipeline.packages import env
    from profiler_kit.report import machine_document

    output.check_options(options)
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet) as progress:
        machine = env(options.device, fresh=options.fresh, host=options.host, on_progress=progress.show)
    output.emit(machine_document(machine), options)
    return errors.OK


COMMAND = Command(
    name="env",
    summary="show devices, versions and measured peaks",
    examples=("env",),
    add_options=add_options,
    run=run,
    runs_user_code=False,
)
