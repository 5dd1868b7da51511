"""Measures the steps of `bench.networks.models` on a CUDA device: what is live behind each phase, and the peaks.

Per case (model, batch, precision, optimizer or inference) and per step: behind each mark requested, allocated and
reserved bytes and their peaks since the mark before. Then, while time is left, what each op took beside its outputs.
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
from scripts.lab.probe_runs import hidden

STEPS: Final = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model is run."""

    batch: int
    work: str  # an optimizer's name, or infer
    precision: str  # fp32, or bf16 for autocast

    def name(self, model: str) -> str:
        """The case's name."""
        return f"{model}|b{self.batch}|{self.work}|{self.precision}"


# The most telling first: time may end before the last.
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
    """The allocator's figures behind each mark, step by step."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.steps: list[dict[str, list[int]]] = []

    def __call__(self, name: str) -> None:
        """Read [requested, its peak, allocated, its peak, reserved, its peak], then start the peaks afresh."""
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


def prepared(name: str, setting: Setting, device: str) -> tuple[Any, ...]:
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


def stepped(name: str, setting: Setting, parts: tuple[Any, ...], mark: Mark) -> None:
    """One step of the case."""
    model, optimizer, inputs, target, autocast = parts
    if optimizer is None:
        infer_step(model, inputs, autocast, mark)
    else:
        train_step(model, optimizer, inputs, target, MODELS[name].loss, autocast, mark)


def measured(name: str, setting: Setting, meter: Meter) -> dict[str, Any]:
    """Three steps' figures, on an allocator without cached blocks and cuBLAS workspaces."""
    gc.collect()
    meter.clean(blas=True)
    base = meter.now()
    started = time.perf_counter()
    parts = prepared(name, setting, meter.device.type)
    meter.wait()
    built = meter.now()
    marks = Marks(meter)
    for _ in range(STEPS):
        stepped(name, setting, parts, marks)
    told: dict[str, Any] = {"base": [base[0], base[2]], "built": [built[0], built[2]], "steps": marks.steps}
    if meter.real:
        told["retries"] = torch.cuda.memory_stats()["num_alloc_retries"]
    told["s"] = round(time.perf_counter() - started, 3)
    return told


def probed(name: str, setting: Setting, meter: Meter) -> list[list[Any]]:
    """The ops of the third step that took most beside their outputs."""
    gc.collect()
    meter.clean(blas=True)
    parts = prepared(name, setting, meter.device.type)
    for _ in range(STEPS - 1):
        stepped(name, setting, parts, lambda _: None)
    with OpMeter(meter) as ops:

        def mark(phase: str) -> None:
            ops.phase = {"start": "fwd", "forward": "bwd", "backward": "opt"}.get(phase, "end")

        stepped(name, setting, parts, mark)
    rows: dict[str, list[Any]] = {}
    for op in ops.ops:
        if hidden(op[3]) >= 65536:
            rows.setdefault(str(op[:3]), op)
    return sorted(rows.values(), key=lambda op: -hidden(op[3]))[:25]


def run(options: argparse.Namespace) -> None:
    """Measure all cases within the time, setting by setting, then probe."""
    meter = Meter(options.device)
    began = time.monotonic()
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
    saved = began

    def left() -> float:
        return float(options.seconds - (time.monotonic() - began))

    def keep(kind: str, name: str, setting: Setting, keep_s: float) -> None:
        nonlocal saved
        if left() < keep_s:
            return
        case = setting.name(name)
        try:
            answer[kind][case] = (measured if kind == "cases" else probed)(name, setting, meter)
        except FAILURES as error:
            answer["errors"][f"{kind} {case}"] = f"{type(error).__name__}: {str(error)[:300]}"
        if time.monotonic() - saved > 20:
            write_json(options.out, answer)
            saved = time.monotonic()

    work = [("cases", n, s) for s in SETTINGS[:5] for n in names] + [("probes", n, s) for s in PROBED for n in names]
    work += [("cases", n, s) for s in SETTINGS[5:] for n in names]
    for at, (kind, name, setting) in enumerate(work[: options.most]):
        keep(kind, name, setting, 3.0)
        if at % 100 == 0:
            print(f"{at} of {len(work)}, {options.seconds - left():.0f} s", flush=True)
    answer["wall_s"] = options.seconds - left()
    write_json(options.out, answer)
    done = ", ".join(f"{len(answer[kind])} {kind}" for kind in ("cases", "probes", "errors"))
    print(f"{done}, {answer['wall_s']:.0f} s, {options.out.stat().st_size / 1e6:.2f} MB")
    for case, error in list(answer["errors"].items())[:12]:
        print("  ", case, error[:200])
