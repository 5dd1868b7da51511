"""Records the traces of the scenarios, each in a fresh process, with and without stacks.

    python -m scripts.bench.diagnosis.record --device cuda --out tests/fixtures/diagnosis

Processes import torch side by side and record one after another, so that none disturbs the times of another.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final

from scripts.bench.diagnosis.scenario import PARTS, Scenario, scenarios

LIMIT_S: Final = 150
# `inspect` reads these parts of a trace; the others only make the files larger.
PARTS_OF_TRACE: Final = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "displayTimeUnit",
)


def main() -> int:
    """Record the scenarios that exist on a device; returns the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    parser.add_argument("--only", default="", help="only scenarios whose name contains this text")
    parser.add_argument("--skip-existing", action="store_true", help="keep the traces that exist")
    parser.add_argument("--jobs", type=int, default=1, help="processes that are started side by side")
    parser.add_argument("--max-kb", type=int, default=300, help="do not keep larger files (default: 300)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    selected = [one for one in scenarios(*(options.part or PARTS)) if one.runs_on(options.device) and one.ranks == 1]
    if options.one:
        (scenario,) = [scenario for scenario in selected if scenario.name == options.one]
        _record(scenario, options.device, options.out, options.max_kb)
        return 0
    selected = [scenario for scenario in selected if options.only in scenario.name]
    if options.skip_existing:
        selected = [one for one in selected if not _path(options.out, one, options.device, one.forms[0]).exists()]

    def run(scenario: Scenario) -> bool:
        command = [sys.executable, "-m", __spec__.name, "--device", options.device, "--out", str(options.out)]
        command += ["--max-kb", str(options.max_kb)]
        start_s = time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--one", scenario.name], capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            problem = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        except subprocess.TimeoutExpired:
            problem = [f"no result after {LIMIT_S} s"]
        print(f"{time.monotonic() - start_s:6.1f} s  {scenario.name}  {''.join(problem)}", flush=True)
        return bool(problem)

    with ThreadPoolExecutor(options.jobs) as pool:
        return sum(pool.map(run, selected))


def _path(out: Path, scenario: Scenario, device: str, form: str) -> Path:
    return out / f"{scenario.name}.{device}.{form}.json.gz"


def _record(scenario: Scenario, device: str, out: Path, max_kb: int) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    module = scenario.module
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with _lock(out / ".lock"):
        for form in scenario.forms:
            torch.manual_seed(0)
            stacks = form == "stacks"
            settled = int(scenario.warmup > 0)
            with tempfile.TemporaryDirectory() as folder:
                trace = Path(folder) / "trace.json"
                with profile(
                    activities=activities,
                    record_shapes=stacks,
                    with_stack=stacks,
                    schedule=schedule(wait=scenario.warmup - settled, warmup=settled, active=scenario.steps, repeat=1),
                    on_trace_ready=lambda profiler, trace=trace: profiler.export_chrome_trace(str(trace)),
                ) as profiler:
                    _run(module, device, profiler, scenario.warmup + scenario.steps)
                _write_thin(trace, _path(out, scenario, device, form), max_kb)
            if scenario.warmup == 0:
                break  # what happens once in a process has happened


def _run(module: Any, device: str, profiler: Any, steps: int) -> None:
    if hasattr(module, "main"):
        module.main(profiler)
        return
    loop = module.train(device)
    for _ in range(steps):
        next(loop)
        profiler.step()
    loop.close()


def _write_thin(trace: Path, path: Path, max_kb: int) -> None:
    data: dict[str, Any] = json.loads(trace.read_text(encoding="utf-8"))
    thin = {key: data[key] for key in PARTS_OF_TRACE if key in data} | {"traceEvents": data["traceEvents"]}
    part = path.with_suffix(".partial")
    with gzip.GzipFile(part, "wb", mtime=0) as file:
        file.write(json.dumps(thin, separators=(",", ":")).encode())
    if part.stat().st_size > max_kb * 1000:
        part.unlink()
    else:
        part.replace(path)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[IO[str]]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


if __name__ == "__main__":
    sys.exit(main())
