"""How often `analyze` claims a difference that is not there, and how often it finds one that is.

The target is copied, with a model that looks at two switches when it is called. One it puts back: the configuration that sets
it is then the same as the default one by construction. The other it puts back too, and from then on spins for a share of the
step: that configuration is slower by so much, and by nothing else. `analyze` runs default, both, and default again, each in
processes of its own, several times over::

    python -m scripts.bench.noise --target models/convnet_v1.py --times 10
    python -m scripts.bench.noise --device cpu --target models/single_conv.py --times 3 --slow 10

On CUDA the switches are ``cudnn.benchmark`` (the same) and ``cudnn.deterministic`` (slow); it spins on the device, which a model
that waits for its launches does not notice: there, --spin host. On a CPU they are ``torch.use_deterministic_algorithms``
and oneDNN. Exits with 1 where a difference was claimed that is not there, or the slow one missed.
"""

from __future__ import annotations

import argparse
import json
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
from profiler_kit.statistics.intervals import gain_of_processes
from profiler_kit.statistics.noise import noise_of, verdict
from profiler_kit.units import DASH
from profiler_kit.worker.environment import pick_device

ROOT: Final = Path(__file__).resolve().parents[2]
AGAIN: Final = "default (again)"
CALIBRATING_S: Final = 6.0  # of steps, to learn how long one takes

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A configuration's name, the expression that is true under it, and the statement that puts its switch back."""

    config: str
    is_on: str
    put_back: str


SAME: Final[dict[Kind, Switch]] = {
    "cuda": Switch(
        config="benchmark",
        is_on="torch.backends.cudnn.benchmark",
        put_back="torch.backends.cudnn.benchmark = False",
    ),
    "cpu": Switch(
        config="deterministic_algorithms",
        is_on="torch.are_deterministic_algorithms_enabled()",
        put_back="torch.use_deterministic_algorithms(False)",
    ),
}
SLOW: Final[dict[Kind, Switch]] = {
    "cuda": Switch(
        config="deterministic",
        is_on="torch.backends.cudnn.deterministic",
        put_back="torch.backends.cudnn.deterministic = False",
    ),
    "cpu": Switch(
        config="no_onednn",
        is_on="not torch.backends.mkldnn.enabled",
        put_back="torch.backends.mkldnn.enabled = True",
    ),
}

# What is appended to the copy of the target. Loaded on the meta device it does nothing: the count is the target's own.
PLANT: Final = '''

import functools as _functools
import time as _time

import torch


def _spin_on_host(ns):
    until = _time.perf_counter_ns() + ns
    while _time.perf_counter_ns() < until:
        pass


@_functools.cache
def _cycles(ns):
    """How many cycles the device sleeps for that long, at the clock it has under load."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first time includes loading the kernel
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
            if {same.is_on}:
                {same.put_back}
            if {slow.is_on}:
                {slow.put_back}
                Planted._slow = True
            if Planted._slow and {spin_ns}:
                {spin}
        return super().forward(*args, **kwargs)
'''
SPINS: Final = {"device": "torch.cuda._sleep(_cycles({spin_ns}))", "host": "_spin_on_host({spin_ns})"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two configurations beside each other, once per analysis.

    `claims` are the verdicts and `findings` the numbers of findings that call one of them better or worse; `gaps_percent`: how
    much longer the second one's step took, over all processes of each; `sure`: how often the interval of that leaves out 0,
    None where it does not know processes, one of a side being all there is.
    """

    before: str
    after: str
    expected: Literal["same", "worse"]
    claims: tuple[str, ...]
    findings: tuple[int, ...]
    gaps_percent: tuple[float, ...]
    sure: int | None

    @property
    def right(self) -> int:
        """In how many analyses the verdict, and every finding, was the one that is true."""
        told = zip(self.claims, self.findings, strict=True)
        return sum(claim == self.expected and (found == 0 or self.expected != "same") for claim, found in told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of all analyses: `times` of `target`, a step of which takes `step_ns`, with `spin_ns` planted."""

    target: str
    device: str
    torch: str
    times: int
    step_ns: int
    spin_ns: int
    pairs: tuple[Pair, ...]

    @property
    def kept(self) -> bool:
        """Whether nothing was claimed that is not there, and nothing missed."""
        return all(pair.right == self.times for pair in self.pairs)


def planted(target: str, folder: Path, *, kind: Kind, spin_ns: int, spin: str) -> str:
    """The TARGET text of a copy of `target`, written into `folder`, that spins for `spin_ns` where it is slow.

    Raises SystemExit for a target that is not one file, or whose model is no class of it.
    """
    file, _, _ = target.partition(":")
    path = Path(file)
    name = type(load(TargetSpec(spec=target), device="meta").model).__name__
    text = path.read_text(encoding="utf-8")
    if f"class {name}" not in text:
        raise SystemExit(f"{target}: its model is a {name}, which is no class of this file; take one whose model is")
    copy = folder / f"planted_{path.name}"
    words = SPINS[spin].format(spin_ns=spin_ns)
    plant = PLANT.format(name=name, kind=kind, same=SAME[kind], slow=SLOW[kind], spin_ns=spin_ns, spin=words)
    copy.write_text(text + plant, encoding="utf-8")
    return f"{copy}:Planted"


def measured(
    target: str,
    *,
    device: str,
    times: int,
    slow_percent: float,
    spin: str,
    budget_s: float,
    analyzed: Callable[..., Report] = analyze,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """The pairs of `times` analyses of `target`, the slow configuration's step longer by `slow_percent`."""
    kind: Kind = "cuda" if device.startswith("cuda") else "cpu"
    configs = ["default", SAME[kind].config, SLOW[kind].config]
    with tempfile.TemporaryDirectory(prefix="profiler_kit_noise_") as made:
        folder = Path(made)
        plain = planted(target, folder, kind=kind, spin_ns=0, spin=spin)
        say("how long a step takes")
        once = _run(analyzed(plain, device=device, configs=["default"], budget_s=CALIBRATING_S), "default")
        step_ns = _median_ns(once)
        spin_ns = round(step_ns * slow_percent / 100)
        slow = planted(target, folder, kind=kind, spin_ns=spin_ns, spin=spin)
        reports = []
        for number in range(1, times + 1):
            say(f"analysis {number} of {times}")
            reports.append(analyzed(slow, device=device, configs=configs, budget_s=budget_s))
    return Result(
        target=target,
        device=once.environment.device_name if once.environment is not None else device,
        torch=once.environment.torch if once.environment is not None else "",
        times=times,
        step_ns=step_ns,
        spin_ns=spin_ns,
        pairs=(
            pair(reports, AGAIN, "same"),
            pair(reports, SAME[kind].config, "same"),
            pair(reports, SLOW[kind].config, "worse" if slow_percent > 0 else "same"),
        ),
    )


def pair(reports: Sequence[Report], after: str, expected: Literal["same", "worse"]) -> Pair:
    """The default configuration beside `after` in all `reports`."""
    claims, findings, gaps, sure = [], [], [], []
    for report in reports:
        one, other = _run(report, "default"), _run(report, after)
        claims.append(verdict(one, other, noise_of(report)))
        findings.append(_findings(report, after))
        sides = [[run.steps_ns] for run in (one, other)]
        if after != AGAIN:  # which is the default configuration's second process
            sides = [_processes(report, run) for run in (one, other)]
        found = gain_of_processes(sides[0], sides[1])
        gaps.append(-found.percent)
        if all(len(side) > 1 for side in sides):
            sure.append(found.is_sure)
    return Pair(
        before="default", after=after, expected=expected,
        claims=tuple(claims), findings=tuple(findings), gaps_percent=tuple(gaps),
        sure=sum(sure) if len(sure) == len(reports) else None,
    )  # fmt: skip


def _findings(report: Report, config: str) -> int:
    """How many findings say that `config` is better or worse."""
    trials = [finding.trial for finding in report.findings if finding.trial is not None]
    return sum(trial.config == config and trial.verdict in ("better", "worse") for trial in trials)


def _run(report: Report, config: str) -> ConfigRun:
    run = report.run(config)
    if run is None:
        raise SystemExit(f"no run of {config}: {' '.join(report.notes)}")
    if run.failure is not None:
        raise SystemExit(f"{config} failed: {run.failure.message}")
    return run


def _processes(report: Report, run: ConfigRun) -> list[tuple[int, ...]]:
    """The steps of each process of the run's configuration: its own, its repetition's, and its A/A run's."""
    seconds = [other.steps_ns for other in report.runs if other.config.repeat_of == run.config.name]
    again = run.repeat.steps_ns if run.repeat is not None else ()
    return [steps for steps in (run.steps_ns, again, *seconds) if steps]


def _median_ns(run: ConfigRun) -> int:
    return round(statistics.median(run.steps_ns))


def shown(result: Result) -> str:
    """The result as a table, with a line about what was planted."""
    rows = [
        (f"{p.before} / {p.after}", p.expected, f"{p.right}/{result.times}",
         f"{sum(c != 'same' for c in p.claims)}/{result.times}", f"{sum(map(bool, p.findings))}/{result.times}",
         f"{p.sure}/{result.times}" if p.sure is not None else DASH, f"{statistics.median(p.gaps_percent):+.2f} %",
         f"{min(p.gaps_percent):+.2f} .. {max(p.gaps_percent):+.2f} %")
        for p in result.pairs
    ]  # fmt: skip
    heads = ("pair", "truth", "right", "difference claimed", "by a finding", "interval without 0", "median gap", "gaps")
    spun = f"{100 * result.spin_ns / result.step_ns:.3g} % of the step of {result.step_ns / 1e6:.4g} ms"
    return (
        f"{result.target} on {result.device}, torch {result.torch}; planted: {spun}\n\n"
        f"{tabulate(rows, headers=heads, disable_numparse=True)}"
    )


def main(argv: list[str]) -> int:
    """Runs the analyses asked for and prints the table; 1 where one was wrong."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument(
        "--target", default=str(ROOT / "models" / "mnist_cnn.py"), help="FILE.py, its model a class in it"
    )
    line.add_argument("--device", default="auto")
    line.add_argument("--times", type=int, default=10, help="analyses (10)")
    line.add_argument("--slow", type=float, default=5.0, metavar="PERCENT", help="of the step, planted (5); 0: none")
    line.add_argument("--spin", choices=tuple(SPINS), help="where the slow one spins (CUDA: device, else host)")
    line.add_argument("--budget", type=float, default=15.0, metavar="S", help="seconds for steps in each analysis (15)")
    line.add_argument("--json", type=Path, metavar="FILE", help="save the result")
    args = line.parse_args(argv)
    device = pick_device(args.device)
    result = measured(
        args.target,
        device=device,
        times=args.times,
        slow_percent=args.slow,
        spin=args.spin or ("device" if device.startswith("cuda") else "host"),
        budget_s=args.budget,
        say=lambda text: print(f"{text} …", file=sys.stderr),
    )
    if args.json is not None:
        saved = {"kind": "noise_bench", "schema": 1, **asdict(result)}
        args.json.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    print(shown(result))
    return 0 if result.kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
