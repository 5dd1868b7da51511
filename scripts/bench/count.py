"""Compare FLOP counters: figures, time and memory.

Every counter runs in its own process, so that its patches cannot affect another counter. A counter that is not installed
gets a line with this reason. Figures are divided by the true count, which `networks.counted` derives from shapes. Within
the process, counter and bare pass alternate, and the medians of their CPU time are compared, so that the ratios hold on a
busy machine. The other counters are in the dependency group `bench`::

    python -m scripts.bench.count [--repeats 7] [--networks llama_7b] [--counters fvcore thop]
    python -m scripts.bench.count --cases [--device meta]    # the hand-derived cases of the tests

To add a counter, add a line to `peers.PEERS`.
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
from scripts.bench.cases import OUTCOMES, run_cases
from scripts.bench.networks.counted import MODELS, true_macs
from scripts.bench.one_counter import Measurement, count_on_cpu, measure
from scripts.bench.peers import PEERS

HEADS: Final = (
    "counter", "forward / true", "backward / true", "prepare ms", "forward ms", "/ bare", "step ms", "/ bare", "peak MB",
)  # fmt: skip
ALIGNMENT: Final = ("left", *["right"] * (len(HEADS) - 1))
TIMEOUT_S: Final = 900.0
WORKER_OPTION: Final = "--in-this-process"  # runs one counter; used by the script itself


def main() -> None:
    """Print a table for every network, or one table of the cases. With `WORKER_OPTION`, print the results of one counter."""
    parser = argparse.ArgumentParser(description="Compare FLOP counters: figures, time and memory.")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; tables show the median (default: 7)")
    parser.add_argument(
        "--networks", nargs="+", choices=MODELS, default=[*MODELS], metavar="NAME", help=", ".join(MODELS)
    )
    parser.add_argument("--counters", nargs="+", choices=PEERS, default=[*PEERS], metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--cases", action="store_true", help="run the hand-derived cases instead of the networks")
    parser.add_argument(
        "--device",
        choices=("cpu", "meta"),
        default="cpu",
        help="device of the cases (default: cpu); networks run on meta",
    )
    parser.add_argument("--list", action="store_true", help="with --cases: list every case that is not exact")
    parser.add_argument(WORKER_OPTION, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_this_process:
        run_counter(options)
        return
    versions = {PEERS[name].package: PEERS[name].version() for name in options.counters}
    print(
        f"torch {torch.__version__}, one thread; medians of CPU time over {options.repeats} rounds, alternating with a bare pass"
    )
    print(", ".join(f"{package} {version or '(not installed)'}" for package, version in versions.items()), end="\n\n")
    if options.cases:
        print(format_cases(options))
        return
    for network in options.networks:
        forward = 2 * true_macs(network, backward=False)
        backward = 2 * true_macs(network, backward=True) - forward
        print(f"{network}: true count {forward:,} FLOPs in forward, {backward:,} in backward")
        rows, notes = [], []
        for name in options.counters:
            measurement = measure_counter(name, network, options)
            rows.append([name, *format_cells(measurement)])
            notes += [f"{name}: {measurement.note}"] if measurement.note else []
        print(tabulate(rows, headers=HEADS, disable_numparse=True, colalign=ALIGNMENT), *notes, sep="\n", end="\n\n")


def run_counter(options: argparse.Namespace) -> None:
    """Run the counter of `options` and print each result as one line of JSON. The counter's own output goes to stderr."""
    torch.set_num_threads(1)
    importlib.import_module(
        "torch._dynamo"
    )  # meta tensors need it, and its import fails while a counter has patched torch
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    (name,) = options.counters
    out = sys.stdout
    run_network = partial(measure, repeats=options.repeats) if options.device == "meta" else count_on_cpu
    with contextlib.redirect_stdout(sys.stderr):
        results: Iterator[Any] = (
            run_cases(PEERS[name], options.device)
            if options.cases
            else (run_network(PEERS[name], network) for network in options.networks)
        )
        for result in results:
            print(json.dumps(asdict(result)), file=out, flush=True)


def run_process(name: str, options: argparse.Namespace, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Run one counter in its own process; return its results and the reason of a failure, or ""."""
    if PEERS[name].version() is None:
        return [], "not installed"
    command = [
        sys.executable,
        "-m",
        "scripts.bench.count",
        WORKER_OPTION,
        "--counters",
        name,
        "--repeats",
        str(options.repeats),
    ]
    outcome = run([*command, *arguments], timeout_s=TIMEOUT_S)
    lines = [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]
    if outcome.ok:
        return lines, ""
    last_line = (outcome.log_tail.strip().splitlines() or ["no error message"])[-1]
    reason = "timeout" if outcome.timed_out else outcome.signal_name or f"exit status {outcome.returncode}"
    return lines, f"process failed ({reason}): {last_line[:100]}"


def measure_counter(name: str, network: str, options: argparse.Namespace) -> Measurement:
    """Measure one counter on one network: on meta tensors, else on the CPU."""
    lines, failure = run_process(name, options, "--networks", network, "--device", "meta")
    on_meta = Measurement(**lines[0]) if lines else Measurement(note=failure)
    if on_meta.forward_ratio is not None or PEERS[name].version() is None:
        return on_meta
    lines, failure = run_process(name, options, "--networks", network, "--device", "cpu")
    on_cpu = Measurement(**lines[0]) if lines else Measurement(note=failure)
    return replace(on_cpu, note=f"{on_meta.note}; {on_cpu.note}")


def format_cells(measurement: Measurement) -> list[str | None]:
    """Return the cells of a counter's row without its name."""

    def ratio(counter_ms: float | None, bare_ms: float | None) -> str | None:
        return None if counter_ms is None or bare_ms is None else f"{counter_ms / bare_ms:.2f}"

    def rounded(value: float | None, digits: int) -> str | None:
        return None if value is None else f"{value:.{digits}f}"

    return [
        _format_ratio(measurement.forward_ratio),
        _format_ratio(measurement.backward_ratio),
        rounded(measurement.prepare_ms, 0),
        rounded(measurement.forward_ms, 0),
        ratio(measurement.forward_ms, measurement.bare_forward_ms),
        rounded(measurement.step_ms, 0),
        ratio(measurement.step_ms, measurement.bare_step_ms),
        None if measurement.peak_bytes is None else rounded(measurement.peak_bytes / 1e6, 1),
    ]


def _format_ratio(value: float | None) -> str | None:
    """Format a ratio to the true count; "1" means exactly 1."""
    if value is None:
        return None
    if value == 1:
        return "1"
    return f"{value:.5f}" if abs(value - 1) < 0.0005 else f"{value:.3f}" if value > 0.01 else f"{value:.1g}"


def format_cases(options: argparse.Namespace) -> str:
    """Return the table of the cases: outcomes per counter, for forward and for backward."""
    rows: list[list[str | int | None]] = []
    mismatches: list[str] = []
    for name in options.counters:
        if name == "profiler-kit, with memory":
            continue
        answers, failure = run_process(name, options, "--cases", "--device", options.device)
        for direction in ("forward", "backward"):
            tally = Counter(answer[direction] for answer in answers if answer[direction] is not None)
            if tally or failure:
                rows.append([name, direction, sum(tally.values()), *(tally[outcome] for outcome in OUTCOMES), failure])
            if failure:
                break
            if options.list:
                mismatches += _list_mismatches(name, direction, answers)
    heads = ["counter", "direction", "cases", *OUTCOMES, ""]
    return "\n".join([f"hand-derived cases on {options.device}", tabulate(rows, headers=heads), *mismatches])


def _list_mismatches(name: str, direction: str, answers: Sequence[dict[str, Any]]) -> list[str]:
    ratio = "ratio" if direction == "forward" else "backward_ratio"
    return [
        f"{name}, {direction}: {answer['case']}: {answer[direction]}, {answer[ratio]}, {answer['reason']}"
        for answer in answers
        if answer[direction] not in (None, "exact")
    ]


if __name__ == "__main__":
    main()
