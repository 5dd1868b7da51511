"""Record the memory of the hold-out's cases on a CUDA device, each in a process of its own.

    python -m scripts.lab.record_holdout --set 1 --out cases.json.gz --seconds 80 --processes 8

The parent imports every module and never touches the device; each case runs in a fork of it, so it starts with an empty
allocator, without library handles and with the plans of no other case.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from scripts.bench.networks.holdout import HoldoutCase, holdout_cases
from scripts.lab.probe_device import write_json

STEPS = 3


def measure(case: str) -> dict[str, Any]:
    """The last step's peak of allocated bytes, its requested bytes after forward, and the reserved bytes."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = case.split("|")[3] != "ieee"
    parts = HoldoutCase(case, "cuda")
    gc.collect()
    optimizer = parts.optimizer(parts.model) if parts.work != "infer" else None
    figures: dict[str, Any] = {}
    torch.cuda.synchronize()
    getattr(torch._C, "_cuda_clearCublasWorkspaces", int)()
    torch.cuda.empty_cache()
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        with torch.set_grad_enabled(optimizer is not None):
            with parts.autocast():
                output = parts.model(parts.inputs)
                loss = parts.loss(output, parts.labels) if optimizer is not None else None
            torch.cuda.synchronize()
            stats = torch.cuda.memory_stats_as_nested_dict()
            figures["after_forward"] = stats["requested_bytes"]["all"]["current"]
            figures["peak_forward"] = stats["allocated_bytes"]["all"]["peak"]
            if loss is not None and optimizer is not None:
                loss.backward()
                torch.cuda.synchronize()
                figures["peak_backward"] = torch.cuda.max_memory_allocated()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        del output, loss
        torch.cuda.synchronize()
        figures["peak"] = torch.cuda.max_memory_allocated()
        figures["reserved"] = torch.cuda.max_memory_reserved()
    return figures


def run_forked(case: str, result: Path) -> int:
    """Start the measurement of `case` in a fork; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        with contextlib.redirect_stdout(None):
            figures = measure(case)
    except Exception as error:  # noqa: BLE001  (any failure of a case is recorded under its name)
        figures = {"error": f"{type(error).__name__}: {str(error)[:150]}"}
        status = 1
    result.write_text(json.dumps(figures))
    os._exit(status)


def record(cases: Sequence[str], processes: int, until: float, folder: Path) -> dict[str, dict[str, Any]]:
    """Measure the cases with several processes at once, until the time is over."""
    running: dict[int, tuple[str, Path]] = {}
    answer: dict[str, dict[str, Any]] = {}
    waiting = list(cases)
    while running or waiting:
        while waiting and len(running) < processes and time.time() < until:
            case = waiting.pop(0)
            result = folder / f"{len(waiting)}.json"
            running[run_forked(case, result)] = case, result
        if time.time() > until:
            waiting.clear()
        if time.time() > until + 8:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
        if not running:
            break
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.01)
            continue
        case, result = running.pop(pid)
        if result.exists() and result.stat().st_size:
            answer[case] = json.loads(result.read_text())
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Record one set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--per-network", type=int, default=6)
    options = parser.parse_args(arguments)
    until = time.time() + options.seconds
    warnings.filterwarnings("ignore")
    with contextlib.suppress(ImportError):
        importlib.import_module("timm")
    torch.set_num_threads(1)
    cases = holdout_cases(options.set, options.per_network)
    with tempfile.TemporaryDirectory() as folder:
        answer = record(cases, options.processes, until, Path(folder))
    errors = {case: figures.pop("error") for case, figures in answer.items() if "error" in figures}
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "set": options.set}
    with contextlib.suppress(ImportError):
        versions["timm"] = importlib.import_module("timm").__version__
    write_json(options.out, {**versions, "cases": {c: f for c, f in answer.items() if f}, "errors": errors})
    print(f"{len(answer)} of {len(cases)} cases, {len(errors)} failed")
    for case, error in list(errors.items())[:8]:
        print(" ", case, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
