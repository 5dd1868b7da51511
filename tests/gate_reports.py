"""Small sample reports, built from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traced_runs import traced_run

from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.counts import ZERO, Cost, MemoryCategories, MemoryEstimate, ModuleNode, StaticCount
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun, Failure, PeakMemory
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import InputInfo, TargetInfo
from profiler_kit.records.traces import TraceModule

MIB = 2**20


def node(path: str, class_name: str = "Conv2d", config: str = "", macs: int = 0, **fields: Any) -> ModuleNode:
    """Return a module whose backward costs twice its forward."""
    return ModuleNode(
        path=path,
        class_name=class_name,
        config=config,
        calls=1,
        forward=Cost(macs=macs, flops=2 * macs, read_bytes=macs, write_bytes=1),
        backward=Cost(macs=2 * macs, flops=4 * macs),
        **fields,
    )


def static(nodes: Sequence[ModuleNode], **fields: Any) -> StaticCount:
    """Return a static count whose totals are the sums of `nodes`."""
    forward, backward = ZERO, ZERO
    for module in nodes:
        forward, backward = forward + module.forward, backward + module.backward
    params = sum(module.params for module in nodes)
    saved = sum(module.saved_bytes for module in nodes)
    memory = MemoryEstimate(
        peak_bytes=8 * params + saved + 100,
        peak_at="backward",
        categories=MemoryCategories(
            parameters=4 * params, gradients=4 * params, saved_activations=saved, temporaries=100
        ),
    )
    defaults: dict[str, Any] = {
        "convention": "MAC = 2 FLOPs",
        "params": params,
        "trainable_params": params,
        "param_bytes": 4 * params,
        "forward": forward,
        "loss": ZERO,
        "backward": backward,
        "recompute": ZERO,
        "saved_bytes": saved,
        "uncounted": (),
        "modules": tuple(nodes),
        "memory": memory,
    }
    return StaticCount(**{**defaults, **fields})


def target(name: str = "net", **fields: Any) -> TargetInfo:
    defaults: dict[str, Any] = {
        "spec": f"{name}.py",
        "name": name,
        "inputs": (InputInfo(name="x", shape=(8, 3, 16, 16), dtype="float32"),),
        "mode": "train",
        "loss": "cross_entropy",
        "optimizer": "SGD",
    }
    return TargetInfo(**{**defaults, **fields})


def report(
    nodes: Sequence[ModuleNode] | None = (),
    *,
    name: str = "net",
    runs: Sequence[ConfigRun] = (),
    count: StaticCount | None = None,
    notes: tuple[str, ...] = (),
    **fields: Any,
) -> Report:
    """Return a report of the modules `nodes` (None: without a static count). `fields` go to its target."""
    return Report(
        tool=Tool(name="profiler_kit", version="0"),
        created="2026-01-01T00:00:00+00:00",
        target=target(name, **fields),
        static=count if count is not None else None if nodes is None else static(nodes),
        runs=tuple(runs),
        notes=notes,
    )


GPU = Environment(
    device="cuda:0", device_name="H100", torch="2.11", python="3.12", platform="linux", cuda="13", cudnn="9"
)


def run(
    name: str = "default",
    *,
    ms: float = 10.0,
    spread_ms: float = 0.01,
    repeat_of: str | None = None,
    environment: Environment | None = GPU,
    layers: Sequence[tuple[str, float]] = (),
    memory: PeakMemory | None = None,
    failure: Failure | None = None,
    **fields: Any,
) -> ConfigRun:
    """Return a run with a step of `ms` plus or minus `spread_ms` in four processes. `layers` are (path, device ms)."""
    median, spread = round(ms * 1e6), round(spread_ms * 1e6)
    step_ns = None if failure else Interval(median=median, low=median - spread, high=median + spread)
    if step_ns is not None and repeat_of is None:
        fields.setdefault("further_repeats", (Repeat(step_ns=step_ns),) * 3)
    return traced_run(
        config=RunConfig(name=name, repeat_of=repeat_of),
        environment=environment,
        failure=failure,
        step_ns=step_ns,
        clock="kernel" if layers else None,
        modules=tuple(TraceModule(path=path, phase="forward", kernel_ns=round(time * 1e6)) for path, time in layers),
        unattributed_ns=0 if layers else None,
        memory=memory,
        **fields,
    )


def peak(total: int, **parts: int) -> PeakMemory:
    """Return a measured peak of `total` bytes. `parts` names its categories; the remainder is `rest`."""
    names = ("parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "workspace")
    categories: dict[str, Any] = {part: parts.get(part, 0) for part in names}
    return PeakMemory(
        peak_path="conv_r1",
        peak_phase="forward",
        peak_op="aten::cudnn_convolution",
        peak_bytes=total,
        rest=total - sum(categories.values()),
        **categories,
    )
