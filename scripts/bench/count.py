"""What counters say, how long they take and how much memory, side by side in one run.

Every counter gets a process of its own, so that what it patches, leaves behind or breaks is its own; one that is not
installed is a line that says so. Figures are over the truth that `networks.counted` derives from shapes. In its process a
counter and the bare pass take turns, and medians of CPU time are compared, so that the ratios hold on a busy machine. With
the package installed, and its dependency group `bench` for the other counters::

    python -m scripts.bench.count [--repeats 7] [--networks llama_7b] [--counters fvcore thop]
    python -m scripts.bench.count --cases [--device meta]    # the hand-derived cases of the tests, put to every counter

A counter is a line in `peers.PEERS`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import torch
from tabulate import tabulate

from profiler_kit.process import run
from scripts.bench.cases import OUTCOMES, answers
from scripts.bench.networks.counted import MODELS, true_macs
from scripts.bench.one_counter import Measured, figure_on_the_cpu, measured
from scripts.bench.peers import PEERS

HEADS: Final = (
    "counter", "forward : truth", "backward : truth", "prepare ms", "forward ms", ": bare", "step ms", ": bare", "peak MB",
)  # fmt: skip
ALIGNED: Final = ("left", *["right"] * (len(HEADS) - 1))
TIMEOUT_S: Final = 900.0
ONE: Final = "--in-this-process"  # what this script calls itself with


def main() -> None:
    """Prints a table for every network, or one of the cases; in a process of its own, the lines that one counter makes."""
    parser = argparse.ArgumentParser(description="Counters side by side: figures, time and memory.")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; the median is shown (default 7)")
    parser.add_argument(
        "--networks", nargs="+", choices=MODELS, default=[*MODELS], metavar="NAME", help=", ".join(MODELS)
    )
    parser.add_argument("--counters", nargs="+", choices=PEERS, default=[*PEERS], metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--cases", action="store_true", help="the hand-derived cases instead of networks")
    parser.add_argument(
        "--device", choices=("cpu", "meta"), default="cpu", help="where cases run (default cpu); networks are on meta"
    )
    parser.add_argument("--list", action="store_true", help="with --cases: every case that is not exact")
    parser.add_argument(ONE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_this_process:
        one_counter(options)
        return
    versions = {PEERS[name].package: PEERS[name].version() for name in options.counters}
    print(
        f"torch {torch.__version__}, one thread, medians of {options.repeats} rounds of CPU time in turns with a bare pass"
    )
    print(", ".join(f"{package} {version or 'is not installed'}" for package, version in versions.items()), end="\n\n")
    if options.cases:
        print(cases_table(options))
        return
    for network in options.networks:
        forward = 2 * true_macs(network, backward=False)
        backward = 2 * true_macs(network, backward=True) - forward
        print(f"{network}: truth is {forward:,} FLOPs forward, {backward:,} backward")
        rows, notes = [], []
        for name in options.counters:
            found = result(name, network, options)
            rows.append([name, *figures(found)])
            notes += [f"{name}: {found.note}"] if found.note else []
        print(tabulate(rows, headers=HEADS, disable_numparse=True, colalign=ALIGNED), *notes, sep="\n", end="\n\n")


def one_counter(options: argparse.Namespace) -> None:
    """Prints what the one counter of `options` does, a line of JSON each; whatever the counter itself prints goes to stderr."""
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # a pass over meta tensors does, and fails to while torch is patched
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    (name,) = options.counters
    out = sys.stdout
    asked = partial(measured, repeats=options.repeats) if options.device == "meta" else figure_on_the_cpu
    with contextlib.redirect_stdout(sys.stderr):
        found: Iterator[Any] = (
            answers(PEERS[name], options.device)
            if options.cases
            else (asked(PEERS[name], network) for network in options.networks)
        )
        for each in found:
            print(json.dumps(asdict(each)), file=out, flush=True)


def lines_of(name: str, options: argparse.Namespace, *words: str) -> tuple[list[dict[str, Any]], str]:
    """What one counter says in a process of its own, and how the process ended where it failed; else ""."""
    if PEERS[name].version() is None:
        return [], "is not installed"
    command = [
        sys.executable,
        "-m",
        "scripts.bench.count",
        ONE,
        "--counters",
        name,
        "--repeats",
        str(options.repeats),
    ]
    outcome = run([*command, *words], timeout_s=TIMEOUT_S)
    lines = [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]
    if outcome.ok:
        return lines, ""
    told = (outcome.log_tail.strip().splitlines() or ["without a word"])[-1]
    how = "took too long" if outcome.timed_out else outcome.signal_name or f"exit status {outcome.returncode}"
    return lines, f"ended by itself ({how}): {told[:100]}"


def result(name: str, network: str, options: argparse.Namespace) -> Measured:
    """What one counter does with one network."""
    lines, failed = lines_of(name, options, "--networks", network, "--device", "meta")
    found = Measured(**lines[0]) if lines else Measured(note=failed)
    if found.forward_ratio is not None or PEERS[name].version() is None:
        return found
    lines, failed = lines_of(name, options, "--networks", network, "--device", "cpu")
    real = Measured(**lines[0]) if lines else Measured(note=failed)
    return replace(real, note=f"{found.note}; {real.note}")


def figures(found: Measured) -> list[str | None]:
    """The cells of a counter's row, but for its name."""

    def over(one: float | None, bare: float | None) -> str | None:
        return None if one is None or bare is None else f"{one / bare:.2f}"

    def rounded(value: float | None, digits: int) -> str | None:
        return None if value is None else f"{value:.{digits}f}"

    return [
        _ratio(found.forward_ratio),
        _ratio(found.backward_ratio),
        rounded(found.prepare_ms, 0),
        rounded(found.forward_ms, 0),
        over(found.forward_ms, found.bare_forward_ms),
        rounded(found.step_ms, 0),
        over(found.step_ms, found.bare_step_ms),
        None if found.peak_bytes is None else rounded(found.peak_bytes / 1e6, 1),
    ]


def _ratio(value: float | None) -> str | None:
    """A ratio to the truth: 1 only where it is exact."""
    if value is None:
        return None
    if value == 1:
        return "1"
    return f"{value:.5f}" if abs(value - 1) < 0.0005 else f"{value:.3f}" if value > 0.01 else f"{value:.1g}"


def cases_table(options: argparse.Namespace) -> str:
    """How many cases each counter has exactly, and how it misses the others; of forward, then of backward."""
    rows: list[list[str | int | None]] = []
    listed: list[str] = []
    for name in options.counters:
        if name == "profiler-kit, with memory":
            continue
        found, failed = lines_of(name, options, "--cases", "--device", options.device)
        for direction in ("forward", "backward"):
            tally = Counter(one[direction] for one in found if one[direction] is not None)
            if tally or failed:
                rows.append([name, direction, sum(tally.values()), *(tally[each] for each in OUTCOMES), failed])
            if failed:
                break
            if options.list:
                listed += _missed(name, direction, found)
    heads = ["counter", "of", "cases", *OUTCOMES, ""]
    return "\n".join([f"hand-derived cases on {options.device}", tabulate(rows, headers=heads), *listed])


def _missed(name: str, direction: str, found: Sequence[dict[str, Any]]) -> list[str]:
    ratio = "ratio" if direction == "forward" else "backward_ratio"
    return [
        f"{name}, {direction}: {one['case']}: {one[direction]}, {one[ratio]}, {one['why']}"
        for one in found
        if one[direction] not in (None, "exact")
    ]


if __name__ == "__main__":
    main()
