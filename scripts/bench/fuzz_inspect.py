"""Read thousands of broken traces and list each failure.

Each trace must give a table or one TraceError, within limits of time and memory. `--whole` runs all of `inspect` on them.

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
from scripts.bench.trace_mutations import MUTATION_COUNT, mutations

LIMIT_S: Final = 10.0
LIMIT_RSS_BYTES: Final = (
    1 << 30
)  # for the process, over all files: the interpreter, and the 64 MiB of one gzip bomb with its events


def peak_rss_bytes() -> int:
    """Return the peak memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def read_and_check(path: Path) -> Table:
    """Read the trace at `path` and check that the table's counts sum to the entries of its event list."""
    table = read(path)
    entries = len(table) + table.pairs + table.flows + table.metadata + table.unpaired + table.malformed
    if entries != table.events:
        raise ValueError(f"the counts sum to {entries} entries, the trace has {table.events}")
    return table


def run_case(path: Path, run: Callable[[Path], Any]) -> str:
    """Run `run` on `path`; return "read", "refused" or a description of the failure."""
    before_bytes = peak_rss_bytes()
    started = time.perf_counter()
    try:
        run(path)
        outcome = "read"
    except TraceError as error:
        outcome = "refused" if error.where and "\n" not in error.message else f"unclear error: {error}"
    except Exception:  # noqa: BLE001 -- any other exception is a bug of the reader
        return traceback.format_exc(limit=-3)
    seconds, after_bytes = time.perf_counter() - started, peak_rss_bytes()
    if seconds > LIMIT_S:
        return f"took too long: {seconds:.1f} s"
    if after_bytes > LIMIT_RSS_BYTES and after_bytes > before_bytes:
        return f"took too much memory: the peak grew from {before_bytes >> 20} to {after_bytes >> 20} MiB"
    return outcome


def main() -> int:
    """Run all files; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="run all of inspect instead of the reader alone")
    parser.add_argument("--keep", type=Path, help="save the failing files in this folder")
    options = parser.parse_args()
    run: Callable[[Path], Any] = read_and_check
    if options.whole:
        import profiler_kit

        run = profiler_kit.inspect
    counts: Counter[str] = Counter()
    failures = 0
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.files):
            seed, kind = divmod(number, MUTATION_COUNT + 1)
            if kind == 0:
                files = mutations(options.seed + seed)
            name, data = next(files)
            path = Path(folder) / "trace.json"
            path.write_bytes(data)
            started = time.perf_counter()
            outcome = run_case(path, run)
            slowest = max(slowest, (time.perf_counter() - started, name))
            if outcome not in ("read", "refused"):
                failures += 1
                print(f"{name} ({len(data)} bytes): {outcome}")
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{name}.json").write_bytes(data)
            counts[outcome if outcome in ("read", "refused") else "failed"] += 1
    print(
        f"{options.files} files: {dict(counts)}; slowest: {slowest[1]}, {slowest[0]:.2f} s; "
        f"peak memory: {peak_rss_bytes() >> 20} MiB"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
