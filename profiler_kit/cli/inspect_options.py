"""The options of `inspect` that no other verb has."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, get_args

from profiler_kit.cli.values import positive, step_range, whole
from profiler_kit.records.trace_asks import EventFormat, TraceView

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
    group = sub.add_argument_group("files beside the report")
    group.add_argument(
        "--annotate", type=Path, metavar="OUT",
        help="the trace with lanes of phases, modules, idle causes and kernel families, and counters, for Perfetto and "
        "chrome://tracing: a .json.gz, a .json or a folder",
    )  # fmt: skip
    group.add_argument(
        "--steps", type=step_range, metavar="FIRST:LAST", help="only these steps of the annotated trace, both included"
    )
    group.add_argument(
        "--max-mb", type=positive, metavar="N",
        help="as many steps of the annotated trace as fit N MB of JSON; viewers open no more than some hundreds",
    )  # fmt: skip
    group.add_argument(
        "--to", choices=get_args(EventFormat),
        help="the table of events in this format, as TRACE.events.FORMAT unless --events says where",
    )  # fmt: skip
    group.add_argument(
        "--events", type=Path, metavar="FILE",
        help="the table of events, each with its owners: a .csv, .parquet or .sqlite, a folder (with --to), or - for CSV on "
        "stdout in place of the report",
    )  # fmt: skip
