"""Measure the overhead of our timers: a step with stopwatch and CUDA events against a bare loop with the same calls.

Both loops run in one process on the same model, in rounds of bare, timed, timed, bare, so that drift cancels. The two bare
blocks of each round give the noise floor. The exit code is 1 if the timed step takes more than 1.02 times the bare step::

    python -m scripts.bench.overhead                # every case, on CUDA if available
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
MAX_RATIO: Final = 1.02  # limit of timed step / bare step
BLOCK_NS: Final = 200_000_000  # duration of a block: far above the clock resolution, below its drift
MIN_STEPS, MAX_STEPS = 3, 500
WARM_UP_STEPS: Final = 10
TINY_LAYERS, TINY_WIDTH, TINY_BATCH = 12, 32, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The result of one case: steps per block, median steps and the ratios timed / bare and bare / bare of all rounds."""

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
    def passed(self) -> bool:
        """Whether the overhead is within `MAX_RATIO`."""
        return self.ratio <= MAX_RATIO

    @property
    def cost_ns(self) -> int:
        """The time that the timers and their hooks add to a step."""
        return round((self.ratio - 1) * self.bare_step_ns)


def make_tiny() -> nn.Module:
    """Make many layers with little work each, so that launches limit the step."""
    layers = [layer for _ in range(TINY_LAYERS) for layer in (nn.Linear(TINY_WIDTH, TINY_WIDTH), nn.ReLU())]
    return nn.Sequential(*layers)


def target_of(case: str, device: str) -> Target:
    """Return the target of `case` on `device`. V0 gets smaller inputs on a CPU, where a full step takes seconds."""
    if case == "tiny":
        return from_model(
            make_tiny(), torch.randn(TINY_BATCH, TINY_WIDTH), optimizer="sgd", loss="cross_entropy", device=device
        )
    if case == "mnist":
        return load(TargetSpec(spec=str(MODELS / "mnist_cnn.py")), device=device)
    shape = "8,3,256,256" if device == "cuda" else "1,3,64,64"
    return load(TargetSpec(spec=str(MODELS / "convnet_v0.py"), inputs=(shape,)), device=device)


CASES: Final = ("v0", "mnist", "tiny")


def batches(runner: Runner) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images and labels on the device, like a plain training script."""
    target = runner.target
    if target.loader is None:
        (x,) = target.batch.args
        (labels,) = target.labels_for(target.model(x))
        yield from itertools.repeat((x, labels))
    while target.loader is not None:
        for batch in target.loader():
            (x,), (labels,) = batch.args, batch.labels
            yield x.to(target.device), labels.to(target.device)


class BareLoop:
    """A plain training loop over the runner's model and optimizer, with the same calls and without phase marks."""

    def __init__(self, runner: Runner) -> None:
        assert runner.optimizer is not None
        self.model = runner.target.model
        self.optimizer = runner.optimizer
        self.batches = batches(runner)

    def step(self) -> None:
        """Run one ordinary step. `loss.item()` reads the loss, as if to print it."""
        x, labels = next(self.batches)
        loss = F.cross_entropy(self.model(x), labels)
        loss.item()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def steps_ns(self, count: int, cuda: bool) -> list[int]:
        """Return the durations of `count` steps, each from its start to the start of the next step."""
        starts_ns = []
        for _ in range(count + 1 if cuda else count):
            starts_ns.append(time.perf_counter_ns())
            self.step()
        starts_ns.append(time.perf_counter_ns())
        return [end - begin for begin, end in itertools.pairwise(starts_ns)][:count]


def measure(case: str, device: str, rounds: int) -> Overhead:
    """Measure one case in rounds of bare, timed, timed and bare blocks."""
    runner = Runner(target_of(case, device))
    bare = BareLoop(runner)
    for _ in range(WARM_UP_STEPS):
        bare.step()
        runner.step()
    step_ns = statistics.median(synced_step_ns(runner) for _ in range(MIN_STEPS))
    steps = max(MIN_STEPS, min(MAX_STEPS, round(BLOCK_NS / step_ns)))

    def bare_block() -> float:
        return mean_step_ns(runner, lambda: bare.steps_ns(steps, runner.cuda))

    def timed_block() -> float:
        return mean_step_ns(runner, lambda: timed_steps(runner, steps).steps_ns)

    return summarize(
        case, device, steps, [(bare_block(), timed_block(), timed_block(), bare_block()) for _ in range(rounds)]
    )


def mean_step_ns(runner: Runner, steps_ns: Callable[[], Sequence[int]]) -> float:
    """Return the mean step of a block; the device is idle before and after it."""
    runner.synchronize()
    mean_ns = statistics.fmean(steps_ns())
    runner.synchronize()
    return mean_ns


def summarize(case: str, device: str, steps: int, rounds: Sequence[tuple[float, float, float, float]]) -> Overhead:
    """Summarize a case from its rounds of (bare, timed, timed, bare) steps in ns.

    The ratio is the median over rounds, because outliers of a shared machine do not affect it. Its range covers the middle
    half of the rounds. The noise is the median ratio of the two bare blocks of a round.
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


def format_results(results: Sequence[Overhead]) -> str:
    """Return the results as a table."""
    rows = [
        (r.case, r.device, r.steps, r.rounds, text(r.bare_step_ns, "ns"), text(r.timed_step_ns, "ns"), text(r.cost_ns, "ns"),
         f"{r.ratio:.4f}",
         f"{r.ratio_low:.4f} .. {r.ratio_high:.4f}", f"{r.noise:.4f}", "yes" if r.passed else "NO")
        for r in results
    ]  # fmt: skip
    heads = ("case", "device", "steps/block", "rounds", "bare", "timed", "added", "timed / bare", "middle half", "bare / bare",
             f"<= {MAX_RATIO}")  # fmt: skip
    return tabulate(rows, headers=heads, disable_numparse=True)


def main(argv: list[str]) -> int:
    """Measure the selected cases and print the table; return 1 if the overhead of one exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the results")
    args = parser.parse_args(argv)
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
    print(format_results(results))
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
