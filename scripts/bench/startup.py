"""Measure the start-up time of the command line against a bare Python process. Prints medians and ratios.

    python -m scripts.bench.startup [REPORT.json]

With a saved report, `show` of that report is timed as well.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
BARE = ("bare python", ["-c", "pass"])
COMMANDS = [
    ("import profiler_kit", ["-c", "import profiler_kit"]),
    ("--help", ["-m", "profiler_kit", "--help"]),
    ("usage error", ["-m", "profiler_kit", "frobnicate"]),
    ("unknown format", ["-m", "profiler_kit", "count", "net.py", "-f", "pdf"]),
]


def run_seconds(arguments: list[str]) -> float:
    """Return the run time of a Python process with these arguments."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> int:
    """Time all commands in alternating rounds, so that a slow moment of the machine affects all of them."""
    commands = [BARE, *COMMANDS]
    if len(sys.argv) > 1:
        commands.append(("show REPORT", ["-m", "profiler_kit", "show", sys.argv[1]]))
    rounds = [[run_seconds(arguments) for _, arguments in commands] for _ in range(ROUNDS + 1)]
    del rounds[0]  # the first round fills caches
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    print(f"{'median of ' + str(ROUNDS):<24}{'time':>10}{'/ bare python':>22}")
    for (name, _), median in zip(commands, medians, strict=True):
        print(f"{name:<24}{median * 1e3:>7.1f} ms{median / medians[0]:>21.1f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
