"""Compare time and memory of `inspect` on large traces with JSON parsers and other trace readers.

Large traces are made from a recorded one (see `scaled_trace`). Every reader runs in a fresh process, and the readers
alternate. Tables show medians of the time from file to result, without imports and with the file in the system's cache,
and of the peak memory of the process or its largest child. orjson runs with Python's garbage collector on, as for users.

    python -m scripts.bench.inspect_speed                                              # 10, 100 and 500 MB
    python -m scripts.bench.inspect_speed --from trace.json.gz --sizes 500 --repeats 5
    python -m scripts.bench.inspect_speed --python peers/bin/python --sizes 10 100 500 2000

The other readers are on PyPI as traceinsight (HTA), torch-tb-profiler and orjson; TraceLens is on GitHub only. To use
another environment for them, pass its interpreter as `--python` (HTA 0.6.1 requires pandas below 3; none of them imports
torch). A reader that is not installed gets a line with this reason. HTA, torch-tb-profiler and TraceLens need gigabytes and
minutes for a large file: above 200 MB they run once, after all others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from tabulate import tabulate

from profiler_kit.process import run
from scripts.bench.inspect_readers import READERS
from scripts.bench.scaled_trace import scale

HERE: Final = Path(__file__).resolve().parent
TRACES: Final = Path(os.environ.get("PROFILER_KIT_TRACES", HERE.parents[2] / "shared" / "traces"))
# Absent on most machines; the default is then the largest trace of the test suite.
PUBLISHED: Final = TRACES / "tracelens" / "mi300_resnet_ddp_act_checkpoint.json.gz"
RECORDED: Final = HERE.parents[1] / "tests" / "fixtures" / "traces" / "checkpoint.cuda.json.gz"
OURS: Final = "profiler-kit"
REFERENCE_READER: Final = "orjson"
TIMEOUT_S: Final = 1800.0
RUN_ONCE_ABOVE_MB: Final = 200
HEADS: Final = ("reader", "work", "s", "MB/s", "peak MB", "/ orjson", "runs")
ALIGNMENT: Final = ("left", "left", "right", "right", "right", "right", "right")


def main() -> None:
    """Print a table for every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, default=PUBLISHED if PUBLISHED.exists() else RECORDED)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 500], metavar="MB")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; tables show the median (default: 3)")
    parser.add_argument(
        "--peers", nargs="+", choices=READERS, default=[*READERS], metavar="NAME", help=", ".join(READERS)
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with the other readers (default: this one)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="save the traces in this folder and reuse existing ones"
    )
    args = parser.parse_args()
    print(f"source: {args.source.name}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the first run")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for size in args.sizes:
            trace = folder / f"{args.source.name.split('.')[0]}_{size}mb.json"
            if not trace.exists():
                scale(args.source, trace, size * 1_000_000)
            print(f"\n{trace.stat().st_size / 1e6:,.0f} MB\n\n{measure(trace, args)}", flush=True)


def measure(trace: Path, args: argparse.Namespace) -> str:
    """Run all readers on one trace and return the table."""
    size = trace.stat().st_size / 1e6
    answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    failed: dict[str, str] = {}
    for label, name in schedule(args.peers, args.repeats, large=size > RUN_ONCE_ABOVE_MB):
        if name in failed:
            continue
        print(f"{label}: {name} ...", end="", file=sys.stderr, flush=True)
        answer = run_reader(name, trace, sys.executable if name.startswith(OURS) else args.python)
        if isinstance(answer, str):
            failed[name] = answer
            print(f" {answer}", file=sys.stderr)
        else:
            answers[name].append(answer)
            print(f" {answer['seconds']:.2f} s, {answer['result']}", file=sys.stderr)
    return format_table(size, args.peers, answers, failed)


def schedule(names: list[str], repeats: int, *, large: bool) -> list[tuple[str, str]]:
    """Return (label, reader) of every run. Readers alternate; with a large file, heavy readers run once and last."""
    run_last = [name for name in names if READERS[name].heavy and large]
    rounds = [
        (f"{number} of {repeats}", name) for number in range(1, repeats + 1) for name in names if name not in run_last
    ]
    return rounds + [("once", name) for name in run_last]


def run_reader(name: str, trace: Path, python: str) -> dict[str, Any] | str:
    """Run one reader in a fresh process; return its answer, or the reason of the failure."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])} if name.startswith(OURS) else None
    outcome = run([python, str(HERE / "inspect_readers.py"), name, str(trace)], env=environment, timeout_s=TIMEOUT_S)
    if outcome.ok:
        answer: dict[str, Any] = json.loads(outcome.stdout.strip().splitlines()[-1])
        return answer
    last_line = (outcome.log_tail.strip().splitlines() or ["no error message"])[-1]
    if any(f"No module named '{module.split('.')[0]}" in last_line for module in READERS[name].modules):
        return "not installed"
    return "timeout" if outcome.timed_out else f"failed ({outcome.signal_name or last_line[:100]})"


def format_table(
    size: float, names: list[str], answers: dict[str, list[dict[str, Any]]], failed: dict[str, str]
) -> str:
    """Return the table of medians, with the time divided by that of orjson."""
    seconds = {name: statistics.median(answer["seconds"] for answer in runs) for name, runs in answers.items() if runs}
    reference_s = seconds.get(REFERENCE_READER)
    rows: list[list[str]] = []
    for name in sorted(names, key=lambda name: (name in failed, seconds.get(name, 0.0))):
        label = f"{name} {answers[name][0]['version']}".strip() if answers[name] else name
        if name in failed:
            rows.append([label, failed[name], "", "", "", "", str(len(answers[name]))])
            continue
        peak = statistics.median(answer["peak_bytes"] for answer in answers[name]) / 1e6
        ratio = f"{seconds[name] / reference_s:.2f}" if reference_s else ""
        numbers = [f"{seconds[name]:.2f}", f"{size / seconds[name]:,.0f}", f"{peak:,.0f}", ratio]
        rows.append(
            [label, READERS[name].description + _format_parts(answers[name]), *numbers, str(len(answers[name]))]
        )
    return tabulate(rows, headers=HEADS, tablefmt="github", disable_numparse=True, colalign=ALIGNMENT)


def _format_parts(answers: list[dict[str, Any]]) -> str:
    parts = {name: statistics.median(answer["parts"][name] for answer in answers) for name in answers[0]["parts"]}
    return f" ({', '.join(f'{name} {seconds:.2f}' for name, seconds in parts.items())})" if parts else ""


if __name__ == "__main__":
    main()
