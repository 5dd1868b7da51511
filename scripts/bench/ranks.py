"""Compare `analyze --parallel` with CUDA events, on all GPUs of this machine (or with gloo on the CPU)::

    python -m scripts.bench.ranks [--ranks 2] [--case ddp,late] [--device cpu] [--budget 20s] [-o FILE.json]

Cases: ResNet-50 with DistributedDataParallel; the same with extra matrix products on rank 1; a GPT with FSDP2; a wide GPT whose
gradients are exchanged in one bucket, after backward. For each, a job of its own measures without the profiler:

- the step with communication, and with none (DistributedDataParallel with PyTorch's no-op hook, FSDP2 in its fake process group).
  The difference is the exposed communication, and what overlapping collectives cost the kernels beside them;
- the extra work of rank 1;
- the peak of allocated memory of each rank.

The table has the report's figures beside them. Exposed communication in the report is that of traced steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from tabulate import tabulate
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

from profiler_kit.loading import Target, load
from profiler_kit.loading.sharding import shard
from profiler_kit.records.report import Report
from profiler_kit.records.serde import read_saved
from profiler_kit.records.target import TargetSpec

ROOT: Final = Path(__file__).resolve().parents[2]
WARM_UP: Final = 10
ROUNDS: Final = 5  # of STEPS each; the median round counts
STEPS: Final = 10
MIB: Final = 1 << 20
ONE_BUCKET_MIB: Final = 10_000

RESNET: Final = """
import os
import torch
from torch import nn
from models.resnet import resnet50

class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = resnet50()
        self.is_late = {late} and os.environ.get("RANK") == "1"

    def extra_work(self, device):
        a = torch.full(({size}, {size}), 0.001, device=device)
        for _ in range({products}):
            a = a @ a
        return a.sum()

    def forward(self, x):
        y = self.inner(x)
        return y + 0 * self.extra_work(x.device) if self.is_late and x.device.type != "meta" else y

model = ResNet50()
example_inputs = torch.randn({batch}, 3, {image}, {image})
"""
GPT: Final = """
import torch
from models.transformer import GPT

model = GPT(width={width}, depth={depth}, heads=8)
example_inputs = torch.randint(0, 8192, ({batch}, 256))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model file and its strategy. `is_late`: rank 1 has extra work. `has_one_bucket`: all gradients in one message."""

    source: str
    strategy: str
    is_late: bool = False
    has_one_bucket: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What one rank measured without the profiler, in ms and bytes."""

    step_ms: float
    silent_step_ms: float
    extra_ms: float
    peak_bytes: int


def cases_for(device: str) -> dict[str, Case]:
    """The cases; small ones for a CPU, which only shows that the benchmark runs."""
    cuda = device == "cuda"
    sizes = {"size": 4096 if cuda else 256, "products": 4, "batch": 128 if cuda else 2, "image": 224 if cuda else 32}
    width, depth = (2048, 12) if cuda else (128, 2)
    return {
        "ddp": Case(source=RESNET.format(late=False, **sizes), strategy="ddp"),
        "late": Case(source=RESNET.format(late=True, **sizes), strategy="ddp", is_late=True),
        "fsdp2": Case(source=GPT.format(width=width, depth=depth, batch=8 if cuda else 1), strategy="fsdp2"),
        "exposed": Case(source=GPT.format(width=2 * width, depth=2, batch=2), strategy="ddp", has_one_bucket=True),
    }


def run_job(ranks: int, arguments: list[str], folder: Path) -> None:
    """Run ``python -m`` with `arguments` on all ranks of a job, in `folder`. Raises SystemExit if it fails."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "-m", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")


def measure_truth(file: str, strategy: str, bucket_mib: int | None, device_type: str, out: Path) -> None:
    """As one rank of a job: measure the case in `file`, and write a `Truth`."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(device_type)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    target: Target = load(TargetSpec(spec=file), device=str(device))
    extra = getattr(target.model, "extra_work", None)
    step_ms = _timed_ms(_step(target, strategy, bucket_mib), device, distributed.barrier)
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    extra_ms = _timed_ms(partial(extra, device), device) if extra and target.model.is_late else 0.0
    distributed.barrier()
    if strategy == "fsdp2":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed.destroy_process_group()
        distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    silent_step = _step(load(TargetSpec(spec=file), device=str(device)), strategy, bucket_mib, sends=False)
    truth = Truth(
        step_ms=step_ms, silent_step_ms=_timed_ms(silent_step, device), extra_ms=extra_ms, peak_bytes=peak_bytes
    )
    (out / f"truth{rank}.json").write_text(json.dumps(asdict(truth)))


def _step(target: Target, strategy: str, bucket_mib: int | None, *, sends: bool = True) -> Callable[[], None]:
    """A training step of `target`, which DistributedDataParallel does not communicate in unless `sends`."""
    module: Any = target.model
    if strategy == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh

        shard(module, init_device_mesh(target.device.type, (distributed.get_world_size(),)))
    else:
        module = DistributedDataParallel(module, bucket_cap_mb=bucket_mib)
        if not sends:
            module.register_comm_hook(None, noop_hook)
    optimizer, batch = target.make_optimizer(), target.batch

    def step() -> None:
        output = module(*batch.args, **batch.kwargs)
        target.loss(output, batch, target.labels_for(output)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _timed_ms(work: Callable[[], Any], device: torch.device, start_together: Callable[[], Any] = lambda: None) -> float:
    """The time of `work` by CUDA events: the median of some rounds (on a CPU by the host's clock)."""
    for _ in range(WARM_UP):
        work()
    rounds_ms = []
    for _ in range(ROUNDS):
        start_together()
        if device.type == "cuda":
            torch.cuda.synchronize()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(STEPS):
                work()
            end.record()
            torch.cuda.synchronize()
            rounds_ms.append(begin.elapsed_time(end) / STEPS)
        else:
            begin_s = time.perf_counter()
            for _ in range(STEPS):
                work()
            rounds_ms.append(1e3 * (time.perf_counter() - begin_s) / STEPS)
    return float(statistics.median(rounds_ms))


def compare(name: str, case: Case, ranks: int, device: str, budget: str, folder: Path) -> dict[str, Any]:
    """Measure one case both ways; return the figures of both."""
    file = f"{name}.py"
    (folder / file).write_text(case.source)
    options = ["--device", device]
    buckets = ["--bucket", str(ONE_BUCKET_MIB)] if case.has_one_bucket else []
    truth = ["--truth", file, "--strategy", case.strategy, *buckets, "-o", "."]
    run_job(ranks, ["scripts.bench.ranks", *options, *truth], folder)
    config = f"bucket_mb={ONE_BUCKET_MIB}" if case.has_one_bucket else "default"
    options += ["--parallel", case.strategy, "--configs", config, "--budget", budget, "--out", "report"]
    run_job(ranks, ["profiler_kit", "analyze", file, *options], folder)
    truths = [Truth(**json.loads((folder / f"truth{rank}.json").read_text())) for rank in range(ranks)]
    report = read_saved(folder / "report" / "report.json")
    assert isinstance(report, Report)
    return {"case": name, **truth_figures(truths), **report_figures(report)}


def truth_figures(truths: list[Truth]) -> dict[str, Any]:
    """The figures without the profiler."""
    return {
        "step_ms": truths[0].step_ms,
        "exposed_ms": statistics.median(truth.step_ms - truth.silent_step_ms for truth in truths),
        "extra_ms": max(truth.extra_ms for truth in truths),
        "peak_mib": max(truth.peak_bytes for truth in truths) / MIB,
    }


def report_figures(report: Report) -> dict[str, Any]:
    """The same figures in the report."""
    run, traced = report.baseline(), report.ranks.ranks if report.ranks is not None else None
    late = traced.stragglers[0] if traced is not None and traced.stragglers else None
    memory = report.static.memory if report.static is not None else None
    estimate = memory.parallel[0] if memory is not None and memory.parallel else None
    return {
        "reported_step_ms": run.step_ns.median / 1e6 if run is not None and run.step_ns is not None else None,
        "reported_exposed_ms": statistics.median(rank.exposed_ns for rank in traced.ranks) / 1e6 if traced else None,
        "reported_waits_ms": statistics.median(rank.wait_ns for rank in traced.ranks) / 1e6 if traced else None,
        "late_rank": late.rank if late is not None else None,
        "reported_excess_ms": late.doing_excess_ns / 1e6 if late is not None else None,
        "reported_late_ms": late.late_ns / 1e6 if late is not None else None,
        "late_doing": late.doing if late is not None else None,
        "reported_peak_mib": run.peak_allocated_bytes / MIB if run is not None and run.peak_allocated_bytes else None,
        "predicted_mib": (estimate.device_peak_bytes or estimate.peak_bytes) / MIB if estimate is not None else None,
        "device": run.environment.device_name if run is not None and run.environment is not None else None,
        "buckets": [asdict(row) for row in traced.collectives] if traced is not None else [],
    }


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--ranks", type=int, default=max(2, torch.cuda.device_count()))
    parser.add_argument("--case", default="ddp,late,fsdp2,exposed", help="cases, separated by commas")
    parser.add_argument("--budget", default="20s", help="of each analysis")
    parser.add_argument("--truth", help=argparse.SUPPRESS)  # one rank of the job without the profiler
    parser.add_argument("--strategy", help=argparse.SUPPRESS)
    parser.add_argument("--bucket", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep the report of each case in this folder")
    parser.add_argument("-o", type=Path, metavar="FILE", help="write the figures as JSON")
    args = parser.parse_args()
    if args.truth:
        measure_truth(args.truth, args.strategy, args.bucket, args.device, args.o)
        return
    rows = []
    for name in args.case.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            rows.append(compare(name, cases_for(args.device)[name], args.ranks, args.device, args.budget, folder))
            if args.reports:
                args.reports.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "report" / "report.json", args.reports / f"{name}.json")
        if args.o:
            args.o.write_text(json.dumps(rows, indent=1))
    keys = [key for key in rows[0] if key != "buckets"]
    print(tabulate([[key, *(row[key] for row in rows)] for key in keys], floatfmt=".4g"))


if __name__ == "__main__":
    main()
