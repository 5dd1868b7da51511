"""Measure how often `analyze` reports a false difference, and how often it detects a real one.

The script copies the target and plants a known truth in its model. The model resets two flags when it is called. The
configuration that sets the first flag is therefore identical to the default. After resetting the second flag, the model
spins for a share of the step, so that this configuration is slower by exactly this share. `analyze` runs the default, both
configurations and the default again, each in fresh processes, several times::

    python -m scripts.bench.noise --target models/convnet_v1.py --times 10
    python -m scripts.bench.noise --device cpu --target models/single_conv.py --times 3 --slow 10

On CUDA the flags are ``cudnn.benchmark`` (identical) and ``cudnn.deterministic`` (slower), and the model spins on the
device. Use ``--spin host`` for a model that is limited by launches, since it hides time on the device. On a CPU the flags are
``torch.use_deterministic_algorithms`` and oneDNN. The exit code is 1 after a false difference or a missed one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from tabulate import tabulate

from profiler_kit import analyze
from profiler_kit.loading import load
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec
from profiler_kit.statistics.noise import noise_of
from profiler_kit.worker.environment import pick_device

ROOT: Final = Path(__file__).resolve().parents[2]
AGAIN: Final = "default (again)"
CALIBRATION_S: Final = 6.0  # time for measuring the step before planting

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag: the configuration that sets it, the expression that tests it and the statement that resets it."""

    config: str
    is_on: str
    reset: str


IDENTICAL: Final[dict[Kind, Flag]] = {
    "cuda": Flag(
        config="benchmark",
        is_on="torch.backends.cudnn.benchmark",
        reset="torch.backends.cudnn.benchmark = False",
    ),
    "cpu": Flag(
        config="deterministic_algorithms",
        is_on="torch.are_deterministic_algorithms_enabled()",
        reset="torch.use_deterministic_algorithms(False)",
    ),
}
SLOWER: Final[dict[Kind, Flag]] = {
    "cuda": Flag(
        config="deterministic",
        is_on="torch.backends.cudnn.deterministic",
        reset="torch.backends.cudnn.deterministic = False",
    ),
    "cpu": Flag(
        config="no_onednn",
        is_on="not torch.backends.mkldnn.enabled",
        reset="torch.backends.mkldnn.enabled = True",
    ),
}

# Code appended to the copy of the target. It does nothing on the meta device, so that the count does not change.
PLANTED_CODE: Final = '''

import functools as _functools
import time as _time

import torch


def _spin_on_host(ns):
    until = _time.perf_counter_ns() + ns
    while _time.perf_counter_ns() < until:
        pass


@_functools.cache
def _cycles(ns):
    """Return the number of device cycles for `ns` at the clock under load."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first run includes loading the kernel
        begin.record()
        torch.cuda._sleep(20_000_000)
        end.record()
        torch.cuda.synchronize()
    return round(20_000_000 * ns / (begin.elapsed_time(end) * 1e6))


class Planted({name}):
    _slow = False

    @_functools.wraps({name}.forward)
    def forward(self, *args, **kwargs):
        if next(iter(self.parameters())).device.type == {kind!r}:
            if {identical.is_on}:
                {identical.reset}
            if {slower.is_on}:
                {slower.reset}
                Planted._slow = True
            if Planted._slow and {spin_ns}:
                {spin}
        return super().forward(*args, **kwargs)
'''
SPIN_CODE: Final = {"device": "torch.cuda._sleep(_cycles({spin_ns}))", "host": "_spin_on_host({spin_ns})"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two configurations, compared once per analysis.

    `claims` are the verdicts. `findings` are the numbers of findings that report one of the two as better or worse.
    `gaps_percent` is the extra step time of `after`, over all processes. `limits_percent` is the smallest change that each
    report says it would have seen; infinite if that is unknown. `planted_percent` is the true difference.
    """

    before: str
    after: str
    expected: Literal["same", "worse"]
    claims: tuple[str, ...]
    findings: tuple[int, ...]
    gaps_percent: tuple[float, ...]
    limits_percent: tuple[float, ...]
    planted_percent: float

    @property
    def correct(self) -> int:
        """The number of analyses whose verdict and findings are correct.

        A report that says that it could not have seen the planted difference is correct without reporting it.
        """
        analyses = zip(self.claims, self.findings, self.limits_percent, strict=True)
        if self.expected == "same":
            return sum(claim in ("same", "unknown") and count == 0 for claim, count, _ in analyses)
        return sum(
            claim == "worse" or (claim != "better" and limit > self.planted_percent) for claim, _, limit in analyses
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of `times` analyses of `target`. A step takes `step_ns`; the slower configuration adds `spin_ns`."""

    target: str
    device: str
    torch: str
    times: int
    step_ns: int
    spin_ns: int
    pairs: tuple[Pair, ...]

    @property
    def passed(self) -> bool:
        """Whether there was no false difference and no missed one."""
        return all(pair.correct == self.times for pair in self.pairs)


def plant(target: str, folder: Path, *, kind: Kind, spin_ns: int, spin: str) -> str:
    """Write a copy of `target` to `folder` that spins for `spin_ns` in the slower configuration; return its TARGET text.

    Raises: SystemExit if the target is not one file, or if its model is not a class of that file.
    """
    file, _, _ = target.partition(":")
    path = Path(file)
    name = type(load(TargetSpec(spec=target), device="meta").model).__name__
    text = path.read_text(encoding="utf-8")
    if f"class {name}" not in text:
        raise SystemExit(f"{target}: {path.name} does not define class {name} of its model; use a target that does")
    copy = folder / f"planted_{path.name}"
    spin_code = SPIN_CODE[spin].format(spin_ns=spin_ns)
    code = PLANTED_CODE.format(
        name=name, kind=kind, identical=IDENTICAL[kind], slower=SLOWER[kind], spin_ns=spin_ns, spin=spin_code
    )
    copy.write_text(text + code, encoding="utf-8")
    return f"{copy}:Planted"


def measure(
    target: str,
    *,
    device: str,
    times: int,
    slow_percent: float,
    spin: str,
    budget_s: float,
    run_analysis: Callable[..., Report] = analyze,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Analyze `target` `times` times, with the slower configuration slowed down by `slow_percent` of the step."""
    kind: Kind = "cuda" if device.startswith("cuda") else "cpu"
    configs = ["default", IDENTICAL[kind].config, SLOWER[kind].config]
    with tempfile.TemporaryDirectory(prefix="profiler_kit_noise_") as temporary:
        folder = Path(temporary)
        plain = plant(target, folder, kind=kind, spin_ns=0, spin=spin)
        on_progress("measuring the step")
        calibration = _run(run_analysis(plain, device=device, configs=["default"], budget_s=CALIBRATION_S), "default")
        step_ns = _median_ns(calibration)
        spin_ns = round(step_ns * slow_percent / 100)
        slow = plant(target, folder, kind=kind, spin_ns=spin_ns, spin=spin)
        reports = []
        for number in range(1, times + 1):
            on_progress(f"analysis {number} of {times}")
            reports.append(run_analysis(slow, device=device, configs=configs, budget_s=budget_s))
    return Result(
        target=target,
        device=calibration.environment.device_name if calibration.environment is not None else device,
        torch=calibration.environment.torch if calibration.environment is not None else "",
        times=times,
        step_ns=step_ns,
        spin_ns=spin_ns,
        pairs=(
            compare_configs(reports, AGAIN, 0.0),
            compare_configs(reports, IDENTICAL[kind].config, 0.0),
            compare_configs(reports, SLOWER[kind].config, slow_percent),
        ),
    )


def compare_configs(reports: Sequence[Report], after: str, planted_percent: float) -> Pair:
    """Compare the default configuration with `after`, which is slower by `planted_percent`, in all `reports`."""
    claims, findings, gaps, limits = [], [], [], []
    for report in reports:
        difference = noise_of(report).difference(_run(report, "default"), _run(report, after))
        if difference is None:
            raise SystemExit(f"{after}: the report has no step times")
        claims.append(difference.outcome)
        findings.append(_count_findings(report, after))
        gaps.append(-100 * difference.saved)
        limits.append(100 * difference.limit if difference.limit is not None else math.inf)
    return Pair(
        before="default", after=after, expected="worse" if planted_percent > 0 else "same",
        claims=tuple(claims), findings=tuple(findings), gaps_percent=tuple(gaps),
        limits_percent=tuple(limits), planted_percent=planted_percent,
    )  # fmt: skip


def _count_findings(report: Report, config: str) -> int:
    """Count the findings that report `config` as better or worse."""
    trials = [finding.trial for finding in report.findings if finding.trial is not None]
    return sum(trial.config == config and trial.verdict in ("better", "worse") for trial in trials)


def _run(report: Report, config: str) -> ConfigRun:
    run = report.run(config)
    if run is None:
        raise SystemExit(f"{config}: the report has no run of this configuration. {' '.join(report.notes)}")
    if run.failure is not None:
        raise SystemExit(f"{config}: the run failed: {run.failure.message}")
    return run


def _median_ns(run: ConfigRun) -> int:
    return round(statistics.median(run.steps_ns))


def format_result(result: Result) -> str:
    """Return the result as a table below a line with target, device and planted slowdown."""
    rows = [
        (f"{p.before} / {p.after}", p.expected, f"{p.correct}/{result.times}",
         f"{sum(c in ('better', 'worse') for c in p.claims)}/{result.times}", f"{sum(map(bool, p.findings))}/{result.times}",
         f"{statistics.median(p.limits_percent):.1f} %", f"{statistics.median(p.gaps_percent):+.2f} %",
         f"{min(p.gaps_percent):+.2f} .. {max(p.gaps_percent):+.2f} %")
        for p in result.pairs
    ]  # fmt: skip
    heads = (
        "pair",
        "truth",
        "correct",
        "difference reported",
        "finding",
        "smallest change",
        "median gap",
        "range of gaps",
    )
    slowdown = f"{100 * result.spin_ns / result.step_ns:.3g} % of the step of {result.step_ns / 1e6:.4g} ms"
    return (
        f"{result.target} on {result.device}, torch {result.torch}; planted slowdown: {slowdown}\n\n"
        f"{tabulate(rows, headers=heads, disable_numparse=True)}"
    )


def main(argv: list[str]) -> int:
    """Run the analyses and print the table; return 1 after a false difference or a missed one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--target", default=str(ROOT / "models" / "mnist_cnn.py"), help="FILE.py that defines the class of its model"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--times", type=int, default=10, help="number of analyses (default: 10)")
    parser.add_argument(
        "--slow",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="planted slowdown in percent of the step (default: 5); 0 plants none",
    )
    parser.add_argument(
        "--spin",
        choices=tuple(SPIN_CODE),
        help="where the slower configuration spins (default: device on CUDA, else host)",
    )
    parser.add_argument(
        "--budget", type=float, default=15.0, metavar="S", help="seconds of measurement per analysis (default: 15)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the result")
    args = parser.parse_args(argv)
    device = pick_device(args.device)
    result = measure(
        args.target,
        device=device,
        times=args.times,
        slow_percent=args.slow,
        spin=args.spin or ("device" if device.startswith("cuda") else "host"),
        budget_s=args.budget,
        on_progress=lambda text: print(f"{text} …", file=sys.stderr),
    )
    if args.json is not None:
        saved = {"kind": "noise_bench", "schema": 1, **asdict(result)}
        args.json.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    print(format_result(result))
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
