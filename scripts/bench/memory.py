"""Compare the memory simulation with measurements on an H100.

Networks of torchvision and transformers are skipped if these packages are missing::

    python -m scripts.bench.memory [--only resnet50,lstm] [--worst 10]   # error by network
    python -m scripts.bench.memory --holdout [2]                         # networks and settings of networks/holdout.py

A prediction that is too low must be flagged: its interval must include the measurement. The script returns 1 otherwise.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import torch
from tabulate import tabulate

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target
from profiler_kit.memory import Setup, simulate
from scripts.bench.networks.holdout import setup_of as holdout_setup_of
from scripts.bench.networks.holdout import target_of as holdout_target_of
from scripts.bench.networks.measured import NETWORKS, target_of

ROOT: Final = Path(__file__).resolve().parents[2]
MEASURED: Final = ROOT / "docs" / "measured" / "memory_h100.json"
MEASURED_HOLDOUTS: Final = {
    1: ROOT / "docs" / "measured" / "memory_holdout_h100.json",
    2: ROOT / "docs" / "measured" / "memory_holdout_2_h100.json",
}
TOLERANCE_PERCENT: Final = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case. `error`, `low`, `high` and `reserved` are signed errors in percent; `after_forward` is the error in bytes."""

    case: str
    error: float
    low: float
    high: float
    reserved: float
    after_forward: int
    peak_at: str

    @property
    def is_unflagged(self) -> bool:
        """Whether the prediction is too low and its interval does not include the measurement."""
        return self.error < -TOLERANCE_PERCENT and self.high < 0


def simulate_cases(
    cases: dict[str, dict[str, int]],
    make_target: Callable[[str], Target],
    setup_of: Callable[[str], Setup] = lambda _: Setup(),
) -> list[Outcome]:
    """Simulate every case. Cases that cannot run on meta tensors are printed and skipped."""
    outcomes = []
    for case, measured in cases.items():
        if "bench" in case:  # the algorithm search changes the peak by at most 1.5 % and is not simulated
            continue
        try:
            memory = simulate(make_target(case), setup=setup_of(case)).device
        except (TargetError, ModuleNotFoundError) as error:
            print(f"skipped {case}: {str(error).splitlines()[0][:90]}")
            continue
        assert memory is not None
        outcomes.append(
            Outcome(
                case,
                _percent(memory.allocated_bytes, measured["peak"]),
                _percent(memory.allocated_low_bytes, measured["peak"]),
                _percent(memory.allocated_high_bytes, measured["peak"]),
                _percent(memory.reserved_bytes, measured["reserved"]),
                memory.after_forward_bytes - measured["after_forward"],
                f"{memory.peak_phase} {memory.peak_path} {memory.peak_op}",
            )
        )
    return outcomes


def _percent(predicted: int, measured: int) -> float:
    return 100 * (predicted - measured) / measured


def format_accuracy(outcomes: Sequence[Outcome], worst: int) -> str:
    """Return the errors by network and in total, the `worst` cases and the cases that are too low and not flagged."""
    rows = []
    for name in dict.fromkeys(outcome.case.partition("|")[0] for outcome in outcomes):
        rows.append([name, *_row([outcome for outcome in outcomes if outcome.case.partition("|")[0] == name])])
    rows.append(["all", *_row(outcomes)])
    heads = [
        "network",
        "cases",
        "median %",
        "worst %",
        "within 3 %",
        "in interval",
        "reserved, median %",
        "after forward, bytes",
    ]
    lines = [tabulate(rows, heads, floatfmt=".2f")]
    errors = sorted(abs(outcome.error) for outcome in outcomes)
    unflagged = [outcome.case for outcome in outcomes if outcome.is_unflagged]
    lines.append(f"median {median(errors):.3f} %, 90 % within {errors[int(0.9 * (len(errors) - 1))]:.2f} %")
    lines.append(f"too low by more than {TOLERANCE_PERCENT:.0f} % and not flagged: {', '.join(unflagged) or 'none'}")
    for outcome in sorted(outcomes, key=lambda outcome: -abs(outcome.error))[:worst]:
        lines.append(
            f"  {outcome.case}: {outcome.error:+.2f} % [{outcome.low:+.2f}, {outcome.high:+.2f}] {outcome.peak_at}"
        )
    return "\n".join(lines)


def _row(outcomes: Sequence[Outcome]) -> list[object]:
    worst = max(outcomes, key=lambda outcome: abs(outcome.error))
    return [
        len(outcomes),
        median(abs(outcome.error) for outcome in outcomes),
        worst.error,
        sum(abs(outcome.error) <= TOLERANCE_PERCENT for outcome in outcomes),
        sum(outcome.low - 0.5 <= 0 <= outcome.high + 0.5 for outcome in outcomes),
        median(abs(outcome.reserved) for outcome in outcomes),
        max((outcome.after_forward for outcome in outcomes), key=abs),
    ]


def main() -> int:
    """Print the tables; return 1 if a prediction is too low and not flagged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="networks, separated by commas")
    parser.add_argument("--worst", type=int, default=8, help="number of worst cases to print with their interval")
    parser.add_argument(
        "--holdout",
        type=int,
        nargs="?",
        const=1,
        choices=MEASURED_HOLDOUTS,
        help="a set of networks/holdout.py (default: 1); most networks need timm",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.holdout is not None:
        cases = json.loads(MEASURED_HOLDOUTS[args.holdout].read_text())["cases"]
        return report(simulate_cases(cases, holdout_target_of, holdout_setup_of), args.worst)
    only = args.only.split(",") if args.only else list(NETWORKS)
    missing = [name for name in only if importlib.util.find_spec(NETWORKS[name].needs) is None]
    if missing:
        print(f"skipped, package not installed: {', '.join(missing)}")
    cases = json.loads(MEASURED.read_text())["cases"]
    selected = {case: cases[case] for case in cases if case.partition("|")[0] in set(only) - set(missing)}
    return report(simulate_cases(selected, target_of), args.worst)


def report(outcomes: Sequence[Outcome], worst: int) -> int:
    """Print the accuracy; return 1 if a prediction is too low and not flagged."""
    print(format_accuracy(outcomes, worst))
    return 1 if any(outcome.is_unflagged for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
