"""Reports of transformers with a given number of modules. All figures follow formulas; nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler_kit.diagnosis import diagnose
from profiler_kit.diagnosis.roofline import rooflines
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.counts import COUNT_PHASES, ZERO, Cost, CountPhase, ModuleNode, StaticCount
from profiler_kit.records.machine import Ceilings, MathRate
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import InputInfo, TargetInfo
from profiler_kit.records.traces import PhaseTime, TraceKernel, TraceModule, TraceSummary

WIDTH: Final = 1024
TOKENS: Final = 8 * 512
# Of a block: name, class, output features over `WIDTH`, input features over `WIDTH`; 0 for a pointwise module.
BLOCK: Final = (
    ("norm1", "LayerNorm", 1, 0),
    ("attn", "Attention", 0, 0),
    ("attn.q", "Linear", 1, 1),
    ("attn.k", "Linear", 1, 1),
    ("attn.v", "Linear", 1, 1),
    ("attn.out", "Linear", 1, 1),
    ("norm2", "LayerNorm", 1, 0),
    ("mlp.up", "Linear", 4, 1),
    ("mlp.down", "Linear", 1, 4),
)
RATE: Final = 30e12  # FLOP/s of the matrix products
BANDWIDTH: Final = 1.5e12  # bytes/s of the other layers
PHASES: Final[tuple[CountPhase, ...]] = ("forward", "backward")


def transformer_report(modules: int) -> Report:
    """A report of two measured configurations of a transformer with about `modules` modules."""
    nodes = tuple(_nodes(max(1, round((modules - 1) / (len(BLOCK) + 2)))))
    totals = {phase: sum((node.cost(phase) for node in nodes), start=ZERO) for phase in COUNT_PHASES}
    static = StaticCount(
        convention="A MAC (multiply-add) is 2 FLOPs.",
        params=sum(node.params for node in nodes),
        trainable_params=sum(node.params for node in nodes),
        param_bytes=sum(node.param_bytes for node in nodes),
        saved_bytes=sum(node.saved_bytes for node in nodes),
        uncounted=(),
        modules=nodes,
        forward=totals["forward"],
        loss=totals["loss"],
        backward=totals["backward"],
        recompute=totals["recompute"],
    )
    runs = (_run("default", nodes, 1.0), _run("benchmark", nodes, 0.9))
    report = Report(
        tool=Tool(name="profiler_kit", version="0"),
        created="2026-01-01T00:00:00+00:00",
        target=TargetInfo(
            spec="transformer.py",
            name=f"Transformer, {len(nodes):,} modules",
            inputs=(InputInfo(name="x", shape=(8, 512, WIDTH), dtype="float32"),),
            mode="train",
            loss="mse_loss",
            optimizer="adamw",
        ),
        static=static,
        runs=runs,
        findings=(),
    )
    rates = (MathRate(math=math, flops_per_s=rate, size=8192, repeats=40, spread_percent=0.1) for math, rate in _PEAKS)
    ceilings = Ceilings(
        device="cuda",
        device_name="NVIDIA H100 80GB HBM3",
        torch="2.11.0",
        driver="580.95.05",
        threads=None,
        rates=tuple(rates),
        bandwidth_bytes_per_s=2.9e12,
        copy_bytes=2**30,
        bandwidth_spread_percent=0.1,
        duration_ns=10**9,
    )
    report = replace(report, roofline=rooflines(report, ceilings))
    return with_verdict(replace(report, findings=diagnose(report)))


_PEAKS: Final = (("fp32", 51e12), ("tf32", 380e12), ("f16", 720e12), ("bf16", 730e12))


def _nodes(blocks: int) -> Iterator[ModuleNode]:
    yield ModuleNode(path="", class_name="Transformer", calls=1)
    for block in range(blocks):
        prefix = f"blocks.{block}"
        if block == 0:
            yield ModuleNode(path="blocks", class_name="ModuleList")
        yield ModuleNode(path=prefix, class_name="Block", calls=1)
        for name, class_name, outputs, inputs in BLOCK:
            if name == "mlp.up":
                yield ModuleNode(path=f"{prefix}.mlp", class_name="MLP", calls=1)
            yield _layer(f"{prefix}.{name}", class_name, outputs * WIDTH, inputs * WIDTH)


def _layer(path: str, class_name: str, outputs: int, inputs: int) -> ModuleNode:
    macs = TOKENS * outputs * inputs
    params = outputs * inputs + outputs
    elements = TOKENS * outputs
    forward = Cost(
        macs=macs,
        flops=2 * macs + 4 * elements,
        read_bytes=4 * (TOKENS * max(inputs, outputs) + params),
        write_bytes=4 * elements,
    )
    backward = Cost(
        macs=2 * macs,
        flops=4 * macs + 8 * elements,
        read_bytes=2 * forward.read_bytes,
        write_bytes=2 * forward.write_bytes,
    )
    return ModuleNode(
        path=path,
        class_name=class_name,
        config=f"{inputs}->{outputs}" if inputs else str(outputs or ""),
        calls=1,
        params=params,
        trainable_params=params,
        param_bytes=4 * params,
        forward=forward,
        backward=backward,
        output_bytes=4 * elements,
        saved_bytes=4 * TOKENS * inputs,
        held_bytes=4 * TOKENS * inputs,
    )


def _run(name: str, nodes: tuple[ModuleNode, ...], scale: float) -> ConfigRun:
    layers = tuple(
        TraceModule(path=node.path, phase=phase, kernel_ns=ns, kernels=(_kernel(node.class_name, phase, ns),))
        for i, node in enumerate(nodes)
        for phase in PHASES
        if (ns := round(scale * (1 + i % 7 / 5) * _shortest_ns(node.cost(phase))))
    )
    by_phase = {phase: sum(layer.kernel_ns for layer in layers if layer.phase == phase) for phase in PHASES}
    step_ns = sum(by_phase.values())
    is_search = name == "benchmark"
    return ConfigRun(
        config=RunConfig(name=name, enabled=True, benchmark=is_search, deterministic=False, allow_tf32=True),
        environment=Environment(
            device="cuda",
            device_name="NVIDIA H100 80GB HBM3",
            torch="2.11.0+cu130",
            python="3.12.3",
            platform="Linux",
            capability="9.0",
        ),
        first_step_ns=30 * step_ns if is_search else 3 * step_ns,
        tuning_ns=27 * step_ns if is_search else None,
        warmup_steps=10,
        steps_ns=(step_ns,) * 20,
        step_ns=Interval(median=step_ns, low=round(0.995 * step_ns), high=round(1.005 * step_ns)),
        traced_steps=3,
        timed_phases=tuple(PhaseTime(phase=phase, stopwatch_ns=ns // 2, event_ns=ns) for phase, ns in by_phase.items()),
        traced=TraceSummary(
            file="",
            clock="device",
            span_ns=0,
            busy_ns=step_ns,
            idle_ns=0,
            sum_ns=step_ns,
            unattributed_ns=0,
            modules=layers,
        ),
    )


def _shortest_ns(cost: Cost) -> float:
    return 1e9 * max(cost.flops / RATE, cost.bytes_moved / BANDWIDTH)


def _kernel(class_name: str, phase: str, ns: int) -> TraceKernel:
    family = "matmul" if class_name == "Linear" else "norm"
    return TraceKernel(name=f"{class_name}_{phase}", family=family, calls=1, kernel_ns=ns)
