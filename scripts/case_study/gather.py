"""Measures what the claims need: analyses by the tool, and the case study's own loops in fresh processes."""

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
    count_figures,
    run_figures,
)

Say = Callable[[str], None]

ROOT: Final = Path(__file__).resolve().parents[2]
# "mnist" is the network on one batch that stays on the device, "mnist+data" the same fed by its own loader.
FILES: Final = {
    "v0": "convnet_v0",
    "v1": "convnet_v1",
    "conv": "single_conv",
    "mnist": "mnist_cnn",
    "mnist+data": "mnist_cnn",
}
FLAGGED: Final = ("v0", "v1", "conv", "mnist")  # the models on which the flags themselves are judged
CONV_BATCH: Final = 8  # the single convolution's batch is this many times the networks' (64 images beside 8)

TF32_PAIRS: Final = ("default", "benchmark", "no-tf32", "benchmark+no-tf32")
FLAG_PAIRS: Final = ("default", "benchmark", "deterministic", "benchmark+deterministic")

# letter -> model -> the configurations that the claim needs
NEEDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "a": {"v0": ("default", "no-tf32"), "v1": ("default", "no-tf32")},
    "b": {},
    "c": {"v0": TF32_PAIRS, "v1": TF32_PAIRS},
    "d": {
        "v0": TF32_PAIRS,
        "v1": TF32_PAIRS,
        "conv": ("default", "benchmark"),
        "mnist": ("default", "benchmark"),
        "mnist+data": ("default", "benchmark"),
    },
    "e": {},
    "f": dict.fromkeys(FLAGGED, ("default", "benchmark", "benchmark+deterministic")),
    "g": dict.fromkeys(FLAGGED, FLAG_PAIRS),
    "h": dict.fromkeys(FLAGGED, ("default", "cudnn-off")),
    "i": {},
}
ANYWHERE: Final = ("a",)  # the claims whose runs say something on a CPU, where the cuDNN flags change nothing
REPEATED: Final = ("benchmark",)  # claim f runs this in further processes; the default runs twice in every analysis
REPEAT_BUDGET_S: Final = 2.0  # of those only the bits are wanted

COUNTED_SIZES: Final = (*range(16, 65, 4), 96, 128, 192, 256, 384, 512, 1024)
SHAPES: Final = 12
SHAPE_BATCH: Final = 2
LOOPS: Final[tuple[tuple[str, Literal["forward", "train"]], ...]] = (
    ("single_conv", "forward"),
    ("convnet_v0", "train"),
)
LOOP_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure, how large, how long. `budget_s` is the measuring time of each analysis (one model, all configurations)."""

    claims: tuple[str, ...]
    device: str = "cpu"
    size: int = 256
    batch: int = 8
    budget_s: float = 20.0
    processes: int = 3
    naive_steps: int = 20


@dataclass(slots=True)
class _Gathered:
    counts: list[CountFigures] = field(default_factory=list)
    runs: list[RunFigures] = field(default_factory=list)
    shapes: list[ShapeLoop] = field(default_factory=list)
    naive: list[NaiveLoop] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    environment: Environment | None = None


def gather(options: Options, say: Say) -> Figures:
    """All figures that the claims of `options` need. What could not be measured is a problem in them, not an end."""
    found = _Gathered()
    try:
        _measure(options, found, say)
    except KeyboardInterrupt:
        found.problems.append("interrupted: what was measured before stands")
    return Figures(
        cuda=options.device == "cuda",
        size=options.size,
        batch=options.batch,
        budget_s=options.budget_s,
        claims=options.claims,
        environment=found.environment,
        counts=tuple(found.counts),
        runs=tuple(found.runs),
        shapes=tuple(found.shapes),
        naive=tuple(found.naive),
        problems=tuple(found.problems),
    )


def _measure(options: Options, found: _Gathered, say: Say) -> None:
    cuda = options.device == "cuda"
    if {"b", "c"} & set(options.claims):
        _count(options, found, say)
    needed = configurations([letter for letter in options.claims if cuda or letter in ANYWHERE])
    for model, configs in needed.items():
        _analyze(options, found, model, configs, 1, say)
    if "f" in options.claims and cuda:
        brief = replace(options, budget_s=REPEAT_BUDGET_S)
        for process in range(2, options.processes + 1):
            for model in FLAGGED:
                _analyze(brief, found, model, REPEATED, process, say)
    if "e" in options.claims and cuda:
        _shapes(options, found, say)
    if "i" in options.claims:
        _naive(options, found, say)


def configurations(claims: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Model -> the configurations that `claims` need together, in the order of the models and of their first mention."""
    needed: dict[str, tuple[str, ...]] = {}
    for model in FILES:
        wanted = [config for letter in claims for config in NEEDS[letter].get(model, ())]
        if wanted:
            needed[model] = tuple(dict.fromkeys(wanted))
    return needed


def shape_sizes(size: int) -> tuple[int, ...]:
    """A dozen sizes around `size`, from its half upwards, each a multiple of 4 as the networks need."""
    step = max(4, size // 64 * 4)
    return tuple(max(16, size // 8 * 4) + i * step for i in range(SHAPES))


def _spec(options: Options, model: str, size: int, batch: int) -> TargetSpec:
    file = str(ROOT / "models" / f"{FILES[model]}.py")
    if model == "mnist+data":
        return TargetSpec(spec=file)
    if model == "mnist":  # without the loader's labels the file's own loss has nothing to compare with
        return TargetSpec(spec=file, inputs=("100,1,28,28",), loss="cross_entropy")
    return TargetSpec(spec=file, inputs=(f"{batch},3,{size},{size}",))


def _count(options: Options, found: _Gathered, say: Say) -> None:
    sizes = sorted({*COUNTED_SIZES, options.size} if "b" in options.claims else {options.size})
    for model in ("v0", "v1"):
        for size in sizes:
            say(f"counting {model} at {size}x{size}")
            batch = options.batch if size == options.size else 1
            report = profiler_kit.count(_spec(options, model, size, batch))
            if report.static is not None:
                found.counts.append(count_figures(model, size, batch, report.static))


def _analyze(options: Options, found: _Gathered, model: str, configs: tuple[str, ...], process: int, say: Say) -> None:
    batch = options.batch * CONV_BATCH if model == "conv" else options.batch
    say(f"{model}: {', '.join(configs)}" + (f" (process {process})" if process > 1 else ""))
    try:
        report = profiler_kit.analyze(
            _spec(options, model, options.size, batch),
            device=options.device,
            configs=configs,
            budget_s=options.budget_s,
            say=lambda line: say(f"{model}: {line}"),
        )
    except KitError as error:
        found.problems.append(f"{model}: {error.message}")
        say(f"{model}: {error}")
        return
    runs = run_figures(model, report, process)
    found.runs += runs
    found.problems += [f"{model}, {run.config}: {run.failure}" for run in runs if run.failure is not None]
    described = (run.environment for run in report.runs if run.environment is not None)
    found.environment = found.environment or next(described, None)
    if any(run.failure is not None and run.failure.kind == "interrupted" for run in report.runs):
        raise KeyboardInterrupt  # the tool has stopped at Ctrl-C and kept what it had: so do we


def _shapes(options: Options, found: _Gathered, say: Say) -> None:
    sizes = shape_sizes(options.size)
    for benchmark in (False, True):
        say(f"varying shapes, benchmark {'on' if benchmark else 'off'}")
        readings = _loop(
            options, found, "shapes", "convnet_v1", benchmark,
            "--batch", str(SHAPE_BATCH), "--sizes", ",".join(map(str, sizes)),
        )  # fmt: skip
        if readings is not None:
            begin = ShapeLoop(benchmark=benchmark, batch=SHAPE_BATCH, sizes=sizes, cycles_ns=(), tail_ns=0)
            found.shapes.append(replace(begin, cycles_ns=tuple(readings["cycles_ns"]), tail_ns=readings["tail_ns"]))


def _naive(options: Options, found: _Gathered, say: Say) -> None:
    for name, mode in LOOPS:
        batch = options.batch * CONV_BATCH if name == "single_conv" else options.batch
        for benchmark in (False, True) if options.device == "cuda" else (False,):
            say(f"naive loop over {name} ({mode}), benchmark {'on' if benchmark else 'off'}")
            readings = _loop(
                options, found, "naive", name, benchmark,
                "--mode", mode, "--batch", str(batch), "--size", str(options.size), "--steps", str(options.naive_steps),
            )  # fmt: skip
            if readings is not None:
                known = {"model": name, "mode": mode, "benchmark": benchmark, "steps": options.naive_steps}
                found.naive.append(from_json(NaiveLoop, known | readings, f"the naive loop over {name}"))


def _loop(
    options: Options, found: _Gathered, loop: str, model: str, benchmark: bool, *more: str
) -> dict[str, Any] | None:
    """What a loop of loops.py printed, run in a fresh process; None, and a problem, where it failed."""
    flag = "on" if benchmark else "off"
    command = [sys.executable, str(Path(__file__).with_name("loops.py")), loop, "--model", model]
    command += ["--benchmark", flag, "--device", options.device, *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOOP_TIMEOUT_S, check=True)
        printed: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        found.problems.append(f"{loop} loop over {model}, benchmark {flag}: no end within {LOOP_TIMEOUT_S} s")
        return None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        found.problems.append(f"{loop} loop over {model}, benchmark {flag}: {last}")
        return None
    found.environment = found.environment or from_json(Environment, printed["environment"], "the loop's environment")
    readings: dict[str, Any] = printed["readings"]
    return readings
