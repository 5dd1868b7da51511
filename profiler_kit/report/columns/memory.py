"""The columns of memory: peaks by category, tensors saved for backward, workspaces, what-ifs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_kit.records.counts import (
    Communication,
    DeviceMemory,
    LibraryWorkspace,
    MemoryCategories,
    MemoryPoint,
    ModuleMemory,
    ParallelEstimate,
    WhatIf,
)
from profiler_kit.records.parallel import ParallelPlan
from profiler_kit.records.paths import shown_path
from profiler_kit.records.runs import ConfigRun, OpMemory, PeakMemory
from profiler_kit.report.columns.column import Column, ColumnTable, share, trains


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A predicted or measured peak by category. `parts` add up to the peak; `temporaries` of a run are the remainder."""

    source: str
    peak_bytes: int
    parts: MemoryCategories
    at: str | None
    rounding: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """A run with its measured peak, and the peak predicted by rules. `run.predicted` uses measured workspaces."""

    run: ConfigRun
    rule_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCommunication:
    """The collectives of one kind under one plan."""

    plan: ParallelPlan
    communication: Communication


def communication_rows(estimates: Sequence[ParallelEstimate]) -> list[PlanCommunication]:
    """A row for each plan and kind of collective."""
    return [PlanCommunication(plan=e.plan, communication=c) for e in estimates for c in e.communication]


def peak_place(peak: DeviceMemory | PeakMemory | None) -> str | None:
    """Phase, layer and op of the peak; None where unknown."""
    return " ".join(word for word in (peak.peak_phase, peak.peak_path, peak.peak_op) if word) if peak else None


def _error_percent(predicted: int | None, measured: int | None) -> float | None:
    return share(predicted - measured, measured) if predicted is not None and measured is not None else None


# fmt: off
# ruff: noqa: E501 - one column, one line
MEMORY_COLUMNS: tuple[Column[MemoryRow], ...] = (
    Column("source", "peak", "text", lambda m: m.source, "source of the figures: tensors alone, a prediction for a device, or a measured probe step of a configuration", name=True),
    Column("peak_bytes", "bytes", "bytes", lambda m: m.peak_bytes, "peak memory: the sum of the other columns"),
    Column("parameters", "params", "bytes", lambda m: m.parts.parameters, "parameters and buffers", rank=2),
    Column("gradients", "grads", "bytes", lambda m: m.parts.gradients, "gradients of parameters", rank=2),
    Column("optimizer_state", "optimizer", "bytes", lambda m: m.parts.optimizer_state, "state of the optimizer", rank=3),
    Column("inputs", "inputs", "bytes", lambda m: m.parts.inputs, "inputs and labels", rank=3),
    Column("saved_activations", "saved", "bytes", lambda m: m.parts.saved_activations, "activations saved for backward", rank=1),
    Column("temporaries", "others", "bytes", lambda m: m.parts.temporaries, "temporary tensors, such as gradients of activations", rank=1),
    Column("workspace", "workspace", "bytes", lambda m: m.parts.workspace, "library workspace of the op at the peak; empty without a device", rank=1),
    Column("rounding", "rounding", "bytes", lambda m: m.rounding, "bytes that the allocator adds: blocks are multiples of 512 bytes, and it does not split every large block", rank=4),
    Column("at", "at", "text", lambda m: m.at, "phase, layer and op at the peak", rank=4, name=True),
)

PEAK_COLUMNS: tuple[Column[PeakRow], ...] = (
    Column("config", "configuration", "text", lambda p: p.run.config.name, "name of the configuration", name=True),
    Column("rule_bytes", "by rules", "bytes", lambda p: p.rule_bytes, "peak predicted without the device; workspaces by rules"),
    Column("rule_off_percent", "error %", "percent", lambda p: _error_percent(p.rule_bytes, p.run.peak_allocated_bytes), "the prediction by rules minus the measured peak, as a percentage of the measured peak"),
    Column("scratch_bytes", "by probe", "bytes", lambda p: p.run.predicted.allocated_bytes if p.run.predicted else None, "peak predicted with each op's workspace as measured in the probe step of this configuration"),
    Column("scratch_off_percent", "error %", "percent", lambda p: _error_percent(p.run.predicted.allocated_bytes if p.run.predicted else None, p.run.peak_allocated_bytes), "the prediction with measured workspaces minus the measured peak, as a percentage of the measured peak"),
    Column("measured_bytes", "measured", "bytes", lambda p: p.run.peak_allocated_bytes, "peak allocated bytes in the timed steps"),
    Column("at", "predicted at", "text", lambda p: peak_place(p.run.predicted), "phase, layer and op at the peak of the last prediction", rank=1, name=True),
    Column("measured_at", "measured at", "text", lambda p: peak_place(p.run.memory), "phase, layer and op at the peak of the probe step", rank=2, name=True),
)

SAVED_COLUMNS: tuple[Column[ModuleMemory], ...] = (
    Column("layer", "layer", "text", lambda m: shown_path(m.path), "the module that calls the ops", name=True),
    Column("created_bytes", "created", "bytes", lambda m: m.created_bytes, "saved bytes of tensors that the module's own ops created; sums to the total"),
    Column("saved_bytes", "newly saved", "bytes", lambda m: m.saved_bytes, "saved bytes that the module's own ops saved first; sums to the total"),
    Column("held_bytes", "saved", "bytes", lambda m: m.held_bytes, "all bytes that the module's own ops save, shared storages included"),
    Column("inside_bytes", "internal", "bytes", lambda m: m.inside_bytes, "saved bytes of tensors created and saved only inside the module or its descendants: memory that checkpointing the module frees", rank=1),
)

TIMELINE_COLUMNS: tuple[Column[MemoryPoint], ...] = (
    Column("at", "at", "text", lambda p: shown_path(p.at), "phase and layer, in the order of the step", name=True),
    Column("bytes", "live", "bytes", lambda p: p.bytes, "peak of live tensor bytes in this phase and layer"),
)

SCRATCH_COLUMNS: tuple[Column[LibraryWorkspace], ...] = (
    Column("layer", "layer", "text", lambda s: shown_path(s.path), "the module that calls the op", name=True),
    Column("phase", "phase", "text", lambda s: s.phase, "the phase of the op"),
    Column("op", "op", "text", lambda s: s.op, "name of the op", name=True),
    Column("low_bytes", "at least", "bytes", lambda s: s.low_bytes, "smallest possible workspace"),
    Column("likely_bytes", "likely", "bytes", lambda s: s.likely_bytes, "workspace that the prediction uses"),
    Column("high_bytes", "at most", "bytes", lambda s: s.high_bytes, "largest possible workspace"),
    Column("source", "source", "text", lambda s: s.source, "source of these figures", rank=1, name=True),
)

WHAT_IF_COLUMNS: tuple[Column[WhatIf], ...] = (
    Column("change", "what if", "text", lambda w: w.change, "the simulated change", name=True),
    Column("allocated_bytes", "peak", "bytes", lambda w: w.allocated_bytes, "peak allocated bytes, with likely workspaces"),
    Column("difference_bytes", "change", "bytes", lambda w: w.difference_bytes, "peak with the change minus the peak without it; negative is less", rank=1),
    Column("allocated_low_bytes", "at least", "bytes", lambda w: w.allocated_low_bytes, "peak with the smallest possible workspaces", rank=2),
    Column("allocated_high_bytes", "at most", "bytes", lambda w: w.allocated_high_bytes, "peak with the largest possible workspaces", rank=2),
    Column("total_bytes", "device memory", "bytes", lambda w: w.total_bytes, "memory that must fit on the device: reserved memory and CUDA context, with likely workspaces"),
    Column("total_high_bytes", "device memory at most", "bytes", lambda w: w.total_high_bytes, "device memory with the largest possible workspaces", rank=3),
    Column("saved_bytes", "saved for backward", "bytes", lambda w: w.saved_bytes, "bytes saved for backward, parameters and inputs excluded", when=trains, rank=5),
    Column("recompute_flops", "recomputed FLOPs", "flops", lambda w: w.recompute_flops, "FLOPs of forward work recomputed in backward", when=trains, rank=4),
    Column("recompute_percent", "added FLOPs %", "percent", lambda w: w.recompute_percent, "recomputed FLOPs as a share of the step's FLOPs", when=trains),
    Column("recompute_ns", "added time", "ns", lambda w: w.recompute_ns, "shortest possible time of the recomputation by the roofline of --hardware; not measured", when=trains),
    Column("predicted_kernel_ns", "kernels", "ns", lambda w: w.kernel_ns, "predicted kernel time of the step on the device of --gpu"),
    Column("predicted_step_ns", "step", "ns", lambda w: w.step_ns, "predicted time of the step on the device of --gpu, behind a reference host"),
    Column("predicted_examples_per_s", "examples/s", "count", lambda w: w.examples_per_s, "examples per second by the predicted time of the step, of changes of the batch", rank=2),
    Column("fits", "fits", "text", lambda w: w.fits, "whether the step fits the memory of `--fits`: yes, likely or no"),
)

WORKSPACE_COLUMNS: tuple[Column[OpMemory], ...] = (
    Column("layer", "layer", "text", lambda o: shown_path(o.path), "the module that calls the op", name=True),
    Column("phase", "phase", "text", lambda o: o.phase, "the phase of the op"),
    Column("op", "op", "text", lambda o: o.op, "name of the op", name=True),
    Column("before_bytes", "live before", "bytes", lambda o: o.before_bytes, "live bytes before the op", rank=1),
    Column("growth_bytes", "added", "bytes", lambda o: o.growth_bytes, "live bytes after the op minus live bytes before it", rank=2),
    Column("workspace_bytes", "workspace", "bytes", lambda o: o.workspace_bytes, "peak during the op, beyond the live bytes before and after it"),
)

PARALLEL_COLUMNS: tuple[Column[ParallelEstimate], ...] = (
    Column("strategy", "strategy", "text", lambda p: p.plan.strategy, "ddp (DistributedDataParallel), fsdp2 (fully_shard) or tp (parallelize_module)", name=True),
    Column("ranks", "ranks", "count", lambda p: p.plan.ranks, "the number of ranks"),
    Column("peak_bytes", "peak per rank", "bytes", lambda p: p.peak_bytes, "predicted peak of the tensors of one rank"),
    Column("single_peak_bytes", "alone", "bytes", lambda p: p.single_peak_bytes, "predicted peak of the tensors of a device that trains alone"),
    Column("device_peak_bytes", "with workspace", "bytes", lambda p: p.device_peak_bytes, "predicted peak per rank with workspace and rounding, which are those of a device that trains alone", rank=1),
    Column("parameters", "parameters", "bytes", lambda p: p.categories.parameters, "parameters and buffers at the peak, with those that are gathered at that time", rank=1),
    Column("gradients", "gradients", "bytes", lambda p: p.categories.gradients, "gradients at the peak, with the buckets of ddp", rank=1),
    Column("optimizer_state", "optimizer state", "bytes", lambda p: p.categories.optimizer_state, "state of the optimizer", rank=1),
    Column("saved_activations", "activations", "bytes", lambda p: p.categories.saved_activations, "activations at the peak", rank=1),
    Column("temporaries", "temporaries", "bytes", lambda p: p.categories.temporaries, "other tensors at the peak, with the buffers of collectives", rank=2),
    Column("units", "units", "count", lambda p: len(p.units) + 1 if p.plan.strategy == "fsdp2" else None, "modules that are gathered and freed on their own, with the root", rank=3),
    Column("sent_bytes", "sent", "bytes", lambda p: sum(c.sent_bytes for c in p.communication), "bytes that a rank sends in a step, if collectives run as rings"),
)

COMMUNICATION_COLUMNS: tuple[Column[PlanCommunication], ...] = (
    Column("strategy", "strategy", "text", lambda c: c.plan.strategy, "ddp, fsdp2 or tp", name=True),
    Column("ranks", "ranks", "count", lambda c: c.plan.ranks, "the number of ranks"),
    Column("collective", "collective", "text", lambda c: c.communication.collective, "the kind of collective", name=True),
    Column("calls", "calls", "count", lambda c: c.communication.calls, "calls in a step"),
    Column("forward_calls", "in forward", "count", lambda c: c.communication.forward_calls, "calls in forward", rank=1),
    Column("backward_calls", "in backward", "count", lambda c: c.communication.backward_calls, "calls in backward; the others are in the loss or the optimizer", rank=1),
    Column("message_bytes", "messages", "bytes", lambda c: c.communication.message_bytes, "bytes of the full messages, such as the gathered parameters"),
    Column("sent_bytes", "sent", "bytes", lambda c: c.communication.sent_bytes, "bytes that a rank sends, if the collective runs as a ring"),
)

TABLES = (
    ColumnTable("parallel", PARALLEL_COLUMNS, "The predicted peak of one rank of several: `count --parallel fsdp2=8`."),
    ColumnTable("communication", COMMUNICATION_COLUMNS, "The collectives of a step by kind: `count --parallel fsdp2=8`."),
    ColumnTable("memory", MEMORY_COLUMNS, "The step's peak by category, predicted and measured."),
    ColumnTable("peaks", PEAK_COLUMNS, "The peak of each run: predicted by rules, predicted with measured workspaces, and measured."),
    ColumnTable("kept", SAVED_COLUMNS, "Memory saved for backward, parameters and inputs excluded, by the module that created it and by the modules that save it. Predicted."),
    ColumnTable("timeline", TIMELINE_COLUMNS, "Live tensor bytes over the step. Predicted."),
    ColumnTable("scratch", SCRATCH_COLUMNS, "Ops whose workspace is not known exactly. Those that may raise the predicted peak most come first."),
    ColumnTable("what_ifs", WHAT_IF_COLUMNS, "The predicted memory with one change each: `count --batch 8,16 --fits 24GiB --checkpoint PATH --what-if amp`. `--by what-if -o FILE.csv` writes this table."),
    ColumnTable("workspaces", WORKSPACE_COLUMNS, "The ops of the probe step with the largest workspaces."),
)
# fmt: on
