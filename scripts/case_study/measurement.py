"""Measure the figures that the claims need: analyses by profiler_kit, and the loops of loops.py in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import profiler_kit
from profiler_kit.errors import KitError
from profiler_kit.records.configs import Environment
from profiler_kit.records.serde import from_json
from profiler_kit.records.target import TargetSpec
from scripts.case_study.figures import (
    CountFigures,
    Figures,
    NaiveLoop,
    RunFigures,
    ShapeLoop,
    code_digest,
    count_figures,
    run_figures,
)

OnProgress = Callable[[str], None]

ROOT: Final = Path(__file__).resolve().parents[2]
# "mnist" reuses one batch on the device; "mnist+data" reads batches from its DataLoader.
FILES: Final = {
    "v0": "convnet_v0",
    "v1": "convnet_v1",
    "conv": "single_conv",
    "mnist": "mnist_cnn",
    "mnist+data": "mnist_cnn",
}
# The networks of most articles on cudnn.benchmark, as (file, function or class, batch), with 3x224x224 images.
ARTICLE_MODELS: Final = {
    "ResNet-50, batch 32": ("resnet", "resnet50", 32),
    "ResNet-50, batch 128": ("resnet", "resnet50", 128),
    "VGG-16, batch 32": ("vgg", "VGG16", 32),
    "VGG-16, batch 128": ("vgg", "VGG16", 128),
}
FLAG_MODELS: Final = ("v0", "v1", "conv", "mnist")  # the models that the claims about cuDNN flags use
CONV_BATCH_FACTOR: Final = 8  # the single convolution uses 8 times the batch of the networks (64 images instead of 8)

TF32_CONFIGS: Final = ("default", "benchmark", "no-tf32", "benchmark+no-tf32")
FLAG_CONFIGS: Final = ("default", "benchmark", "deterministic", "benchmark+deterministic")

# claim letter -> model -> configurations to measure
NEEDED_CONFIGS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "a": {"v0": ("default", "no-tf32"), "v1": ("default", "no-tf32")},
    "b": {},
    "c": {"v0": TF32_CONFIGS, "v1": TF32_CONFIGS},
    "d": {
        "v0": TF32_CONFIGS,
        "v1": TF32_CONFIGS,
        "conv": ("default", "benchmark"),
        "mnist": ("default", "benchmark"),
        "mnist+data": ("default", "benchmark"),
        **dict.fromkeys(ARTICLE_MODELS, ("default", "benchmark", "amp_bf16", "benchmark+amp_bf16")),
    },
    "e": {},
    "f": dict.fromkeys(FLAG_MODELS, ("default", "benchmark", "benchmark+deterministic")),
    "g": dict.fromkeys(FLAG_MODELS, FLAG_CONFIGS),
    "h": dict.fromkeys(FLAG_MODELS, ("default", "cudnn-off")),
    "i": {},
}
CPU_CLAIMS: Final = ("a",)  # the claims that a CPU can judge; the cuDNN flags have no effect there
REPEATED_CONFIGS: Final = ("benchmark",)  # claim f repeats these in fresh processes; every analysis repeats the default
REPEAT_BUDGET_S: Final = 2.0  # short, since claim f compares results and not times

COUNTED_SIZES: Final = (*range(16, 65, 4), 96, 128, 192, 256, 384, 512, 1024)
SHAPE_COUNT: Final = 12
SHAPE_BATCH: Final = 2
LOOPS: Final[tuple[tuple[str, Literal["forward", "train"]], ...]] = (
    ("single_conv", "forward"),
    ("convnet_v0", "train"),
)
LOOP_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which claims to measure, and how. `budget_s` is the time for one analysis: one model with all its configurations."""

    claims: tuple[str, ...]
    device: str = "cpu"
    size: int = 256
    batch: int = 8
    budget_s: float = 20.0
    processes: int = 3
    naive_steps: int = 20


@dataclass(slots=True)
class _Collector:
    counts: list[CountFigures] = field(default_factory=list)
    runs: list[RunFigures] = field(default_factory=list)
    shapes: list[ShapeLoop] = field(default_factory=list)
    naive: list[NaiveLoop] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    environment: Environment | None = None


def measure(options: Options, on_progress: OnProgress) -> Figures:
    """Measure all figures that the claims of `options` need. Failures are listed in `Figures.problems`."""
    collector = _Collector()
    try:
        _measure_claims(options, collector, on_progress)
    except KeyboardInterrupt:
        collector.problems.append("interrupted: figures measured before the interruption are complete")
    return Figures(
        code=code_digest(),
        cuda=options.device == "cuda",
        size=options.size,
        batch=options.batch,
        budget_s=options.budget_s,
        claims=options.claims,
        environment=collector.environment,
        counts=tuple(collector.counts),
        runs=tuple(collector.runs),
        shapes=tuple(collector.shapes),
        naive=tuple(collector.naive),
        problems=tuple(collector.problems),
    )


def _measure_claims(options: Options, collector: _Collector, on_progress: OnProgress) -> None:
    cuda = options.device == "cuda"
    if {"b", "c"} & set(options.claims):
        _count(options, collector, on_progress)
    needed = configurations([letter for letter in options.claims if cuda or letter in CPU_CLAIMS])
    for model, configs in needed.items():
        _analyze(options, collector, model, configs, 1, on_progress)
    if "f" in options.claims and cuda:
        short_options = replace(options, budget_s=REPEAT_BUDGET_S)
        for process in range(2, options.processes + 1):
            for model in FLAG_MODELS:
                _analyze(short_options, collector, model, REPEATED_CONFIGS, process, on_progress)
    if "e" in options.claims and cuda:
        _measure_shapes(options, collector, on_progress)
    if "i" in options.claims:
        _measure_naive(options, collector, on_progress)


def configurations(claims: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Map each model to the configurations that `claims` need, without duplicates and in the order of first use."""
    needed: dict[str, tuple[str, ...]] = {}
    for model in (*FILES, *ARTICLE_MODELS):
        configs = [config for letter in claims for config in NEEDED_CONFIGS[letter].get(model, ())]
        if configs:
            needed[model] = tuple(dict.fromkeys(configs))
    return needed


def shape_sizes(size: int) -> tuple[int, ...]:
    """Return twelve image sizes from half of `size` upwards. The networks require multiples of 4."""
    step = max(4, size // 64 * 4)
    return tuple(max(16, size // 8 * 4) + i * step for i in range(SHAPE_COUNT))


def _spec(options: Options, model: str, size: int, batch: int) -> TargetSpec:
    if model in ARTICLE_MODELS:
        name, function, images = ARTICLE_MODELS[model]
        return TargetSpec(
            spec=f"{ROOT / 'models' / name}.py:{function}", inputs=(f"{images},3,224,224",), loss="cross_entropy"
        )
    file = str(ROOT / "models" / f"{FILES[model]}.py")
    if model == "mnist+data":
        return TargetSpec(spec=file)
    if model == "mnist":  # the file's loss needs labels from its DataLoader
        return TargetSpec(spec=file, inputs=("100,1,28,28",), loss="cross_entropy")
    return TargetSpec(spec=file, inputs=(f"{batch},3,{size},{size}",))


def _count(options: Options, collector: _Collector, on_progress: OnProgress) -> None:
    sizes = sorted({*COUNTED_SIZES, options.size} if "b" in options.claims else {options.size})
    for model in ("v0", "v1"):
        for size in sizes:
            on_progress(f"counting {model} at {size}x{size}")
            batch = options.batch if size == options.size else 1
            report = profiler_kit.count(_spec(options, model, size, batch))
            if report.static is not None:
                collector.counts.append(count_figures(model, size, batch, report.static))


def _analyze(
    options: Options, collector: _Collector, model: str, configs: tuple[str, ...], process: int, on_progress: OnProgress
) -> None:
    batch = options.batch * CONV_BATCH_FACTOR if model == "conv" else options.batch
    on_progress(f"{model}: {', '.join(configs)}" + (f" (process {process})" if process > 1 else ""))
    try:
        report = profiler_kit.analyze(
            _spec(options, model, options.size, batch),
            device=options.device,
            configs=configs,
            budget_s=options.budget_s,
            on_progress=lambda line: on_progress(f"{model}: {line}"),
        )
    except KitError as error:
        collector.problems.append(f"{model}: {error.message}")
        on_progress(f"{model}: {error}")
        return
    runs = run_figures(model, report, process)
    collector.runs += runs
    collector.problems += [f"{model}, {run.config}: {run.failure}" for run in runs if run.failure is not None]
    environments = (run.environment for run in report.runs if run.environment is not None)
    collector.environment = collector.environment or next(environments, None)
    if any(run.failure is not None and run.failure.kind == "interrupted" for run in report.runs):
        raise KeyboardInterrupt  # analyze stopped at Ctrl-C and returned a partial report


def _measure_shapes(options: Options, collector: _Collector, on_progress: OnProgress) -> None:
    sizes = shape_sizes(options.size)
    for benchmark in (False, True):
        on_progress(f"varying shapes, benchmark {'on' if benchmark else 'off'}")
        readings = _run_loop(
            options, collector, "shapes", "convnet_v1", benchmark,
            "--batch", str(SHAPE_BATCH), "--sizes", ",".join(map(str, sizes)),
        )  # fmt: skip
        if readings is not None:
            cycles_ns, tail_ns = tuple(readings["cycles_ns"]), readings["tail_ns"]
            collector.shapes.append(
                ShapeLoop(benchmark=benchmark, batch=SHAPE_BATCH, sizes=sizes, cycles_ns=cycles_ns, tail_ns=tail_ns)
            )


def _measure_naive(options: Options, collector: _Collector, on_progress: OnProgress) -> None:
    for name, mode in LOOPS:
        batch = options.batch * CONV_BATCH_FACTOR if name == "single_conv" else options.batch
        for benchmark in (False, True) if options.device == "cuda" else (False,):
            on_progress(f"naive loop over {name} ({mode}), benchmark {'on' if benchmark else 'off'}")
            readings = _run_loop(
                options, collector, "naive", name, benchmark,
                "--mode", mode, "--batch", str(batch), "--size", str(options.size), "--steps", str(options.naive_steps),
            )  # fmt: skip
            if readings is not None:
                settings = {"model": name, "mode": mode, "benchmark": benchmark, "steps": options.naive_steps}
                collector.naive.append(from_json(NaiveLoop, settings | readings, f"the naive loop over {name}"))


def _run_loop(
    options: Options, collector: _Collector, loop: str, model: str, benchmark: bool, *arguments: str
) -> dict[str, Any] | None:
    """Run one loop of loops.py in a fresh process and return its readings; None, and a problem, if it failed."""
    flag = "on" if benchmark else "off"
    command = [sys.executable, str(Path(__file__).with_name("loops.py")), loop, "--model", model]
    command += ["--benchmark", flag, "--device", options.device, *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=LOOP_TIMEOUT_S, check=True)
        printed: dict[str, Any] = json.loads(process.stdout)
    except subprocess.TimeoutExpired:
        collector.problems.append(f"{loop} loop over {model}, benchmark {flag}: did not end within {LOOP_TIMEOUT_S} s")
        return None
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no error message"])[-1]
        collector.problems.append(f"{loop} loop over {model}, benchmark {flag}: {last_line}")
        return None
    collector.environment = collector.environment or from_json(
        Environment, printed["environment"], "the loop's environment"
    )
    readings: dict[str, Any] = printed["readings"]
    return readings
