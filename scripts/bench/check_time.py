"""How often `check --time` is wrong and how often it finds a slower change: simulated with recorded noise, or live::

    python -m scripts.bench.check_time
    python -m scripts.bench.check_time --live 5

Simulated processes are those of `scripts.bench.decisions`. The procedure is that of the command: pairs of processes in random
order, looks after 4 to 20 of each side, and three verdicts. *Equal* sides must not fail; a change that makes the step 20 %
longer should.

`--live N` runs the command N times on a small network against an equal change, and N times against one with a quarter more
layers, with a limit of 5 %. Each run starts up to 40 processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.measurement.step_times import Side, measured_until_sure, verdict_on_steps
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.noise import Sample
from scripts.bench.decisions import RECORDED, STEP_NS, Draw, Process, recorded, slowed

ROOT: Final = Path(__file__).resolve().parents[2]
QUIET_SPREADS: Final = (0.01, 0.03, 0.05)  # between processes, as a share of the step
LIMITS: Final = (0.05, 0.10)
SLOWER: Final = 0.20
MODEL: Final = """
import torch
from torch import nn

model = nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(768, 768), nn.ReLU())])
example_inputs = torch.zeros(64, 768)
"""


def normal(spread: float) -> Draw:
    """Return a function that draws processes whose medians differ by `spread` (standard deviation)."""

    def draw(chance: random.Random, _: float) -> Process:
        ns = round(STEP_NS * (1 + chance.gauss(0, spread)))
        return {Sample.LOW: Interval(median=ns, low=round(0.995 * ns), high=round(1.005 * ns))}

    return draw


def sources() -> Iterator[tuple[str, Draw]]:
    """Yield the kinds of noise: quiet machines, and the recorded ones without turns, as the command measures."""
    for spread in QUIET_SPREADS:
        yield f"normal, {100 * spread:.0f} % between processes", normal(spread)
    for source in recorded(RECORDED):
        if not source.takes_turns:
            yield f"recorded: {source.name}", source.draw


def simulate(draw: Draw, allowed: float, planted: float, draws: int) -> tuple[Counter[str], float]:
    """Return the outcomes of `draws` checks of a change that takes `planted` more time, and the mean processes of a side."""
    chance = random.Random(1)
    outcomes: Counter[str] = Counter()
    counts = []

    def step_of(side: Side) -> Interval:
        process = draw(chance, 0.5)
        return (slowed(process, planted) if side == 1 else process)[Sample.LOW]

    for _ in range(draws):
        sides = measured_until_sure(step_of, allowed, chance=chance)
        outcomes[verdict_on_steps(*sides, allowed, "cpu").outcome] += 1
        counts.append(len(sides[0]))
    return outcomes, statistics.fmean(counts)


def simulated_rows(draws: int) -> Iterator[list[str]]:
    """Yield a row for each kind of noise and limit."""
    for name, draw in sources():
        for allowed in LIMITS:
            equal, equal_count = simulate(draw, allowed, 0.0, draws)
            slow, slow_count = simulate(draw, allowed, SLOWER, draws)
            yield [
                name, f"+{100 * allowed:.0f} %", _share(equal, "fail", draws), _share(equal, "pass", draws), f"{equal_count:.1f}",
                _share(slow, "fail", draws), _share(slow, "pass", draws), f"{slow_count:.1f}",
            ]  # fmt: skip


def _share(outcomes: Counter[str], outcome: str, draws: int) -> str:
    return f"{100 * outcomes[outcome] / draws:.1f} %"


def live_rows(count: int) -> Iterator[list[str]]:
    """Yield the verdicts of the command on an equal and on a slower change."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "net.py"
        file.write_text(MODEL.replace("LAYERS", "16"), encoding="utf-8")
        for words in (("init", "-q"), ("add", "net.py"), ("commit", "-qm", "base")):
            subprocess.run([*git, *words], cwd=folder, check=True)
        for title, layers in (("equal", "8 + 8"), ("a quarter more layers", "20")):
            file.write_text(MODEL.replace("LAYERS", layers), encoding="utf-8")
            for _ in range(count):
                done = subprocess.run(
                    [sys.executable, "-m", "profiler_kit", "check", "net.py", "--time", "--device", "cpu",
                     "--budget", "step_time=+5%", "-q", "-f", "json"],
                    cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
                )  # fmt: skip
                time = json.loads(done.stdout)["time"]
                interval = f"{100 * time['change']:+.1f} % ({100 * time['low']:+.1f} to {100 * time['high']:+.1f} %)"
                yield [title, time["outcome"], interval, str(time["processes"]), str(done.returncode)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--live", type=int, metavar="N", help="run the command instead, N times for each change")
    options = parser.parse_args()
    if options.live:
        heads = ["change", "verdict", "step", "processes a side", "exit status"]
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
        print(tabulate(live_rows(options.live), headers=heads, disable_numparse=True))
        return 0
    heads = ["noise", "limit", "equal: fail", "pass", "processes", "20 % longer: fail", "pass", "processes"]
    print(tabulate(simulated_rows(options.draws), headers=heads, disable_numparse=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
