"""Plain training loops, timed as articles and forum posts time them. `measurement` runs each in a fresh process.

They import torch and the model files only, so that they cannot repeat an error of profiler_kit::

    python -m scripts.case_study.loops shapes --benchmark on ...
    python -m scripts.case_study.loops naive --model convnet_v0 --benchmark off ...

Each prints one JSON object with ``environment`` and ``readings``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MODELS = Path(__file__).resolve().parents[2] / "models"
PHASE_LOOP_STEPS = 60  # enough to fill the launch queue
PHASE_EDGE_STEPS = 5


class Loop:
    """A model, its optimizer and one batch, with a step that never synchronizes."""

    def __init__(self, name: str, mode: str, batch: int, size: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.file = load_model_file(name)
        self.model = make_model(self.file).to(device)
        self.optimizer = self.file.configure_optimizer(self.model)
        self.device = device
        self.mode = mode
        self.x, self.labels = self.batch(batch, size)

    def batch(self, batch: int, size: int) -> tuple[Tensor, Tensor]:
        """Return random images, and labels for the output: one class per output pixel."""
        x = torch.randn(batch, 3, size, size, device=self.device)
        return x, torch.randint(0, 2, (batch, size // 4, size // 4), device=self.device)

    def step(self, mark: Callable[[str], None] = lambda _: None) -> None:
        """Run one step on the current batch; call `mark` at the start of each phase and at the end."""
        mark("forward")
        output = self.model(self.x)
        if self.mode == "train":
            mark("loss")
            loss_fn = getattr(self.file, "loss_fn", None)
            loss = loss_fn(output, self.x) if loss_fn is not None else F.cross_entropy(output, self.labels)
            mark("backward")
            loss.backward()
            mark("optimizer")
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        mark("end")

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def per_step_ns(self, steps: int, *, synchronized: bool) -> int:
        """Return the mean host time per step; `synchronized` waits for the device before the first and after the last step."""
        if synchronized:
            self.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(steps):
            self.step()
        if synchronized:
            self.synchronize()
        duration_ns = time.perf_counter_ns() - begin
        self.synchronize()
        return duration_ns // steps


def load_model_file(name: str) -> ModuleType:
    """Import ``models/<name>.py``."""
    spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_model(module: ModuleType) -> nn.Module:
    """Return the file's `model`, else an instance of the only nn.Module class that it defines."""
    if hasattr(module, "model"):
        model: nn.Module = module.model
        return model
    classes = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, nn.Module)]
    (model_class,) = [c for c in classes if c.__module__ == module.__name__]
    return model_class()


def time_naive_loop(loop: Loop, steps: int) -> dict[str, Any]:
    """Time one loop in several ways, in the order of a script without warm-up. Units: ns per step."""
    benchmark = torch.backends.cudnn.benchmark
    cold_ns = loop.per_step_ns(steps, synchronized=False)
    warm_ns = loop.per_step_ns(steps, synchronized=False)
    true_ns = loop.per_step_ns(steps, synchronized=True)
    early, late = time_phases(loop) if loop.mode == "train" else ([], [])
    torch.backends.cudnn.benchmark = not benchmark
    flipped_ns = loop.per_step_ns(steps, synchronized=True)
    return {
        "cold_ns": cold_ns,
        "warm_ns": warm_ns,
        "true_ns": true_ns,
        "flipped_ns": flipped_ns,
        "early": early,
        "late": late,
    }


def time_phases(loop: Loop) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mean host time around each phase in the first and in the last steps of a loop without synchronization."""
    steps: list[list[tuple[str, int]]] = []
    count = PHASE_LOOP_STEPS if loop.device.type == "cuda" else 2 * PHASE_EDGE_STEPS
    loop.synchronize()
    for _ in range(count):
        steps.append([])
        loop.step(lambda phase: steps[-1].append((phase, time.perf_counter_ns())))
    loop.synchronize()
    return _mean_phases(steps[:PHASE_EDGE_STEPS]), _mean_phases(steps[-PHASE_EDGE_STEPS:])


def _mean_phases(steps: list[list[tuple[str, int]]]) -> list[dict[str, Any]]:
    phases = [name for name, _ in steps[0][:-1]]
    return [
        {"phase": phase, "stopwatch_ns": sum(marks[i + 1][1] - marks[i][1] for marks in steps) // len(steps)}
        for i, phase in enumerate(phases)
    ]


def time_varying_shapes(loop: Loop, sizes: list[int], cycles: int, batch: int) -> dict[str, Any]:
    """Time `cycles` rounds over all sizes with synchronization, then one smaller batch of the first size. Units: ns."""
    batches = [loop.batch(batch, size) for size in sizes]
    # Warm up on a shape that is not timed: it loads libraries, starts the autograd thread and creates optimizer state.
    loop.x, loop.labels = loop.batch(batch, 20)
    loop.step()
    cycles_ns = []
    for _ in range(cycles):
        loop.synchronize()
        begin = time.perf_counter_ns()
        for loop.x, loop.labels in batches:
            loop.step()
        loop.synchronize()
        cycles_ns.append(time.perf_counter_ns() - begin)
    loop.x, loop.labels = loop.batch(max(1, batch // 2), sizes[0])
    tail_ns = loop.per_step_ns(1, synchronized=True)
    return {"cycles_ns": cycles_ns, "tail_ns": tail_ns}


def environment(device: torch.device) -> dict[str, str | None]:
    """Return device and versions, with the fields of the `Environment` record."""
    cuda = device.type == "cuda"
    cudnn = torch.backends.cudnn.version() if cuda else None
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": None if cudnn is None else str(cudnn),
    }


def main(argv: list[str]) -> int:
    """Run one loop and print its readings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", choices=("naive", "shapes"))
    parser.add_argument("--model", default="convnet_v1", choices=("convnet_v0", "convnet_v1", "single_conv"))
    parser.add_argument("--mode", default="train", choices=("forward", "train"))
    parser.add_argument("--benchmark", required=True, choices=("on", "off"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sizes", type=lambda text: [int(s) for s in text.split(",")], default=[128])
    parser.add_argument("--cycles", type=int, default=3)
    args = parser.parse_args(argv)
    torch.backends.cudnn.benchmark = args.benchmark == "on"
    loop = Loop(args.model, args.mode, args.batch, args.size, torch.device(args.device))
    readings = (
        time_naive_loop(loop, args.steps)
        if args.loop == "naive"
        else time_varying_shapes(loop, args.sizes, args.cycles, args.batch)
    )
    print(json.dumps({"environment": environment(loop.device), "readings": readings}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
