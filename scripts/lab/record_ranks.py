"""Record a data-parallel training in which one rank has extra work: one trace per rank, and the ground truth.

    python -m scripts.lab.record_ranks --out ranks                      # NCCL on all CUDA devices, else Gloo on the CPU
    python -m scripts.lab.record_ranks --device cuda --ranks 2 --straggler 1 --extra-ms 8 --out ranks
    python -m scripts.lab.record_ranks --device cpu --ranks 2 --small --out tests/fixtures/traces/ranks
    python -m scripts.lab.record_ranks --device cuda --ranks 2 --thin --out tests/fixtures/traces/ranks_cuda
    python -m scripts.lab.record_ranks --device cuda --ranks 2 --small --straggler 0 --extra-ms 3 --thin --out tests/fixtures/traces/ranks_cuda_small

A run takes less than 90 s and writes less than 8 MB: `rank0.json.gz`, `rank1.json.gz`, … and `truth.json`. The truth is measured
by clocks independent of the profiler (CUDA events on a GPU, else the host's clock):

- `step_ms`: the median step per rank without the profiler, with the extra work; `plain_step_ms`: without the extra work;
- `traced_step_ms`: each traced step, from its start to the start of the next;
- `extra_ms`: the extra work in each traced step of the straggler.

The extra work is matrix products between two layers of the forward pass. Machine names are removed from the traces. `--thin` also
removes events that show neither device work nor its launch, about half of the size.
"""

# ruff: noqa: E501 - long commands

from __future__ import annotations

import argparse
import bisect
import gzip
import json
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

WARM_UP: Final = 5
TIMED: Final = 12
CALIBRATION: Final = 10

DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CALLS: Final = frozenset({"cuda_runtime", "cuda_driver"})
# Arguments of an event that `--thin` keeps. The others describe how kernels were configured, not when they ran.
KEPT_ARGUMENTS: Final = frozenset(
    {
        "External id",
        "correlation",
        "device",
        "stream",
        "Sequence number",
        "Fwd thread id",
        "name",
        "labels",
        "sort_index",
        "Collective name",
        "In msg nelems",
        "Out msg nelems",
        "Group size",
        "dtype",
        "Process Group Name",
        "Process Group Description",
        "Process Group Ranks",
        "bytes",
    }
)


class Order(NamedTuple):
    """The options of a recording."""

    device: str
    ranks: int
    straggler: int
    extra_ms: float
    steps: int
    small: bool
    stack: bool
    thin: bool
    out: Path


class Extra(nn.Module):
    """Matrix products of roughly the requested duration, if this rank has any; returns its input unchanged."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.randn(width, width) / width)
        self.products = 0
        self.clock: Clock | None = None

    def work(self) -> None:
        """Compute the products and discard the results."""
        matrix = self.get_buffer("matrix")
        for _ in range(self.products):
            torch.mm(matrix, matrix)

    def forward(self, x: Tensor) -> Tensor:
        """Do the work and return `x`."""
        if self.products:
            with torch.no_grad():
                if self.clock is not None:
                    self.clock.mark()
                self.work()
                if self.clock is not None:
                    self.clock.mark()
        return x


class Net(nn.Module):
    """Convolutions whose gradients fill more than one DDP bucket."""

    def __init__(self, width: int, depth: int, extra: Extra) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth)))
        self.between = extra
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images `x`."""
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = F.relu(block(x))
        logits: Tensor = self.head(self.between(x).mean((2, 3)))
        return logits


class Clock:
    """Timestamps without synchronization: CUDA events, or the host's clock without a device."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Record a timestamp."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def between_ms(self) -> list[float]:
        """The times between successive timestamps, in ms."""
        if self._cuda:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in zip(self._marks, self._marks[1:], strict=False)]
        return [(b - a) / 1e6 for a, b in zip(self._marks, self._marks[1:], strict=False)]


class Loop:
    """One rank's training."""

    def __init__(self, order: Order, rank: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        gpu = device.type == "cuda"
        self.extra = Extra(2048 if gpu else 128).to(device)
        width, depth, batch, side = (24, 3, 2, 12) if order.small else (512, 12, 16, 32) if gpu else (48, 4, 4, 24)
        net = Net(width, depth, self.extra).to(device)
        # small buckets: several all-reduces per step, some of them overlap with backward
        self.model = DistributedDataParallel(
            net, device_ids=[rank] if gpu else None, bucket_cap_mb=0.02 if order.small else 8
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.images = torch.randn(batch, 3, side, side, device=device)
        self.labels = torch.randint(0, 10, (batch,), device=device)

    def step(self) -> None:
        """One ordinary training step."""
        loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def wait(self) -> None:
        """Synchronize the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def products_for(self, ms: float) -> int:
        """The number of products that take `ms`."""
        self.extra.products = CALIBRATION
        self.extra.work()
        self.wait()
        began = time.perf_counter_ns()
        self.extra.work()
        self.wait()
        one_ms = (time.perf_counter_ns() - began) / 1e6 / CALIBRATION
        return max(1, round(ms / one_ms))

    def timed_ms(self) -> float:
        """The median step in ms without the profiler."""
        for _ in range(WARM_UP):
            self.step()
        dist.barrier()
        clock = Clock(self.device)
        clock.mark()
        for _ in range(TIMED):
            self.step()
            clock.mark()
        return statistics.median(clock.between_ms())


def reduce_trace(trace: dict[str, Any]) -> dict[str, Any]:
    """Reduce the trace to device work, its launches, the operators around the launches, and step marks."""
    events = trace["traceEvents"]
    linked = {event["args"]["correlation"] for event in events if event.get("cat") in DEVICE}
    calls = [event for event in events if event.get("cat") in CALLS and event["args"].get("correlation") in linked]
    launched: dict[int, list[float]] = {}
    for event in sorted(calls, key=lambda call: call["ts"]):
        launched.setdefault(event["tid"], []).append(event["ts"])

    def around_a_launch(event: dict[str, Any]) -> bool:
        times = launched.get(event["tid"], [])
        first = bisect.bisect_left(times, event["ts"])
        return first < len(times) and times[first] < event["ts"] + event["dur"]

    kept_events = [*calls]
    for event in events:
        category = event.get("cat")
        if (
            category in DEVICE
            or category in ("user_annotation", "fwdbwd", None)
            or (category == "cpu_op" and around_a_launch(event))
        ):
            kept_events.append(event)
    kept_events.sort(key=lambda event: float(event.get("ts", 0)))
    kept_events = [
        {**event, "args": {k: v for k, v in event["args"].items() if k in KEPT_ARGUMENTS}} if "args" in event else event
        for event in kept_events
    ]
    return {**trace, "traceEvents": kept_events}


def rank_main(rank: int, order: Order, meeting: str) -> None:
    """The process of one rank: measures and traces the steps, and writes the results."""
    torch.set_num_threads(1)
    gpu = order.device == "cuda"
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if gpu else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=order.ranks
    )
    loop = Loop(order, rank, device)
    products = loop.products_for(order.extra_ms) if rank == order.straggler else 0
    loop.extra.products = 0
    truth: dict[str, Any] = {"rank": rank, "straggler": rank == order.straggler, "plain_step_ms": loop.timed_ms()}
    loop.extra.products = products
    truth["step_ms"] = loop.timed_ms()
    raw = order.out / f"rank{rank}.raw.json"
    steps, extras = Clock(device), Clock(device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    dist.barrier()
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=2, active=order.steps),
        on_trace_ready=lambda done: done.export_chrome_trace(str(raw)),
        with_stack=order.stack,
    ) as profiler:
        for number in range(2 + order.steps):
            if number >= 2:
                steps.mark()
                loop.extra.clock = extras
            loop.step()
            if number == 1 + order.steps:
                steps.mark()
            if number == 1:
                loop.wait()  # keeps earlier steps out of the trace
            profiler.step()
    truth["traced_step_ms"] = steps.between_ms()
    truth["extra_ms"] = extras.between_ms()[::2]
    text = re.sub(r'("(?:host_name|traceName)"\s*:\s*)"[^"]*"', r'\1""', raw.read_text())
    raw.unlink()
    if order.thin:
        text = json.dumps(reduce_trace(json.loads(text)), separators=(",", ":"))
    (order.out / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    gathered: list[Any] = [None] * order.ranks
    dist.all_gather_object(gathered, truth)
    if rank == 0:
        about = {
            "kind": "ranks_truth",
            "schema": 1,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if gpu else "cpu",
            "ranks": gathered,
        }
        (order.out / "truth.json").write_text(json.dumps(about, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Start one process per rank."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.device_count() > 1 else "cpu")
    line.add_argument("--ranks", type=int, help="default: all CUDA devices, or 2")
    line.add_argument("--straggler", type=int, default=1, help="the rank with extra work (default 1)")
    line.add_argument("--extra-ms", type=float, default=8.0, help="approximate extra work per step (default 8)")
    line.add_argument("--steps", type=int, default=4, help="traced steps (default 4)")
    line.add_argument("--small", action="store_true", help="a network whose traces are small")
    line.add_argument("--stack", action="store_true", help="record module calls: traces are several times larger")
    line.add_argument("--thin", action="store_true", help="remove events that show neither device work nor its launch")
    line.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = line.parse_args()
    ranks = options.ranks or (torch.cuda.device_count() if options.device == "cuda" else 2)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.device == "cpu":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    order = Order(
        device=options.device, ranks=ranks, straggler=options.straggler, extra_ms=options.extra_ms, steps=options.steps, small=options.small,
        stack=options.stack, thin=options.thin, out=options.out.resolve(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(  # type: ignore[attr-defined,no-untyped-call]
            rank_main, args=(order, str(Path(folder) / "meeting")), nprocs=ranks
        )
    for file in sorted(options.out.iterdir()):
        print(f"{file}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
