"""What our timers cost: the step under stopwatch and CUDA events against a bare loop that makes the same calls.

Both loops run in one process on the same model, in rounds of bare, timed, timed, bare, so that drift cancels; the bare
loop against itself in each round is the noise floor. Exits with 1 where the timed step takes more than 1.02 of the bare::

    python -m scripts.bench.overhead                # every case, on CUDA where there is one
    python -m scripts.bench.overhead --device cpu --rounds 20 --cases tiny
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor, nn

from profiler_kit.loading import Target, from_model, load
from profiler_kit.records.target import TargetSpec
from profiler_kit.units import text
from profiler_kit.worker.steps import Runner, synced_step_ns, timed_steps

MODELS: Final = Path(__file__).resolve().parents[2] / "models"
MOST: Final = 1.02  # the step under our timers may take this much of the bare one
BLOCK_NS: Final = 200_000_000  # a block lasts about this long: far above the clock's resolution, below its drift
FEWEST_STEPS, MOST_STEPS = 3, 500
WARM_UP_STEPS: Final = 10
TINY_LAYERS, TINY_WIDTH, TINY_BATCH = 12, 32, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """One case: steps per block, median steps, and the ratios of all rounds (timed : bare, and bare : bare)."""

    case: str
    device: str
    steps: int
    rounds: int
    bare_step_ns: int
    timed_step_ns: int
    ratio: float
    ratio_low: float
    ratio_high: float
    noise: float

    @property
    def kept(self) -> bool:
        """Whether the timers cost no more than they may."""
        return self.ratio <= MOST

    @property
    def cost_ns(self) -> int:
        """What the timers, and the code that lets them watch, add to a step."""
        return round((self.ratio - 1) * self.bare_step_ns)


def tiny() -> nn.Module:
    """Many layers with next to no work in each: the step is the time to launch them."""
    layers = [layer for _ in range(TINY_LAYERS) for layer in (nn.Linear(TINY_WIDTH, TINY_WIDTH), nn.ReLU())]
    return nn.Sequential(*layers)


def target_of(case: str, device: str) -> Target:
    """The target of `case` on `device`; V0 shrinks on a CPU, where a step at full size takes seconds."""
    if case == "tiny":
        return from_model(
            tiny(), torch.randn(TINY_BATCH, TINY_WIDTH), optimizer="sgd", loss="cross_entropy", device=device
        )
    if case == "mnist":
        return load(TargetSpec(spec=str(MODELS / "mnist_cnn.py")), device=device)
    shape = "8,3,256,256" if device == "cuda" else "1,3,64,64"
    return load(TargetSpec(spec=str(MODELS / "convnet_v0.py"), inputs=(shape,)), device=device)


CASES: Final = ("v0", "mnist", "tiny")


def batches(runner: Runner) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and labels on the device, as a plain training script would get them."""
    target = runner.target
    if target.loader is None:
        (x,) = target.batch.args
        (labels,) = target.labels_for(target.model(x))
        yield from itertools.repeat((x, labels))
    while target.loader is not None:
        for batch in target.loader():
            (x,), (labels,) = batch.args, batch.labels
            yield x.to(target.device), labels.to(target.device)


class Bare:
    """A plain training loop over the runner's own model and optimizer: the same calls, and no mark between them."""

    def __init__(self, runner: Runner) -> None:
        assert runner.optimizer is not None
        self.model = runner.target.model
        self.optimizer = runner.optimizer
        self.batches = batches(runner)

    def step(self) -> None:
        """One step as everybody writes it, the loss read to be printed."""
        x, labels = next(self.batches)
        loss = F.cross_entropy(self.model(x), labels)
        loss.item()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def steps_ns(self, count: int, cuda: bool) -> list[int]:
        """Durations of `count` steps, each from its beginning to the next one's, as the tool defines them."""
        begins = []
        for _ in range(count + 1 if cuda else count):
            begins.append(time.perf_counter_ns())
            self.step()
        begins.append(time.perf_counter_ns())
        return [end - begin for begin, end in itertools.pairwise(begins)][:count]


def measure(case: str, device: str, rounds: int) -> Overhead:
    """Rounds of bare, timed, timed, bare blocks of steps, on one model."""
    runner = Runner(target_of(case, device))
    bare = Bare(runner)
    for _ in range(WARM_UP_STEPS):
        bare.step()
        runner.step()
    step_ns = statistics.median(synced_step_ns(runner) for _ in range(FEWEST_STEPS))
    steps = max(FEWEST_STEPS, min(MOST_STEPS, round(BLOCK_NS / step_ns)))

    def bare_block() -> float:
        return block(runner, lambda: bare.steps_ns(steps, runner.cuda))

    def timed_block() -> float:
        return block(runner, lambda: timed_steps(runner, steps).steps_ns)

    return overhead(
        case, device, steps, [(bare_block(), timed_block(), timed_block(), bare_block()) for _ in range(rounds)]
    )


def block(runner: Runner, steps_ns: Callable[[], Sequence[int]]) -> float:
    """The mean step of a block that begins and ends with an idle device."""
    runner.synchronize()
    mean_ns = statistics.fmean(steps_ns())
    runner.synchronize()
    return mean_ns


def overhead(case: str, device: str, steps: int, rounds: Sequence[tuple[float, float, float, float]]) -> Overhead:
    """The figures of a case from its rounds of bare, timed, timed, bare steps in ns.

    The ratio is the median over rounds, which outliers of a shared machine do not move; its range is that of the middle
    half of the rounds. The noise is how far the two bare blocks of a round lie apart, in the median.
    """
    ratios = sorted((t1 + t2) / (b1 + b2) for b1, t1, t2, b2 in rounds)
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Overhead(
        case=case,
        device=device,
        steps=steps,
        rounds=len(rounds),
        bare_step_ns=round(statistics.median(ns for b1, _, _, b2 in rounds for ns in (b1, b2))),
        timed_step_ns=round(statistics.median(ns for _, t1, t2, _ in rounds for ns in (t1, t2))),
        ratio=statistics.median(ratios),
        ratio_low=low,
        ratio_high=high,
        noise=statistics.median(max(b1, b2) / min(b1, b2) for b1, _, _, b2 in rounds),
    )


def shown(results: Sequence[Overhead]) -> str:
    """The results as a table."""
    rows = [
        (r.case, r.device, r.steps, r.rounds, text(r.bare_step_ns, "ns"), text(r.timed_step_ns, "ns"), text(r.cost_ns, "ns"),
         f"{r.ratio:.4f}",
         f"{r.ratio_low:.4f} .. {r.ratio_high:.4f}", f"{r.noise:.4f}", "yes" if r.kept else "NO")
        for r in results
    ]  # fmt: skip
    heads = ("case", "device", "steps/block", "rounds", "bare", "timed", "added", "timed : bare", "middle half", "bare : bare",
             f"<= {MOST}")  # fmt: skip
    return tabulate(rows, headers=heads, disable_numparse=True)


def main(argv: list[str]) -> int:
    """Measures the cases asked for and prints the table; 1 where one costs too much."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    line.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    line.add_argument("--rounds", type=int, default=15)
    line.add_argument("--json", type=Path, metavar="FILE", help="save the results")
    args = line.parse_args(argv)
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    results = []
    for case in args.cases:
        print(f"{case} on {device} …", file=sys.stderr)
        results.append(measure(case, device, args.rounds))
    if args.json is not None:
        saved = {"kind": "overhead_bench", "schema": 1, "cases": [asdict(result) for result in results]}
        args.json.write_text(json.dumps(saved, indent=1) + "\n")
    print(shown(results))
    return 0 if all(result.kept for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
