"""Memory of training steps of `bench.networks.models` on a CUDA device: live bytes and peaks by phase.

A case is a model, batch, precision, and optimizer or inference. Each step records, after each phase, the requested, allocated
and reserved bytes and their peaks in the phase. In the remaining time, it records the temporary memory of single ops.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import time
from dataclasses import dataclass
from typing import Any, Final

import torch

from scripts.bench.networks.models import MODELS, OPTIMIZERS
from scripts.bench.networks.steps import Autocast, Mark, infer_step, train_step
from scripts.lab.probe_device import FAILURES, Meter, OpMeter, write_json
from scripts.lab.probe_runs import temporary_bytes

STEPS: Final = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """Batch, optimizer and precision of a run."""

    batch: int
    work: str  # an optimizer's name, or infer
    precision: str  # fp32, or bf16 for autocast

    def name(self, model: str) -> str:
        """The case's name."""
        return f"{model}|b{self.batch}|{self.work}|{self.precision}"


# The most informative first: the time may end before the last one.
SETTINGS: Final = (
    Setting(4, "sgd", "fp32"),
    Setting(32, "adamw", "bf16"),
    Setting(32, "sgd", "fp32"),
    Setting(4, "adamw", "bf16"),
    Setting(32, "infer", "fp32"),
    Setting(32, "adamw", "fp32"),
    Setting(32, "infer", "bf16"),
    Setting(4, "adamw", "fp32"),
    Setting(32, "sgd", "bf16"),
    Setting(4, "infer", "fp32"),
)
PROBED: Final = (SETTINGS[0], SETTINGS[1])


class Marks:
    """The allocator's figures after each phase, step by step."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.steps: list[dict[str, list[int]]] = []

    def __call__(self, name: str) -> None:
        """Read [requested, its peak, allocated, its peak, reserved, its peak], then reset the peaks."""
        self.meter.wait()
        figures = [*self.meter.now(), *self._reserved()]
        if name == "start":
            self.steps.append({})
        self.steps[-1][name] = figures
        self.meter.reset()

    def _reserved(self) -> tuple[int, int]:
        if not self.meter.real:
            return 0, 0
        reserved = torch.cuda.memory_stats_as_nested_dict()["reserved_bytes"]["all"]
        return reserved["current"], reserved["peak"]


def prepare(name: str, setting: Setting, device: str) -> tuple[Any, ...]:
    """Model, optimizer (None for inference), inputs, target and autocast."""
    recipe = MODELS[name]
    torch.manual_seed(0)
    with torch.device(device):
        model = recipe.build()
    model.train(setting.work != "infer")
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[setting.work](parameters) if setting.work in OPTIMIZERS else None
    inputs, target = recipe.batch(setting.batch, device)
    autocast: Autocast = contextlib.nullcontext
    if setting.precision == "bf16":

        def autocast() -> contextlib.AbstractContextManager[Any]:
            return torch.autocast("cuda" if device == "cuda" else "cpu", torch.bfloat16)

    return model, optimizer, inputs, target, autocast


def run_step(name: str, setting: Setting, parts: tuple[Any, ...], mark: Mark) -> None:
    """One step of the case."""
    model, optimizer, inputs, target, autocast = parts
    if optimizer is None:
        infer_step(model, inputs, autocast, mark)
    else:
        train_step(model, optimizer, inputs, target, MODELS[name].loss, autocast, mark)


def measure_steps(name: str, setting: Setting, meter: Meter) -> dict[str, Any]:
    """The figures of three steps, starting without cached blocks and cuBLAS workspaces."""
    gc.collect()
    meter.clean(blas=True)
    base = meter.now()
    started = time.perf_counter()
    parts = prepare(name, setting, meter.device.type)
    meter.wait()
    built = meter.now()
    marks = Marks(meter)
    for _ in range(STEPS):
        run_step(name, setting, parts, marks)
    figures: dict[str, Any] = {"base": [base[0], base[2]], "built": [built[0], built[2]], "steps": marks.steps}
    if meter.real:
        figures["retries"] = torch.cuda.memory_stats()["num_alloc_retries"]
    figures["s"] = round(time.perf_counter() - started, 3)
    return figures


def probe_ops(name: str, setting: Setting, meter: Meter) -> list[list[Any]]:
    """The ops of the third step with the most temporary memory."""
    gc.collect()
    meter.clean(blas=True)
    parts = prepare(name, setting, meter.device.type)
    for _ in range(STEPS - 1):
        run_step(name, setting, parts, lambda _: None)
    with OpMeter(meter) as ops:

        def mark(phase: str) -> None:
            ops.phase = {"start": "fwd", "forward": "bwd", "backward": "opt"}.get(phase, "end")

        run_step(name, setting, parts, mark)
    rows: dict[str, list[Any]] = {}
    for op in ops.ops:
        if temporary_bytes(op[3]) >= 65536:
            rows.setdefault(str(op[:3]), op)
    return sorted(rows.values(), key=lambda op: -temporary_bytes(op[3]))[:25]


def run(options: argparse.Namespace) -> None:
    """Measure all cases in the available time, setting by setting, then probe ops."""
    meter = Meter(options.device)
    start = time.monotonic()
    names = [n for n in MODELS if not options.only or n in options.only.split(",")]
    answer: dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "device": torch.cuda.get_device_name() if meter.real else options.device,
        "capability": list(torch.cuda.get_device_capability()) if meter.real else None,
        "fields": "requested, its peak, allocated, its peak, reserved, its peak",
        "cases": {},
        "probes": {},
        "errors": {},
    }
    saved = start

    def seconds_left() -> float:
        return float(options.seconds - (time.monotonic() - start))

    def record(kind: str, name: str, setting: Setting, min_left_s: float) -> None:
        nonlocal saved
        if seconds_left() < min_left_s:
            return
        case = setting.name(name)
        try:
            answer[kind][case] = (measure_steps if kind == "cases" else probe_ops)(name, setting, meter)
        except FAILURES as error:
            answer["errors"][f"{kind} {case}"] = f"{type(error).__name__}: {str(error)[:300]}"
        if time.monotonic() - saved > 20:
            write_json(options.out, answer)
            saved = time.monotonic()

    work = [("cases", n, s) for s in SETTINGS[:5] for n in names] + [("probes", n, s) for s in PROBED for n in names]
    work += [("cases", n, s) for s in SETTINGS[5:] for n in names]
    for at, (kind, name, setting) in enumerate(work[: options.most]):
        record(kind, name, setting, 3.0)
        if at % 100 == 0:
            print(f"{at} of {len(work)}, {options.seconds - seconds_left():.0f} s", flush=True)
    answer["wall_s"] = options.seconds - seconds_left()
    write_json(options.out, answer)
    done = ", ".join(f"{len(answer[kind])} {kind}" for kind in ("cases", "probes", "errors"))
    print(f"{done}, {answer['wall_s']:.0f} s, {options.out.stat().st_size / 1e6:.2f} MB")
    for case, error in list(answer["errors"].items())[:12]:
        print("  ", case, error[:200])
