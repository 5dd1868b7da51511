"""Measure how `inspect` of a folder grows with the number of ranks::

    python -m scripts.bench.inspect_ranks                           # 16, 64 and 256 ranks of 20 MB
    python -m scripts.bench.inspect_ranks --ranks 8 32 --mb 5

Every rank is a recorded trace of a distributed run, repeated to the requested size (see `scaled_trace`), with a rank of its own.
Smaller numbers of ranks are links to the files of the largest one. The table shows the wall time, also divided by the number of
ranks (equal shares mean that the growth is linear), the CPU time, and the largest resident memory of one process of the command
and of all together, where pages that processes share count for each. The floor is the time to read all bytes of the files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from tabulate import tabulate

from scripts.bench.scaled_trace import scale

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDED: Final = ROOT / "tests" / "fixtures" / "traces" / "ranks_cuda"
DISTRIBUTED: Final = re.compile(r'("distributedInfo":\s*\{[^}]*"rank":\s*)\d+([^}]*"world_size":\s*)\d+')
SAMPLE_S: Final = 0.05
HEADS: Final = ("ranks", "MB", "wall s", "CPU s", "s a rank", "reading s", "one process MB", "all processes MB")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 256], metavar="N")
    parser.add_argument("--mb", type=float, default=20.0, help="size of a rank's file, uncompressed (default: 20)")
    parser.add_argument("--from", dest="source", type=Path, help="a trace of one rank (default: a recorded one)")
    options = parser.parse_args()
    source = options.source or sorted(RECORDED.glob("*.json*"))[0]
    counts = sorted(options.ranks)
    rows = []
    with tempfile.TemporaryDirectory(prefix="profiler_kit_ranks_") as name:
        everything = Path(name) / "all"
        everything.mkdir()
        size = write_ranks(source, everything, counts[-1], options.mb)
        for count in counts:
            folder = Path(name) / f"{count}"
            folder.mkdir()
            for rank in range(count):
                os.link(everything / f"rank{rank}.json", folder / f"rank{rank}.json")
            rows.append(measure(folder, count, size))
            print(tabulate([rows[-1]], headers=HEADS, floatfmt=".4g"), flush=True)
    print(f"\n{os.cpu_count()} cores, traces made from {source.name}")
    print(tabulate(rows, headers=HEADS, floatfmt=".4g"))
    return 0


def write_ranks(source: Path, folder: Path, count: int, mb: float) -> int:
    """Write the traces of `count` ranks and return the bytes of one."""
    template = folder / "template"
    scale(source, template, round(mb * 1e6))
    text = template.read_text(encoding="utf-8")
    template.unlink()
    match = DISTRIBUTED.search(text)
    if match is None:
        raise SystemExit(f"{source} has no rank: give a trace of a distributed run")
    head, tail = text[: match.start()], text[match.end() :]
    for rank in range(count):
        distributed = f"{match[1]}{rank}{match[2]}{count}"
        (folder / f"rank{rank}.json").write_text(f"{head}{distributed}{tail}", encoding="utf-8")
    return len(text)


def measure(folder: Path, count: int, size: int) -> list[float]:
    """Inspect the ranks in `folder` and return a row."""
    start_s = time.monotonic()
    for file in folder.iterdir():
        file.read_bytes()
    reading_s = time.monotonic() - start_s
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_s = time.monotonic()
    output = folder.with_suffix(".report.json")
    command = [sys.executable, "-m", "profiler_kit", "inspect", str(folder), "-q", "-f", "json"]
    with output.open("wb") as out, subprocess.Popen(command, stdout=out, cwd=ROOT) as process:
        largest = [0, 0]
        thread = threading.Thread(target=watch, args=(process, largest))
        thread.start()
        status = process.wait()
        thread.join()
    wall_s = time.monotonic() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if status != 0:
        raise SystemExit(f"inspect of {count} ranks ended with status {status}")
    found = json.loads(output.read_bytes())
    if len(found["traces"]) != count:
        raise SystemExit(f"inspect found {len(found['traces'])} of {count} ranks")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [count, count * size / 1e6, wall_s, cpu_s, wall_s / count, reading_s, largest[0] / 1e6, largest[1] / 1e6]


def watch(process: subprocess.Popen[bytes], largest: list[int]) -> None:
    """Keep in `largest` the largest memory of one of the command's processes, and of all together, in bytes."""
    while process.poll() is None:
        sizes = [resident_bytes(pid) for pid in descendants(process.pid)]
        largest[0] = max(largest[0], *sizes, 0)
        largest[1] = max(largest[1], sum(sizes))
        time.sleep(SAMPLE_S)


def descendants(pid: int) -> list[int]:
    """The process `pid` and all below it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(word) for word in task.read_text().split()]
            except OSError:  # the process has ended
                continue
    return found


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:  # it has ended
        return 0
    return int(pages[1]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
