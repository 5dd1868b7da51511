"""Records the visible scenarios: traces with and without stacks, and reports of `analyze`, each in a fresh process.

    python -m scripts.bench.diagnosis.record --device cuda --out tests/fixtures/diagnosis --skip-existing
    python -m scripts.bench.diagnosis.record --device cuda --out tests/fixtures/diagnosis --ranks 2

Processes import torch side by side and record one after another, so that none disturbs the times of another. Scenarios of
several ranks run one by one, with ``--ranks``; each rank writes its own trace.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from scripts.bench.diagnosis.scenario import ANALYZE, FORMS, TRACE_FORMS, Scenario, scenarios

ROOT: Final = Path(__file__).resolve().parents[3]
LIMIT_S: Final = 150
UNTRACED_BLOCKS, STEPS_OF_BLOCK = 3, 4
BUDGET: Final = "2s"  # of `analyze`: the shares of a step settle within few steps
# `inspect` reads these parts of a trace; the others only make the files larger.
PARTS_OF_TRACE: Final = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "displayTimeUnit",
    "untraced_steps_ns",
)
# Numbers that neither `inspect` nor the readers of `peers` read. TraceLens needs the arrows from launches to kernels.
NUMBERS: Final = ("Ev Idx", "Record function id", "cbid", "queued")


def main() -> int:
    """Record the scenarios that exist on a device; returns the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="only scenarios whose name contains this text")
    parser.add_argument("--form", choices=FORMS, action="append", help="only this form")
    parser.add_argument("--ranks", type=int, default=1, help="the scenarios of this many processes (default: 1)")
    parser.add_argument("--skip-existing", action="store_true", help="keep the files that exist")
    parser.add_argument("--jobs", type=int, default=1, help="processes that are started side by side")
    parser.add_argument("--max-kb", type=int, default=300, help="do not keep larger files (default: 300)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    selected = [
        replace(scenario, forms=tuple(form for form in scenario.forms if form in (options.form or FORMS)))
        for scenario in scenarios("visible")
        if scenario.runs_on(options.device) and scenario.ranks == options.ranks
    ]
    if options.one:
        (scenario,) = [scenario for scenario in selected if scenario.name == options.one]
        _record(scenario, options.device, options.out, options.max_kb)
        return 0
    jobs = [
        (scenario, forms)
        for scenario in selected
        if options.only in scenario.name
        for forms in (_trace_forms(scenario), tuple({*scenario.forms} & {ANALYZE}))
        if forms and not (options.skip_existing and _path(options.out, scenario, options.device, forms[0]).exists())
    ]

    def run(job: tuple[Scenario, tuple[str, ...]]) -> bool:
        scenario, forms = job
        start_s = time.monotonic()
        if forms == (ANALYZE,):
            problem = _analyze(scenario, options.device, options.out)
        else:
            command = ["--device", options.device, "--out", str(options.out), "--max-kb", str(options.max_kb)]
            command += ["--ranks", str(scenario.ranks), "--one", scenario.name]
            problem = _problem([*_interpreter(scenario), *command, *(f"--form={form}" for form in forms)])
        print(f"{time.monotonic() - start_s:6.1f} s  {scenario.name} ({' '.join(forms)})  {problem}", flush=True)
        return bool(problem)

    with ThreadPoolExecutor(options.jobs if options.ranks == 1 else 1) as pool:
        return sum(pool.map(run, jobs))


def _trace_forms(scenario: Scenario) -> tuple[str, ...]:
    return tuple(form for form in scenario.forms if form in TRACE_FORMS)


def _interpreter(scenario: Scenario) -> list[str]:
    module = ["-m", "scripts.bench.diagnosis.record"]
    if scenario.ranks == 1:
        return [sys.executable, *module]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={scenario.ranks}",
        *module,
    ]


def _problem(command: list[str]) -> str:
    """Run `command`; the last line of its errors if it fails, or ""."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            _, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its ranks
            return f"no result after {LIMIT_S} s"
    lines = [line for line in errors.splitlines() if "Error" in line] or errors.strip().splitlines()
    return (lines[-1:] or [f"exit code {process.returncode}"])[0] if process.returncode else ""


def _path(out: Path, scenario: Scenario, device: str, form: str, rank: int = 0) -> Path:
    suffix = f".rank{rank}" if scenario.ranks > 1 else ""
    return out / f"{scenario.name}.{device}.{form}{suffix}.json.gz"


def _analyze(scenario: Scenario, device: str, out: Path) -> str:
    function, *arguments = scenario.analyze
    file = scenario.file.relative_to(ROOT)
    with tempfile.TemporaryDirectory() as folder, device_lock(out / ".lock"):
        command = [sys.executable, "-m", "profiler_kit", "analyze", f"{file}:{function}", *arguments]
        command += ["--device", device, "--configs", "default", "--budget", BUDGET, "--out", folder, "-q"]
        problem = _problem(command)
        report = Path(folder) / "report.json"
        if report.exists():
            _write(json.loads(report.read_text(encoding="utf-8")), _path(out, scenario, device, ANALYZE))
    return problem


def _record(scenario: Scenario, device: str, out: Path, max_kb: int) -> None:
    import torch

    rank = int(os.environ.get("RANK", "0"))
    if scenario.ranks > 1:
        if device == "cuda":
            torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    # Each rank of a job waits for the other ranks: they record at the same time.
    with device_lock(out / ".lock") if scenario.ranks == 1 else contextlib.nullcontext():
        for form in _trace_forms(scenario):
            path = _path(out, scenario, device, form, rank)
            _record_form(scenario, device, form, path)
            if path.stat().st_size > max_kb * 1000 and scenario.steps > 1 and scenario.ranks == 1 and scenario.warmup:
                _record_form(replace(scenario, steps=1), device, form, path)
            if path.stat().st_size > max_kb * 1000:
                path.unlink()
            if scenario.warmup == 0:
                break  # what happens once in a process has happened
    if scenario.ranks > 1:
        torch.distributed.destroy_process_group()


def _record_form(scenario: Scenario, device: str, form: str, path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    loop = scenario.module.train(device)
    for _ in range(scenario.warmup):
        next(loop)
    untraced_ns = _untraced_steps_ns(loop, device) if scenario.warmup else []
    stacks = form == "stacks"
    settled = int(scenario.warmup > 0)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        with profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])],
            record_shapes=stacks,
            with_stack=stacks,
            schedule=schedule(wait=0, warmup=settled, active=scenario.steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
        ) as profiler:
            for _ in range(settled + scenario.steps):
                next(loop)
                profiler.step()
        loop.close()
        data = json.loads(trace.read_text(encoding="utf-8"))
    _write(thin({**data, "untraced_steps_ns": untraced_ns}), path)


def _untraced_steps_ns(loop: Iterator[None], device: str) -> list[int]:
    """Return the time of a step without the profiler, as means over blocks: the host of a device runs ahead in a block."""
    import torch

    means = []
    for _ in range(UNTRACED_BLOCKS):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter_ns()
        for _ in range(STEPS_OF_BLOCK):
            next(loop)
        if device == "cuda":
            torch.cuda.synchronize()
        means.append((time.perf_counter_ns() - began) // STEPS_OF_BLOCK)
    return means


def thin(trace: dict[str, Any]) -> dict[str, Any]:
    """`trace` without the parts and numbers that no reader needs."""
    events = []
    for event in trace["traceEvents"]:
        args = {key: value for key, value in event.get("args", {}).items() if key not in NUMBERS}
        events.append({**event, "args": args} if args else {k: v for k, v in event.items() if k != "args"})
    return {key: trace[key] for key in PARTS_OF_TRACE if key in trace} | {"traceEvents": events}


def _write(data: dict[str, Any], path: Path) -> None:
    text = json.dumps(data, separators=(",", ":"))
    for folder in (sys.prefix, str(ROOT)):  # files of packages and of the project, without the folders of this machine
        text = text.replace(f"{folder}{os.sep}", "")
    part = path.with_suffix(".partial")
    with gzip.GzipFile(part, "wb", mtime=0) as file:
        file.write(text.encode())
    part.replace(path)


@contextlib.contextmanager
def device_lock(path: Path) -> Iterator[IO[str]]:
    """Hold the lock in the file `path`, so that one process at a time records."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


if __name__ == "__main__":
    sys.exit(main())
