"""Measure how often `analyze` and `compare` report a false difference, and how often they detect a real one::

    python -m scripts.bench.noise --case mnist --count 20 --log noise.jsonl
    python -m scripts.bench.noise --case mnist --count 10 --plant 10% --log noise.jsonl
    python -m scripts.bench.noise --log noise.jsonl

`analyze` runs a copy of the target under two switches that change nothing, because the model resets them when it is called. The
configurations that set them are therefore identical to the default. With `--plant`, the model spins after resetting the second
one, for a share of the step, so that this configuration is slower by exactly this share. The default, both configurations and the
default again run in fresh processes. `compare` runs two copies of the file; with `--plant`, the second one spins.

`--log` appends a line of JSON for every analysis. A second call continues where the first one stopped, `--for` stops before an
analysis that would exceed the time, and a call without `--case` prints the table of the log. The exit code is 1 after a false
difference or a missed one. A planted difference below what the report says that it could have seen is not missed.

On CUDA the switches are a memory limit that exceeds all needs and TF32 of matrix products, on a CPU
``torch.use_deterministic_algorithms`` and oneDNN. The model spins on the host, or on the device (`--spin device`) for a model
whose kernels fill the step: elsewhere, time on the device hides behind launches.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tabulate import tabulate

from profiler_kit import analyze
from profiler_kit.pipeline.analyze import DEFAULT_BUDGET_S
from profiler_kit.pipeline.compare import report_sides
from profiler_kit.records.counts import DEFAULT_CONVENTION
from profiler_kit.records.progress import ignore_processes
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import TargetSpec
from profiler_kit.statistics.differences import Difference
from profiler_kit.statistics.host_load import disturbance_of
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.report_noise import compared_sides
from profiler_kit.worker.environment import pick_device
from scripts.bench.planted_models import IDENTICAL, SLOWER, Kind, Spin, busy_cores, plant

MODELS: Final = Path(__file__).resolve().parents[2] / "models"
AGAIN: Final = "default (again)"
CALIBRATION_S: Final = 6.0  # time for measuring the step before planting
STRICT: Final = ("better", "worse")

Analyze = Callable[..., Report]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is analyzed: a model file that defines the class of its model.

    - `device`: where it runs. `spin`: where the slower configuration spins.
    - `batch`: the number of examples, None for the file's own. `beside_load`: other processes keep all cores busy meanwhile.
    - `compares`: `compare` of two copies instead of `analyze`.
    """

    file: str
    device: str = "cuda"
    batch: int | None = None
    spin: Spin = "host"
    beside_load: bool = False
    compares: bool = False


CASES: Final[dict[str, Case]] = {
    "mnist": Case(file="mnist_cnn.py"),
    "launch-bound": Case(file="resnet.py", batch=1),
    "gpt": Case(file="transformer.py", batch=1),
    "device-bound": Case(file="convnet_v1.py", spin="device"),
    "cpu-load": Case(file="mnist_cnn.py", device="cpu", beside_load=True),
    "compare": Case(file="mnist_cnn.py", device="auto", compares=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The verdict of one analysis on `after` against the default configuration (on the second side of `compare`).

    - `planted_percent`: the true difference, from the spin and the step that is compared. `gap_percent`: the measured one.
    - `limit_percent`: the smallest change that the report says it would have seen, in 9 of 10 analyses; None if that is unknown.
    - `findings`: the number of findings that report `after` as better or worse. `processes`: those of the two sides.
    """

    after: str
    planted_percent: float
    outcome: str
    findings: int
    gap_percent: float
    limit_percent: float | None
    processes: tuple[int, int]

    @property
    def is_correct(self) -> bool:
        """Whether the report is right: no false difference, and a planted one found or declared too small to see."""
        if self.planted_percent <= 0:
            return self.outcome not in STRICT and not self.findings
        too_small = self.limit_percent is None or self.limit_percent > self.planted_percent
        return self.outcome == "worse" or (self.outcome != "better" and too_small)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """One analysis of a case: a line of the log.

    - `plant_percent`, `spin`: the planted slow-down, of `step_ns`: the step of the default configuration before the analysis.
    - `seconds`: the duration. `waiting_percent`: how long the threads of the default waited for a core, of their time.
    """

    case: str
    device: str
    torch: str
    plant_percent: float
    spin: str
    step_ns: int
    seconds: float
    waiting_percent: float | None
    pairs: tuple[Pair, ...]

    @property
    def series(self) -> tuple[str, float, str]:
        """Analyses of one series are repetitions of each other."""
        return self.case, self.plant_percent, self.spin if self.plant_percent else ""


def analyze_case(
    name: str,
    case: Case,
    *,
    plant_percent: float,
    spin: Spin,
    step_ns: int | None,
    budget_s: float,
    run: Analyze = analyze,
) -> Analysis:
    """Analyze a copy of the case once. `step_ns` is its step, measured first if it is None and something is planted."""
    device = pick_device(case.device)
    kind: Kind = "cuda" if device.startswith("cuda") else "cpu"
    options: dict[str, Any] = {"device": device} if case.batch is None else {"device": device, "batch": case.batch}
    with tempfile.TemporaryDirectory(prefix="profiler_kit_noise_") as temporary, busy_cores(case.beside_load):
        folder = Path(temporary)
        file = str(MODELS / case.file)
        if step_ns is None and plant_percent:
            plain = plant(file, folder, kind=kind, spin_ns=0, spin=spin)
            step_ns = step_of(run_of(run(plain, configs=["default"], budget_s=CALIBRATION_S, **options), "default"))
        spin_ns = round((step_ns or 0) * plant_percent / 100)
        begin_s = time.monotonic()
        if case.compares:
            sides = [folder / side for side in ("a", "b")]
            for side in sides:
                side.mkdir()
            specs = [
                plant(file, side, kind=kind, spin_ns=ns, spin=spin, always=True)
                for side, ns in zip(sides, (0, spin_ns), strict=True)
            ]
            reports = compare_sides(specs[0], specs[1], device=device, batch=case.batch, budget_s=budget_s)
            report = reports[0]
            pairs = [compared_pair(*reports, spin_ns)]
        else:
            configs = ["default", IDENTICAL[kind].config, SLOWER[kind].config]
            slow = plant(file, folder, kind=kind, spin_ns=spin_ns, spin=spin)
            report = run(slow, configs=configs, budget_s=budget_s, **options)
            step = noise_of(report).compared_step(run_of(report, "default"))
            planted = {SLOWER[kind].config: share_of_step(spin_ns, step)}
            # Where processes take turns, the default does not run again alone, and a switch of cuDNN is not measured for a model
            # without cuDNN's operators.
            names = (AGAIN, *configs[1:])
            compared = [name for name in names if name in planted or report.run(name) is not None]
            pairs = [analyzed_pair(report, name, planted.get(name, 0.0)) for name in compared]
        seconds = time.monotonic() - begin_s
    baseline = run_of(report, "default")
    environment, disturbance = baseline.environment, disturbance_of(baseline)
    return Analysis(
        case=name,
        device=environment.device_name if environment is not None else device,
        torch=environment.torch if environment is not None else "",
        plant_percent=plant_percent,
        spin=spin,
        step_ns=step_ns or step_of(baseline),
        seconds=round(seconds, 1),
        waiting_percent=round(100 * disturbance.waiting_share, 1) if disturbance is not None else None,
        pairs=tuple(pairs),
    )


def compare_sides(a: str, b: str, *, device: str, batch: int | None, budget_s: float) -> tuple[Report, Report]:
    """The reports of two targets, measured as `compare` does."""
    sides = report_sides(
        TargetSpec(spec=a, batch=batch),
        TargetSpec(spec=b, batch=batch),
        static=False,
        convention=DEFAULT_CONVENTION,
        device=device,
        configs=("default",),
        budget_s=budget_s,
        steps=None,
        timeout_s=None,
        on_progress=lambda _: None,
        on_process=ignore_processes,
    )
    if sides.failure is not None:
        raise SystemExit(str(sides.failure))
    return sides.a, sides.b


def share_of_step(spin_ns: int, step: Interval | None) -> float:
    """`spin_ns` in percent of the `step` that the verdict compares with."""
    if step is None:
        raise SystemExit("the default configuration has no step")
    return round(100 * spin_ns / step.median, 2)


def compared_pair(a: Report, b: Report, spin_ns: int) -> Pair:
    """The verdict of `compare` on the steps of two reports, the second one with a spin of `spin_ns`."""
    noise, before, after = compared_sides(a.runs, b.runs, run_of(a, "default"), run_of(b, "default"))
    planted_percent = share_of_step(spin_ns, noise.compared_step(before))
    return _pair("second file", noise.difference(before, after), 0, planted_percent)


def analyzed_pair(report: Report, after: str, planted_percent: float) -> Pair:
    """The verdict of `report` on the configuration `after`, which is slower by `planted_percent`."""
    difference = noise_of(report).difference(run_of(report, "default"), run_of(report, after))
    trials = [finding.trial for finding in report.findings if finding.trial is not None]
    count = sum(trial.config == after and trial.verdict in STRICT for trial in trials)
    return _pair(after, difference, count, planted_percent)


def _pair(after: str, difference: Difference | None, findings: int, planted_percent: float) -> Pair:
    if difference is None:
        raise SystemExit(f"{after}: the report has no step times")
    return Pair(
        after=after,
        planted_percent=planted_percent,
        outcome=difference.outcome,
        findings=findings,
        gap_percent=round(-100 * difference.saved, 2),
        limit_percent=round(100 * difference.smallest_visible, 2) if difference.smallest_visible is not None else None,
        processes=difference.processes,
    )


def run_of(report: Report, config: str) -> ConfigRun:
    """The successful run of `config`. Raises SystemExit without one."""
    run = report.run(config)
    if run is None:
        raise SystemExit(f"{config}: the report has no run of this configuration. {' '.join(map(str, report.notes))}")
    if run.failure is not None:
        raise SystemExit(f"{config}: the run failed: {run.failure.message}")
    return run


def step_of(run: ConfigRun) -> int:
    """The median step of the first process."""
    return round(statistics.median(run.steps_ns))


def read_log(file: Path) -> list[Analysis]:
    """The analyses in a log; none if the file does not exist."""
    if not file.exists():
        return []
    analyses = []
    for line in file.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        pairs = tuple(Pair(**{**pair, "processes": tuple(pair["processes"])}) for pair in fields.pop("pairs"))
        analyses.append(Analysis(**fields, pairs=pairs))
    return analyses


def append(analysis: Analysis, file: Path) -> None:
    """Append a line to the log."""
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(asdict(analysis)) + "\n")


def format_log(analyses: Sequence[Analysis]) -> str:
    """The table of a log: one row for each series and pair."""
    rows = []
    for series in dict.fromkeys(analysis.series for analysis in analyses):
        group = [analysis for analysis in analyses if analysis.series == series]
        for after in dict.fromkeys(pair.after for analysis in group for pair in analysis.pairs):
            pairs = [pair for analysis in group for pair in analysis.pairs if pair.after == after]
            limits = [pair.limit_percent if pair.limit_percent is not None else math.inf for pair in pairs]
            gaps = [pair.gap_percent for pair in pairs]
            planted = statistics.median(pair.planted_percent for pair in pairs)
            rows.append(
                (
                    series[0],
                    after,
                    f"{planted:.1f} % ({series[2]})" if planted else "-",
                    f"{sum(pair.outcome in STRICT or pair.findings > 0 for pair in pairs)}/{len(pairs)}",
                    f"{sum(pair.is_correct for pair in pairs)}/{len(pairs)}",
                    f"{statistics.median(limits):.1f} %",
                    f"{min(gaps):+.1f} .. {max(gaps):+.1f} %",
                    f"{statistics.fmean(sum(pair.processes) / 2 for pair in pairs):.1f}",
                    f"{statistics.median(analysis.seconds for analysis in group):.0f} s",
                )
            )
    heads = ("case", "after", "planted", "reported", "correct", "smallest change", "gaps", "processes", "duration")
    return tabulate(rows, headers=heads, disable_numparse=True)


def main(argv: list[str]) -> int:
    """Run the analyses that the log lacks, and print the table; return 1 after a false difference or a missed one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="*", choices=tuple(CASES), default=[], help="what to analyze, in turns")
    parser.add_argument("--count", type=int, default=20, help="analyses of each case in the log (default: 20)")
    parser.add_argument(
        "--plant", type=lambda text: float(text.rstrip(" %")), default=0.0, metavar="PERCENT",
        help="planted slow-down in percent of the step (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--spin", choices=("host", "device"), help="where the slower configuration spins (default: the case's)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=DEFAULT_BUDGET_S,
        metavar="S",
        help=f"seconds of measurement per analysis (default: {DEFAULT_BUDGET_S:g}, as in analyze)",
    )
    parser.add_argument(
        "--for", dest="limit_s", type=float, default=math.inf, metavar="S", help="start none later than this"
    )
    parser.add_argument("--log", type=Path, required=True, metavar="FILE", help="JSON lines to continue")
    args = parser.parse_args(argv)
    begin_s = time.monotonic()
    steps_ns: dict[str, int] = {}
    turns = [(number, name) for number in range(args.count) for name in args.case]
    for number, name in turns:
        case = CASES[name]
        spin: Spin = args.spin or case.spin
        analyses = read_log(args.log)
        series = (name, args.plant, spin if args.plant else "")
        same = [analysis for analysis in analyses if analysis.series == series]
        if len(same) > number:
            continue
        left_s = args.limit_s - (time.monotonic() - begin_s)
        if left_s < max((analysis.seconds for analysis in same), default=0.0) or left_s <= 0:
            continue
        print(f"{name}, analysis {len(same) + 1} of {args.count} ...", file=sys.stderr, flush=True)
        analysis = analyze_case(
            name, case, plant_percent=args.plant, spin=spin, step_ns=steps_ns.get(name), budget_s=args.budget
        )
        steps_ns[name] = analysis.step_ns  # of this machine: the log may be of another one
        append(analysis, args.log)
    analyses = read_log(args.log)
    print(format_log(analyses))
    return 0 if all(pair.is_correct for analysis in analyses for pair in analysis.pairs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
