"""How long the command line takes to answer, beside a Python that does nothing. Prints medians and ratios.

    python -m scripts.bench.startup [REPORT.json]

With a saved report, opening it is timed too.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
BARE = ("bare python", ["-c", "pass"])
ANSWERS = [
    ("import profiler_kit", ["-c", "import profiler_kit"]),
    ("--help", ["-m", "profiler_kit", "--help"]),
    ("usage error", ["-m", "profiler_kit", "frobnicate"]),
    ("unknown format", ["-m", "profiler_kit", "count", "net.py", "-f", "pdf"]),
]


def seconds(words: list[str]) -> float:
    """How long a Python with these arguments takes to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], capture_output=True, check=False)
    return time.perf_counter() - began


def main() -> int:
    """Times each answer in turn, round by round, so that a slow moment of the machine hits all alike."""
    answers = [BARE, *ANSWERS]
    if len(sys.argv) > 1:
        answers.append(("show REPORT", ["-m", "profiler_kit", "show", sys.argv[1]]))
    rounds = [[seconds(words) for _, words in answers] for _ in range(ROUNDS + 1)][1:]  # the first one fills caches
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    print(f"{'median of ' + str(ROUNDS):<24}{'time':>10}{'beside bare python':>22}")
    for (name, _), median in zip(answers, medians, strict=True):
        print(f"{name:<24}{median * 1e3:>7.1f} ms{median / medians[0]:>21.1f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
