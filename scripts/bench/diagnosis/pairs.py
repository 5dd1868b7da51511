"""Predicted and measured savings: programs with a planted cause, and the same programs with that cause repaired.

    python -m scripts.bench.diagnosis.pairs record FOLDER --out OUT [--seconds 500] [--jobs 4] [--only TEXT] [--stacks]
    python -m scripts.bench.diagnosis.pairs score OUT [--causes FILE] [-f json]

FOLDER has NAME_slow.py and NAME_fixed.py, each with ``setup()``, which returns a state, and ``step(state)``. ``record`` times
both in blocks of steps without the profiler, records a trace of the slow one, and prints a line of JSON for each program. A fresh
process runs each program; they prepare side by side, and one at a time is on the device. Programs that OUT has are not run again.

``score`` needs no device. The predicted step of the fixed program is the measured step of the slow one, without the saving of
the finding that names the planted cause. FILE says which finding that is: ``{"NAME": "RULE"}``, or "" where none does. Without
FILE it is the first finding that has a saving.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scripts.bench.diagnosis.record import ROOT, device_lock

if TYPE_CHECKING:
    from torch.profiler import profile

    from profiler_kit.records.report import Finding

TIMES: Final = "times.jsonl"
SLOW, FIXED = "_slow", "_fixed"
LIMIT_S: Final = 100  # of one program
BLOCKS: Final = 5
BLOCK_S: Final = 0.35
WARMUP_S: Final = 1.2
MIN_WARMUP_STEPS, MAX_WARMUP_STEPS = 3, 40
TRACED_STEPS, SETTLED_STEPS = 3, 2
CLOSE: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The steps of a pair, measured and predicted, in nanoseconds. `rule`: the finding; `predicted_ns`: None without one."""

    name: str
    rule: str
    slow_ns: float
    fixed_ns: float
    predicted_ns: float | None

    @property
    def measured_saving(self) -> float:
        """The share of the slow step that the repair saves."""
        return 1.0 - self.fixed_ns / self.slow_ns

    @property
    def predicted_saving(self) -> float | None:
        """The share of the slow step that the finding promises."""
        return None if self.predicted_ns is None else 1.0 - self.predicted_ns / self.slow_ns

    def is_close(self, reference_ns: float) -> bool:
        """Return whether the prediction is within 15 % of `reference_ns`."""
        return self.predicted_ns is not None and abs(self.predicted_ns - self.fixed_ns) <= CLOSE * reference_ns

    @property
    def has_sign(self) -> bool:
        """Whether the prediction is a saving where the repair saves time."""
        return self.predicted_saving is not None and (self.predicted_saving > 0.0) is (self.measured_saving > 0.0)


def main() -> int:
    """Record or score; returns the number of programs that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="time both programs of each pair, and trace the slow one")
    recording.add_argument("folder", type=Path, help="folder with the programs")
    recording.add_argument("--out", type=Path, required=True, help="folder for the times and the traces")
    recording.add_argument("--seconds", type=float, default=500, help="start no program later than this (default: 500)")
    recording.add_argument("--jobs", type=int, default=4, help="processes that prepare side by side (default: 4)")
    recording.add_argument("--only", default="", help="only programs whose name contains this text")
    recording.add_argument("--stacks", action="store_true", help="record stacks")
    recording.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    scoring = commands.add_parser("score", help="compare the predicted with the measured steps")
    scoring.add_argument("out", type=Path, help="folder with the times and the traces")
    scoring.add_argument("--causes", type=Path, help="JSON file: the rule whose finding names each planted cause")
    scoring.add_argument("-f", "--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    if options.command == "score":
        causes = json.loads(options.causes.read_text(encoding="utf-8")) if options.causes else None
        print_predictions(predictions(options.out, causes), options.format)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        print(json.dumps(record_program(options.one, options.out.resolve(), stacks=options.stacks)))
        return 0
    return record_programs(options)


# ---- record


def record_programs(options: argparse.Namespace) -> int:
    """Record the programs that `options.out` lacks; returns the number of those that failed."""
    known = times_of(options.out)
    files = [path for path in sorted(options.folder.glob("*.py")) if path.stem.endswith((SLOW, FIXED))]
    end_s = time.monotonic() + options.seconds

    def run(path: Path) -> bool:
        if time.monotonic() > end_s:
            return False
        line = _in_process(path, options.out, stacks=options.stacks)
        print(line, flush=True)
        with (options.out / TIMES).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return "error" in json.loads(line)

    with ThreadPoolExecutor(options.jobs) as pool:
        return sum(pool.map(run, [path for path in files if options.only in path.stem and path.stem not in known]))


def _in_process(path: Path, out: Path, *, stacks: bool) -> str:
    """Return the line of one program, from a fresh process; with "error" if it fails."""
    command = [sys.executable, "-m", "scripts.bench.diagnosis.pairs", "record", str(path.parent)]
    command += ["--out", str(out.resolve()), "--one", str(path.resolve()), *(["--stacks"] if stacks else [])]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return json.dumps({"name": path.stem, "error": f"no result after {LIMIT_S} s"})
    if result.returncode:
        return json.dumps({"name": path.stem, "error": result.stderr.strip()[-300:]})
    return result.stdout.strip().splitlines()[-1]


def record_program(path: Path, out: Path, *, stacks: bool) -> dict[str, Any]:
    """Time the program `path`, trace it if it is a slow one, and return its name and the means of its blocks of steps."""
    import torch

    torch.manual_seed(0)
    program = _module(path)
    state = program.setup()

    def step() -> None:
        program.step(state)

    with device_lock(out / ".lock"):
        _warm_up(step)
        steps_ns = _blocks_ns(step)
        recorded = _traced(step, stacks=stacks) if path.stem.endswith(SLOW) else None
    if recorded is not None:
        recorded.export_chrome_trace(str(_trace_path(out, path.stem)))
    return {"name": path.stem, "steps_ns": steps_ns}


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # as workers of a data loader find it
    spec.loader.exec_module(module)
    return module


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _block_ns(step: Callable[[], None], count: int) -> float:
    """Return the mean time of `count` steps: the host may run ahead within them."""
    _synchronize()
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        step()
    _synchronize()
    return (time.perf_counter_ns() - start_ns) / count


def _warm_up(step: Callable[[], None]) -> None:
    end_s, count = time.monotonic() + WARMUP_S, 0
    while count < MIN_WARMUP_STEPS or (count < MAX_WARMUP_STEPS and time.monotonic() < end_s):
        _block_ns(step, 1)
        count += 1


def _blocks_ns(step: Callable[[], None]) -> list[float]:
    count = max(3, min(200, round(BLOCK_S * 1e9 / _block_ns(step, 1))))
    return [_block_ns(step, count) for _ in range(BLOCKS)]


def _traced(step: Callable[[], None], *, stacks: bool) -> profile:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    plan = schedule(wait=0, warmup=SETTLED_STEPS, active=TRACED_STEPS, repeat=1)
    recorded = profile(activities=activities, record_shapes=True, with_stack=stacks, schedule=plan)
    recorded.start()
    for _ in range(SETTLED_STEPS + TRACED_STEPS):
        step()
        recorded.step()
    _synchronize()
    recorded.stop()
    return recorded


def _trace_path(out: Path, stem: str) -> Path:
    return out / f"{stem}.json.gz"


# ---- score


def times_of(out: Path) -> dict[str, float]:
    """Return the median step of each program in `out`, in nanoseconds."""
    path = out / TIMES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["name"]: statistics.median(row["steps_ns"]) for row in rows if "steps_ns" in row}


def predictions(out: Path, causes: Mapping[str, str] | None) -> list[Prediction]:
    """Return the predictions for the pairs in `out`. `causes`: the rule that names each cause; None: the first finding."""
    times = times_of(out)
    names = [name.removesuffix(SLOW) for name in sorted(times) if name.endswith(SLOW)]
    return [
        _prediction(name, times, out, None if causes is None else causes.get(name, ""))
        for name in names
        if f"{name}{FIXED}" in times and _trace_path(out, f"{name}{SLOW}").exists()
    ]


def _prediction(name: str, times: Mapping[str, float], out: Path, rule: str | None) -> Prediction:
    import profiler_kit  # a machine that records needs torch alone

    findings = profiler_kit.inspect(_trace_path(out, f"{name}{SLOW}")).report.findings
    finding = _naming(findings, rule)
    slow_ns = times[f"{name}{SLOW}"]
    saving = None if finding is None or finding.saving is None else finding.saving.median
    return Prediction(
        name=name,
        rule="" if finding is None else finding.rule,
        slow_ns=slow_ns,
        fixed_ns=times[f"{name}{FIXED}"],
        predicted_ns=None if saving is None else (1.0 - saving) * slow_ns,
    )


def _naming(findings: tuple[Finding, ...], rule: str | None) -> Finding | None:
    return next((item for item in findings if item.saving is not None and (rule is None or item.rule == rule)), None)


def print_predictions(rows: list[Prediction], form: str) -> None:
    """Print the predictions, and how many of them are right."""
    if form == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    from tabulate import tabulate

    print(
        tabulate(
            [_cells(row) for row in rows], ["pair", "finding", "ms", "repaired", "predicted", "saves", "predicted"]
        )
    )
    named = [row for row in rows if row.predicted_ns is not None]
    print(
        f"{len(rows)} pairs, {len(named)} with a finding; sign right: {sum(row.has_sign for row in named)}; within "
        f"15 % of the repaired step: {sum(row.is_close(row.fixed_ns) for row in named)}, of the step before: "
        f"{sum(row.is_close(row.slow_ns) for row in named)}"
    )


def _cells(row: Prediction) -> list[str]:
    times = [f"{ns / 1e6:.2f}" if ns is not None else "-" for ns in (row.slow_ns, row.fixed_ns, row.predicted_ns)]
    shares = [f"{100 * x:.0f} %" if x is not None else "-" for x in (row.measured_saving, row.predicted_saving)]
    return [row.name, row.rule or "-", *times, *shares]


if __name__ == "__main__":
    sys.exit(main())
