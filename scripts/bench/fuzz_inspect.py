"""Reads broken traces, thousands of them, and says of each that did not end as it should how it ended.

Each has to end in a table, or in one TraceError, within limits of time and memory. `--whole` runs all of `inspect` on them.

    python -m scripts.bench.fuzz_inspect                 2,000 files
    python -m scripts.bench.fuzz_inspect --seed 7 --files 40 --keep DIR
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from profiler_kit.errors import TraceError
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import Table
from scripts.bench.trace_mutations import WAYS, mutations

LIMIT_S: Final = 10.0
LIMIT_RSS_BYTES: Final = (
    1 << 30
)  # of the process, over all files: the interpreter, one bomb's 64 MiB, what is made of it


def rss_bytes() -> int:
    """The most memory that this process ever had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def read_whole(path: Path) -> Table:
    """The table of the trace at `path`, whose counts sum to the entries of its list."""
    table = read(path)
    entries = len(table) + table.pairs + table.flows + table.metadata + table.unpaired + table.malformed
    if entries != table.events:
        raise ValueError(f"{entries} of {table.events} entries are accounted for")
    return table


def outcome(path: Path, run: Callable[[Path], Any]) -> str:
    """How `run` ended on `path`: "read", "refused", or what went wrong."""
    before = rss_bytes()
    started = time.perf_counter()
    try:
        run(path)
        ended = "read"
    except TraceError as error:
        ended = "refused" if error.where and "\n" not in error.message else f"an unclear error: {error}"
    except Exception:  # noqa: BLE001 -- whatever else it is, is a bug, and shown
        return traceback.format_exc(limit=-3)
    seconds, grown = time.perf_counter() - started, rss_bytes()
    if seconds > LIMIT_S:
        return f"took {seconds:.1f} s"
    if grown > LIMIT_RSS_BYTES and grown > before:
        return f"took memory: the process has had {grown >> 20} MiB, {before >> 20} before"
    return ended


def main() -> int:
    """Runs the files; exits with 1 where one ended otherwise than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="run all of inspect, not the reading alone")
    parser.add_argument("--keep", type=Path, help="keep the files that went wrong here")
    options = parser.parse_args()
    run: Callable[[Path], Any] = read_whole
    if options.whole:
        import profiler_kit

        run = profiler_kit.inspect
    counts: Counter[str] = Counter()
    bad = 0
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.files):
            seed, way = divmod(number, WAYS + 1)
            if way == 0:
                files = mutations(options.seed + seed)
            name, data = next(files)
            path = Path(folder) / "trace.json"
            path.write_bytes(data)
            started = time.perf_counter()
            ended = outcome(path, run)
            slowest = max(slowest, (time.perf_counter() - started, name))
            if ended not in ("read", "refused"):
                bad += 1
                print(f"{name} ({len(data)} bytes): {ended}")
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{name}.json").write_bytes(data)
            counts[ended if ended in ("read", "refused") else "wrong"] += 1
    print(
        f"{options.files} files: {dict(counts)}; slowest {slowest[1]} {slowest[0]:.2f} s; peak memory {rss_bytes() >> 20} MiB"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
