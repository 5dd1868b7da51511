"""Which cuDNN configurations exist, and which collapse into one on a device.

Source: PyTorch's `ConvParams`/cuDNN v8 plan cache (key: shapes, dtype, layout, deterministic, allow_tf32; not benchmark).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from profiler_kit.errors import UsageError
from profiler_kit.measure.naming import DEFAULT, named
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun

Backend = Literal["cudnn", "miopen", "mps", "cpu"]
AGAIN = "default (again)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The configurations to run, in order, and one sentence for each family of them that was left out."""

    configs: tuple[RunConfig, ...]
    notes: tuple[str, ...]


def plan(
    backend: Backend,
    *,
    has_tf32: bool = True,
    float32: bool = True,
    uses_cudnn: bool = True,
    only: Sequence[str] | None = None,
    again: bool = True,
) -> Plan:
    """The configurations worth running on `backend`.

    `has_tf32`: the device computes in TF32 (compute capability 8.0 and later). `float32`: convolutions see float32 inputs.
    `uses_cudnn`: the model has an op that cuDNN runs. `only` keeps the named ones; `again` appends the A/A repetition
    of the first where there is a choice to make. Raises UsageError for an unknown name in `only`.
    """
    configs, notes = _valid(backend, has_tf32 and float32, has_tf32, uses_cudnn)
    if only is not None:
        configs = _chosen(configs, only, notes)
    if again and len(configs) > 1:
        configs.append(replace(configs[0], name=f"{configs[0].name} (again)", repeat_of=configs[0].name))
    return Plan(configs=tuple(configs), notes=tuple(notes))


def _valid(backend: Backend, tf32: bool, has_tf32: bool, uses_cudnn: bool) -> tuple[list[RunConfig], list[str]]:
    if backend == "cpu":
        note = (
            "One configuration: the cuDNN flags can be set on a CPU and change nothing, its convolutions run in oneDNN."
        )
        return [RunConfig(name=DEFAULT)], [note]
    if backend == "mps":
        return [RunConfig(name=DEFAULT)], ["One configuration: Metal (MPS) ignores the cuDNN flags."]
    if not uses_cudnn:
        note = (
            "One configuration: the model has no convolution, recurrent layer or batch norm, so no op that cuDNN runs."
        )
        return [RunConfig(name=DEFAULT, enabled=True, benchmark=False, deterministic=False, allow_tf32=True)], [note]
    notes: list[str] = []
    if backend == "miopen":
        notes.append("No TF32 rows: MIOpen (ROCm) has no such choice.")
    elif not tf32:
        reason = (
            "convolutions see no float32 input" if has_tf32 else "the device predates TF32 (compute capability 8.0)"
        )
        notes.append(f"No TF32 rows: {reason}, so the flag changes nothing.")
    choices: tuple[bool | None, ...] = (True, False) if tf32 and backend == "cudnn" else (None,)
    configs = [
        named(RunConfig(name="", enabled=True, benchmark=benchmark, deterministic=deterministic, allow_tf32=allow_tf32))
        for allow_tf32, deterministic, benchmark in itertools.product(choices, (False, True), (False, True))
    ]
    off = RunConfig(name="cudnn-off", enabled=False, benchmark=False, deterministic=False, allow_tf32=choices[0])
    return [*configs, off], notes


def _chosen(configs: list[RunConfig], only: Sequence[str], notes: list[str]) -> list[RunConfig]:
    everywhere = [c.name for c in _valid("cudnn", True, True, True)[0]]
    unknown = [name for name in only if name not in everywhere]
    if unknown:
        raise UsageError(f"no configuration {unknown[0]!r}", hint=f"choose from {', '.join(everywhere)}")
    kept = [config for config in configs if config.name in only]
    absent = [name for name in only if name not in {c.name for c in configs}]
    if absent:
        notes.append(f"Not run here, as they would be the same as {configs[0].name}: {', '.join(absent)}.")
    return kept or configs[:1]


def with_tuning(runs: Sequence[ConfigRun]) -> tuple[ConfigRun, ...]:
    """`runs` with `tuning_ns` filled in: (first - steady) of a benchmark run minus the same of its twin without benchmark."""
    return tuple(_with_tuning(run, runs) for run in runs)


def _with_tuning(run: ConfigRun, runs: Sequence[ConfigRun]) -> ConfigRun:
    if not run.config.benchmark:
        return run
    twin = next((r for r in runs if _flags(r, benchmark=True) == _flags(run) and r.config.benchmark is False), None)
    start = _start_up(run)
    base = _start_up(twin) if twin is not None else None
    return run if start is None or base is None else replace(run, tuning_ns=start - base)


def _flags(run: ConfigRun, benchmark: bool | None = None) -> RunConfig:
    kept = run.config.benchmark if benchmark is None else benchmark
    return replace(run.config, name="", benchmark=kept)


def _start_up(run: ConfigRun) -> int | None:
    if run.first_step_ns is None or run.step_ns is None:
        return None
    return run.first_step_ns - run.step_ns.median
