"""Record the kernel time of the ops of random networks on a CUDA device::

    python -m scripts.lab.record_prices --seconds 120 --first 1 --out prices.jsonl.gz

Appends one line per network to the file. `--first` is the number of the first network; the last message says where to continue.
A network that fails or hangs is skipped. Each network runs two warm-up steps, four timed steps, a traced step with a range around
every op, and a traced step without ranges. If both have the same kernels in the same order, the ranges of the first say which op
launched a kernel, and the durations are those of the second, which no range delays.

A line holds `family`, `seed` (the number), `host`, `mode`, `params`, `step_ns` of the timed steps, `kernel_ns` of a step,
`natural` (1 if the durations are those of the second traced step), `unowned_us` (of kernels without an op), and `rows`, one per
distinct call: op, text of its arguments, text of its outputs, number of calls, mean time of the kernels of a call (us), and of
the first call the number of kernels and the names of the first three. In `mode`, `p` is the precision ("fp32" has TF32 in
convolutions only, "bf16" and "fp16" are autocast, "bf16pure" has bfloat16 parameters), `cl` channels last, `opt` the optimizer.
"""

from __future__ import annotations

import argparse
import bisect
import gzip
import json
import math
import os
import shutil
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.meta.call_signatures import call_signature, op_name
from scripts.lab.price_networks import FAMILIES, family_of, make
from scripts.lab.price_networks.parts import Draw

PARSERS: Final = min(6, os.cpu_count() or 1)  # processes
NETWORK_SECONDS: Final = 20  # an alarm interrupts a network that takes longer
HANG_SECONDS: Final = 40  # without a heartbeat the process is killed: alarms do not interrupt a call into the driver
CACHE_BYTES: Final = 30 * 2**30  # reserved memory of earlier networks, above which it is released
KERNELS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES: Final = ("cuda_runtime", "cuda_driver")
Call = tuple[str, str, str]  # op, arguments, outputs


@dataclass(frozen=True, slots=True)
class Mode:
    """How a network runs; the names are those of a recording."""

    p: str
    cl: bool
    train: bool
    opt: str

    @classmethod
    def drawn(cls, draw: Draw) -> Mode:
        """A random mode."""
        precision = draw.pick("fp32", "fp32", "tf32", "bf16", "bf16", "fp16", "bf16pure")
        optimizer = draw.pick("sgd", "sgdm", "adam", "adamw", "adamw", "fused")
        return cls(precision, draw.chance(0.3), draw.chance(0.8), optimizer)

    def autocast(self, device: str) -> AbstractContextManager[Any]:
        """The context of forward."""
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(self.p)
        return torch.autocast(device, dtype) if dtype else nullcontext()

    def optimizer(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of `parameters`."""
        if self.opt.startswith("sgd"):
            momentum, decay = (0.9, 1e-4) if self.opt == "sgdm" else (0.0, 0.0)
            return torch.optim.SGD(parameters, 0.01, momentum=momentum, weight_decay=decay)
        kind = torch.optim.Adam if self.opt == "adam" else torch.optim.AdamW
        return kind(parameters, 1e-4, fused=self.opt == "fused" or None)


def build_step(family: str, draw: Draw, mode: Mode, device: str) -> tuple[torch.nn.Module, Callable[[], None]]:
    """A random network of `family` on `device`, and a function that runs one step of it."""
    with torch.device(device):
        model, inputs_on, loss = make(family, draw)
    return model, step_of(model, inputs_on(device), loss, mode, device)


def step_of(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    loss: Callable[[Any], torch.Tensor],
    mode: Mode,
    device: str,
) -> Callable[[], None]:
    """A function that runs one step of `model` in `mode`. Model and inputs are on `device`."""
    if mode.cl and inputs[0].dim() == 4:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = (inputs[0].to(memory_format=torch.channels_last), *inputs[1:])
    if mode.p == "bf16pure":
        model.bfloat16()
        inputs = tuple(each.bfloat16() if each.is_floating_point() else each for each in inputs)
    optimizer = mode.optimizer(list(model.train(mode.train).parameters()))

    def step() -> None:
        with torch.set_grad_enabled(mode.train), mode.autocast(device):
            output = model(*inputs)
            value = loss(output) if mode.train else None
        if value is not None:
            value.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


class CallRecorder(TorchDispatchMode):
    """Marks each op call with a range `op#index` in the trace, and lists the calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        index, kwargs = len(self.calls), kwargs or {}
        with record_function(f"op#{index}"):
            result = op(*args, **kwargs)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [each for each in outputs if isinstance(each, (torch.Tensor, list, tuple))]
        self.calls.append((op_name(op), call_signature(args, kwargs), call_signature(tensors, {})))
        return result


def record_network(families: list[str], device: str, folder: Path, number: int) -> None:
    """Run the network `number` and write its facts, calls and traces into the subfolder `number.job` of `folder`."""
    family = families[number % len(families)] if families else family_of(number)
    draw = Draw(f"{family}/{number}")
    mode = Mode.drawn(draw)
    torch.manual_seed(number)
    record_step(family, mode, lambda: build_step(family, draw, mode, device), device, folder, number)


def record_step(
    family: str,
    mode: Mode,
    build: Callable[[], tuple[torch.nn.Module, Callable[[], None]]],
    device: str,
    folder: Path,
    number: int,
    timed_steps: int = 4,
) -> None:
    """Run the step that `build` returns and write its facts, calls and traces into the subfolder `number.job` of `folder`."""
    torch.backends.cuda.matmul.allow_tf32 = mode.p == "tf32"
    cuda = torch.device(device).type == "cuda"
    model, step = build()
    for _ in range(2):
        step()
    times = step_times(step, timed_steps, cuda=cuda)
    part = folder / f"{number}.part"
    part.mkdir()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    recorder = CallRecorder()
    for name, kinds, context in (("ranges", activities, recorder), ("natural", activities[-1:], nullcontext())):
        with profile(activities=kinds) as profiler:
            with context:
                step()
            _synchronize(cuda)
        profiler.export_chrome_trace(str(part / f"{name}.json"))
    facts = {
        "family": family,
        "seed": number,
        "host": {
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version() if cuda else None,
            "device": torch.cuda.get_device_name() if cuda else device,
        },
        "mode": asdict(mode),
        "params": sum(each.numel() for each in model.parameters()),
        "step_ns": times,
    }
    (part / "job.json").write_text(json.dumps({"facts": facts, "calls": recorder.calls}))
    part.rename(folder / f"{number}.job")


def step_times(step: Callable[[], None], count: int, *, cuda: bool) -> list[int]:
    """The times of `count` steps in ns, on CUDA between events of one stream without a synchronization in between."""
    if not cuda:
        ends = [time.perf_counter_ns()]
        for _ in range(count):
            step()
            ends.append(time.perf_counter_ns())
        return [end - start for start, end in pairwise(ends)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [round(start.elapsed_time(end) * 1e6) for start, end in pairwise(marks)]


def _synchronize(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def record_networks(
    record_one: Callable[[int], None], first: int, last: float, end: float, device: str, folder: Path
) -> None:
    """Record networks from number `first` up to `last`, until the time `end`, at least one. Writes the number to `beat`."""
    signal.signal(signal.SIGALRM, _too_late)
    number = first
    while number == first or (number <= last and time.time() < end):
        (folder / "beat").write_text(str(number))
        signal.alarm(NETWORK_SECONDS)
        try:
            record_one(number)
        except (RuntimeError, ValueError, TimeoutError) as error:
            print(f"failed: network {number}: {str(error)[:160]}", flush=True)
        finally:
            signal.alarm(0)
        # Raises after an error that makes the device unusable, and the parent starts a new process.
        _synchronize(device == "cuda")
        if device == "cuda" and torch.cuda.memory_reserved() > CACHE_BYTES:
            torch.cuda.empty_cache()
        number += 1


def _too_late(*_: object) -> None:
    raise TimeoutError(f"took more than {NETWORK_SECONDS} s")


@dataclass(frozen=True, slots=True)
class Trace:
    """Of a trace file: kernels as (launch time or None, duration in us, name), and ranges as (start, end, index of the call)."""

    kernels: list[tuple[float | None, float, str]]
    ranges: list[tuple[float, float, int]]

    def owner(self, launch: float | None) -> int | None:
        """The index of the call whose range holds the time `launch`."""
        if launch is None:
            return None
        row = bisect.bisect(self.ranges, (launch, math.inf, 0)) - 1
        return self.ranges[row][2] if row >= 0 and launch <= self.ranges[row][1] else None


def read_trace(path: Path) -> Trace:
    """The kernels and ranges of a trace, in the order of time."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if "cat" in event and "dur" in event]
    events.sort(key=lambda event: event["ts"])
    launches = {each["args"].get("correlation"): each["ts"] for each in events if each["cat"] in LAUNCHES}
    work = [each for each in events if each["cat"] in KERNELS]
    kernels = [(launches.get(each["args"].get("correlation")), each["dur"], each["name"]) for each in work]
    marks = [each for each in events if each["cat"] == "user_annotation" and each["name"].startswith("op#")]
    return Trace(kernels, [(each["ts"], each["ts"] + each["dur"], int(each["name"][3:])) for each in marks])


def price_calls(calls: list[Call], ranges: Trace, natural: Trace) -> dict[str, Any]:
    """The time of kernels per distinct call. `natural` gives the durations if its kernels are those of `ranges`."""
    paired = [name for *_, name in ranges.kernels] == [name for *_, name in natural.kernels]
    durations = [duration for _, duration, _ in (natural if paired else ranges).kernels]
    of_call: dict[int | None, list[tuple[float, str]]] = defaultdict(list)
    for (launch, _, name), duration in zip(ranges.kernels, durations, strict=True):
        of_call[ranges.owner(launch)].append((duration, name))
    equal_calls: dict[Call, list[list[tuple[float, str]]]] = defaultdict(list)
    for index, call in enumerate(calls):
        equal_calls[call].append(of_call[index])
    return {
        "kernel_ns": round(sum(durations) * 1000),
        "natural": int(paired),
        "unowned_us": round(sum(duration for duration, _ in of_call[None]), 3),
        "rows": [_row(call, kernels) for call, kernels in equal_calls.items()],
    }


def _row(call: Call, kernels: list[list[tuple[float, str]]]) -> list[Any]:
    mean_us = sum(duration for of_call in kernels for duration, _ in of_call) / len(kernels)
    names = "|".join(name[:60] for _, name in kernels[0][:3])
    return [*call, len(kernels), round(mean_us, 3), len(kernels[0]), names]


def parse_job(job: Path) -> str:
    """The recording's line of a folder that `record_network` wrote, and remove the folder."""
    written = json.loads((job / "job.json").read_text())
    calls = [(op, arguments, outputs) for op, arguments, outputs in written["calls"]]
    prices = price_calls(calls, read_trace(job / "ranges.json"), read_trace(job / "natural.json"))
    shutil.rmtree(job)
    return json.dumps({**written["facts"], **prices})


class Parsers:
    """Processes that turn the finished jobs in `folder` into lines of the file `out`."""

    def __init__(self, pool: ProcessPoolExecutor, folder: Path, out: Path) -> None:
        self.pool, self.folder, self.out = pool, folder, out
        self.pending: set[Future[str]] = set()
        self.lines = 0

    def collect(self, seconds: float | None = None) -> None:
        """Submit new jobs, wait for the pending ones, at most `seconds`, and write the lines of those that are done."""
        for job in self.folder.glob("*.job"):
            self.pending.add(self.pool.submit(parse_job, job.rename(job.with_suffix(".taken"))))
        done, self.pending = wait(self.pending, seconds)
        for each in done:
            self._write(each)

    def _write(self, parsed: Future[str]) -> None:
        error = parsed.exception()
        if error is not None:
            print(f"failed: a trace was not parsed: {error!r:.160}", flush=True)
            return
        with self.out.open("ab") as file:  # each line is a gzip member: a file that ends early stays readable
            file.write(gzip.compress(f"{parsed.result()}\n".encode()))
        self.lines += 1


def record(
    start: Callable[[int], Any], parsers: Parsers, first: int, is_over: Callable[[], bool], hang_seconds: float
) -> int:
    """Start recorders until `is_over`, each after the network at which the last one died or hung.

    `start`: starts a process at the network of this number. Returns the number of the next network.
    """
    beat, number = parsers.folder / "beat", first
    while True:
        beat.write_text(str(number))
        recorder = start(number)
        while recorder.is_alive():
            parsers.collect(0.2)
            recorder.join(0.1)
            if time.time() - beat.stat().st_mtime > hang_seconds:
                recorder.kill()
                recorder.join()
        number = int(beat.read_text()) + 1
        if is_over():
            return number
        print(f"restart after network {number - 1}, exit code {recorder.exitcode}", flush=True)


def record_all(
    recorder: Callable[[Path], Callable[[int], None]],
    numbers: tuple[int, float],
    seconds: float,
    device: str,
    out: Path,
) -> tuple[int, int]:
    """Record networks of these `numbers` (first and last) for `seconds`; the number of lines written, and the next number.

    ``recorder(folder)`` returns a function that records the network of a number; it is sent to other processes.
    """
    out.touch()  # where no network is recorded, too
    context, end, (first, last) = get_context("spawn"), time.time() + seconds, numbers
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(PARSERS, context) as pool:
        parsers = Parsers(pool, Path(scratch), out)

        def start(number: int) -> Any:
            arguments = (recorder(parsers.folder), number, last, end, device, parsers.folder)
            process = context.Process(target=record_networks, args=arguments, daemon=True)
            process.start()
            return process

        def is_over() -> bool:
            return time.time() >= end or int((parsers.folder / "beat").read_text()) >= last

        following = record(start, parsers, first, is_over, HANG_SECONDS)
        parsers.collect()
    return parsers.lines, following


def main() -> None:
    """Record until the time is over."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--seconds", type=float, default=120.0, help="start no network after this time (default: 120)")
    line.add_argument("--first", type=int, default=1, metavar="N", help="the number of the first network (default: 1)")
    line.add_argument("--out", type=Path, default=Path("prices.jsonl.gz"), metavar="FILE")
    line.add_argument("--device", default="cuda", choices=("cpu", "cuda"), help="cpu: a test without kernels")
    line.add_argument("--family", action="append", choices=FAMILIES, default=[], help="only this family (repeatable)")
    options = line.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        line.error("no CUDA device; use --device cpu for a test")
    lines, following = record_all(
        lambda folder: partial(record_network, options.family, options.device, folder),
        (options.first, math.inf), options.seconds, options.device, options.out,
    )  # fmt: skip
    print(f"{lines} networks in {options.out}; continue with --first {following}")


if __name__ == "__main__":
    main()
