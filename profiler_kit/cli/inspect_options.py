"""The options of `inspect` that no other verb has."""

from __future__ import annotations

import argparse
from typing import Final, get_args

from profiler_kit.cli.values import positive, whole
from profiler_kit.records.traces import TraceView

TRACES_HELP: Final = (
    "a trace that torch.profiler wrote (.json, .json.gz), or a folder of traces: one file, several of one program, "
    "or one per rank"
)


def inspect_options(sub: argparse.ArgumentParser) -> None:
    """Adds the traces, and what is shown of them."""
    sub.add_argument("traces", nargs="+", metavar="TRACE", help=TRACES_HELP)
    group = sub.add_argument_group("tables")
    group.add_argument(
        "--by", choices=get_args(TraceView),
        help="one view of the device's time, whole, instead of the summary; also what CSV holds (default: summary; CSV: phase)",
    )  # fmt: skip
    group.add_argument("--top", type=positive, default=10, metavar="N", help="rows of a table (default: 10)")
    group.add_argument(
        "--depth", type=whole, metavar="N", help="levels of the tree of modules (default: as many as fit a screen)"
    )
