"""How long `inspect` takes over large traces, and how much memory, beside parsers and other readers of traces, in one run.

Traces are made from a real one (see `scaled_trace`). Every reader works in a fresh process, in turns with the others; what is
shown are medians of the time from the file to the result, imports left out, with the file in the system's cache, and the most
memory that the process or a child of it had. orjson runs as a user runs it, with Python's garbage collector on.

    python -m scripts.bench.inspect_speed                                              # 10, 100 and 500 MB
    python -m scripts.bench.inspect_speed --from trace.json.gz --sizes 500 --repeats 5
    python -m scripts.bench.inspect_speed --python peers/bin/python --sizes 10 100 500 2000

The peers are on the package index as traceinsight (HTA), torch-tb-profiler, orjson; `--python` is the interpreter of an
environment that has them, where this one has not (HTA 0.6.1 wants pandas below 3; none of them imports torch). TraceLens is on
GitHub only. What is not installed is a line that says so. The heavy ones take gigabytes and minutes of a large file: above
200 MB they run once, last.
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
PUBLISHED: Final = (
    TRACES / "tracelens" / "mi300_resnet_ddp_act_checkpoint.json.gz"
)  # absent on most machines; then the largest trace that the project brings along
RECORDED: Final = HERE.parents[1] / "tests" / "fixtures" / "traces" / "checkpoint.cuda.json.gz"
OURS: Final = "profiler-kit"
YARDSTICK: Final = "orjson"
TIMEOUT_S: Final = 1800.0
ONCE_ABOVE_MB: Final = 200
HEADS: Final = ("reader", "does", "s", "MB/s", "peak MB", ": orjson", "runs")
ALIGNED: Final = ("left", "left", "right", "right", "right", "right", "right")


def main() -> None:
    """Prints a table for every size."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--from", dest="source", type=Path, default=PUBLISHED if PUBLISHED.exists() else RECORDED)
    line.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 500], metavar="MB")
    line.add_argument("--repeats", type=int, default=3, help="rounds; the median is shown (3)")
    line.add_argument(
        "--peers", nargs="+", choices=READERS, default=[*READERS], metavar="NAME", help=", ".join(READERS)
    )
    line.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (this one)")
    line.add_argument("--keep", type=Path, metavar="DIR", help="write the traces there, and use what is there already")
    asked = line.parse_args()
    print(f"from {asked.source.name}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the first run")
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for size in asked.sizes:
            trace = folder / f"{asked.source.name.split('.')[0]}_{size}mb.json"
            if not trace.exists():
                scale(asked.source, trace, size * 1_000_000)
            print(f"\n{trace.stat().st_size / 1e6:,.0f} MB\n\n{measured(trace, asked)}", flush=True)


def measured(trace: Path, asked: argparse.Namespace) -> str:
    """The table of one trace."""
    size = trace.stat().st_size / 1e6
    answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    failed: dict[str, str] = {}
    for turn, name in turns(asked.peers, asked.repeats, large=size > ONCE_ABOVE_MB):
        if name in failed:
            continue
        print(f"{turn}: {name} ...", end="", file=sys.stderr, flush=True)
        answer = once(name, trace, sys.executable if name.startswith(OURS) else asked.python)
        if isinstance(answer, str):
            failed[name] = answer
            print(f" {answer}", file=sys.stderr)
        else:
            answers[name].append(answer)
            print(f" {answer['seconds']:.2f} s, {answer['found']}", file=sys.stderr)
    return table(size, asked.peers, answers, failed)


def turns(names: list[str], repeats: int, *, large: bool) -> list[tuple[str, str]]:
    """Who runs when: all in turns; of a large file the heavy ones last, and once."""
    late = [name for name in names if READERS[name].heavy and large]
    rounds = [(f"{turn} of {repeats}", name) for turn in range(1, repeats + 1) for name in names if name not in late]
    return rounds + [("once", name) for name in late]


def once(name: str, trace: Path, python: str) -> dict[str, Any] | str:
    """What one reader says of one run in a process of its own, or why it says nothing."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])} if name.startswith(OURS) else None
    outcome = run([python, str(HERE / "inspect_readers.py"), name, str(trace)], env=environment, timeout_s=TIMEOUT_S)
    if outcome.ok:
        answer: dict[str, Any] = json.loads(outcome.stdout.strip().splitlines()[-1])
        return answer
    told = (outcome.log_tail.strip().splitlines() or ["without a word"])[-1]
    if any(f"No module named '{module.split('.')[0]}" in told for module in READERS[name].modules):
        return "is not installed"
    return "took too long" if outcome.timed_out else f"failed ({outcome.signal_name or told[:100]})"


def table(size: float, names: list[str], answers: dict[str, list[dict[str, Any]]], failed: dict[str, str]) -> str:
    """Medians, and what they are to the yardstick's."""
    seconds = {name: statistics.median(one["seconds"] for one in all_of) for name, all_of in answers.items() if all_of}
    yardstick = seconds.get(YARDSTICK)
    rows: list[list[str]] = []
    for name in sorted(names, key=lambda name: (name in failed, seconds.get(name, 0.0))):
        label = f"{name} {answers[name][0]['version']}".strip() if answers[name] else name
        if name in failed:
            rows.append([label, failed[name], "", "", "", "", str(len(answers[name]))])
            continue
        peak = statistics.median(one["peak_bytes"] for one in answers[name]) / 1e6
        ratio = f"{seconds[name] / yardstick:.2f}" if yardstick else ""
        numbers = [f"{seconds[name]:.2f}", f"{size / seconds[name]:,.0f}", f"{peak:,.0f}", ratio]
        rows.append([label, READERS[name].does + _parts(answers[name]), *numbers, str(len(answers[name]))])
    return tabulate(rows, headers=HEADS, tablefmt="github", disable_numparse=True, colalign=ALIGNED)


def _parts(answers: list[dict[str, Any]]) -> str:
    parts = {name: statistics.median(one["parts"][name] for one in answers) for name in answers[0]["parts"]}
    return f" ({', '.join(f'{name} {seconds:.2f}' for name, seconds in parts.items())})" if parts else ""


if __name__ == "__main__":
    main()
