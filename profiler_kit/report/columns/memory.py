"""The columns of memory: peaks taken apart, who keeps what, scratch, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.counts import (
    DeviceMemory,
    LibraryScratch,
    MemoryCategories,
    MemoryPoint,
    ModuleMemory,
    WhatIf,
)
from profiler_kit.records.paths import shown_path
from profiler_kit.records.runs import ConfigRun, OpMemory, PeakMemory
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share, trains


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A peak taken apart: the predicted one, or a run's. `parts` add up to it; a run's `temporaries` are what is in no other part."""

    source: str
    peak_bytes: int
    parts: MemoryCategories
    at: str | None
    rounding: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """A run's measured peak, and the one predicted by rules; that with measured scratch is the run's own."""

    run: ConfigRun
    rule_bytes: int | None


def peak_place(peak: DeviceMemory | PeakMemory | None) -> str | None:
    """Where a step peaks: phase, layer, op."""
    return " ".join(word for word in (peak.peak_phase, peak.peak_path, peak.peak_op) if word) if peak else None


def _off(predicted: int | None, measured: int | None) -> float | None:
    return share(predicted - measured, measured) if predicted is not None and measured is not None else None


# fmt: off
# ruff: noqa: E501 - one column, one line
MEMORY_COLUMNS: tuple[Column[MemoryRow], ...] = (
    Column("source", "peak", "text", lambda m: m.source, "the tensors alone; with what a device of this kind adds; or measured in a probe step of this configuration", name=True),
    Column("peak_bytes", "bytes", "bytes", lambda m: m.peak_bytes, "most bytes held at once: the sum of the others"),
    Column("parameters", "params", "bytes", lambda m: m.parts.parameters, "parameters and buffers", rank=2),
    Column("gradients", "grads", "bytes", lambda m: m.parts.gradients, "gradients of parameters", rank=2),
    Column("optimizer_state", "optimizer", "bytes", lambda m: m.parts.optimizer_state, "the optimizer's state", rank=3),
    Column("inputs", "inputs", "bytes", lambda m: m.parts.inputs, "inputs and labels", rank=3),
    Column("saved_activations", "saved", "bytes", lambda m: m.parts.saved_activations, "activations kept for backward", rank=1),
    Column("temporaries", "others", "bytes", lambda m: m.parts.temporaries, "tensors of the moment, such as gradients of activations", rank=1),
    Column("workspace", "workspace", "bytes", lambda m: m.parts.workspace, "scratch memory of the op that peaks; unknown without a device", rank=1),
    Column("rounding", "rounding", "bytes", lambda m: m.rounding, "what the allocator adds: blocks are multiples of 512 bytes, and large ones are not always cut", rank=4),
    Column("at", "at", "text", lambda m: m.at, "where the step peaks: phase, layer, op", rank=4, name=True),
)

PEAK_COLUMNS: tuple[Column[PeakRow], ...] = (
    Column("config", "configuration", "text", lambda p: p.run.config.name, "the configuration's name", name=True),
    Column("rule_bytes", "by rules", "bytes", lambda p: p.rule_bytes, "the peak predicted without the device: scratch by rules"),
    Column("rule_off_percent", "off %", "percent", lambda p: _off(p.rule_bytes, p.run.peak_allocated_bytes), "that prediction less the measured peak, in percent of the measured"),
    Column("scratch_bytes", "with its scratch", "bytes", lambda p: p.run.predicted.allocated_bytes if p.run.predicted else None, "the peak predicted with the scratch that each op was seen to take in this configuration"),
    Column("scratch_off_percent", "off %", "percent", lambda p: _off(p.run.predicted.allocated_bytes if p.run.predicted else None, p.run.peak_allocated_bytes), "that prediction less the measured peak, in percent of the measured"),
    Column("measured_bytes", "measured", "bytes", lambda p: p.run.peak_allocated_bytes, "most bytes allocated in the timed steps"),
    Column("at", "predicted at", "text", lambda p: peak_place(p.run.predicted), "where the step peaks by the last prediction: phase, layer, op", rank=1, name=True),
    Column("measured_at", "measured at", "text", lambda p: peak_place(p.run.memory), "where the probed step peaked", rank=2, name=True),
)

KEPT_COLUMNS: tuple[Column[ModuleMemory], ...] = (
    Column("layer", "layer", "text", lambda m: shown_path(m.path), "the module whose op it is", name=True),
    Column("created_bytes", "made", "bytes", lambda m: m.created_bytes, "kept for backward and made by its own ops; sums to the total"),
    Column("saved_bytes", "kept first", "bytes", lambda m: m.saved_bytes, "kept for backward and kept first by its own ops; sums to the total"),
    Column("held_bytes", "kept", "bytes", lambda m: m.held_bytes, "all that its own ops keep, with what others keep too"),
    Column("inside_bytes", "within", "bytes", lambda m: m.inside_bytes, "made and kept within it and its parts alone: what checkpointing it lets go of", rank=1),
)

TIMELINE_COLUMNS: tuple[Column[MemoryPoint], ...] = (
    Column("at", "at", "text", lambda p: shown_path(p.at), "phase and layer, in the order of the step", name=True),
    Column("bytes", "held", "bytes", lambda p: p.bytes, "most bytes of tensors held there"),
)

SCRATCH_COLUMNS: tuple[Column[LibraryScratch], ...] = (
    Column("layer", "layer", "text", lambda s: shown_path(s.path), "the module whose op it is", name=True),
    Column("phase", "phase", "text", lambda s: s.phase, "the phase it runs in"),
    Column("op", "op", "text", lambda s: s.op, "the op", name=True),
    Column("low_bytes", "at least", "bytes", lambda s: s.low_bytes, "scratch that it takes at least"),
    Column("likely_bytes", "likely", "bytes", lambda s: s.likely_bytes, "scratch that the prediction takes"),
    Column("high_bytes", "at most", "bytes", lambda s: s.high_bytes, "scratch that it takes at most"),
    Column("source", "from", "text", lambda s: s.source, "where that is known from", rank=1, name=True),
)

WHAT_IF_COLUMNS: tuple[Column[WhatIf], ...] = (
    Column("change", "what if", "text", lambda w: w.change, "what is changed", name=True),
    Column("allocated_bytes", "peak", "bytes", lambda w: w.allocated_bytes, "most bytes allocated, with likely scratch"),
    Column("difference_bytes", "change", "bytes", lambda w: w.difference_bytes, "the peak beyond that of the step as it is: negative is less", rank=1),
    Column("allocated_low_bytes", "at least", "bytes", lambda w: w.allocated_low_bytes, "the peak with as little scratch as may be", rank=2),
    Column("allocated_high_bytes", "at most", "bytes", lambda w: w.allocated_high_bytes, "the peak with as much scratch as may be", rank=2),
    Column("total_bytes", "device holds", "bytes", lambda w: w.total_bytes, "what has to fit: reserved memory and context, with likely scratch"),
    Column("total_high_bytes", "at most holds", "bytes", lambda w: w.total_high_bytes, "the same with as much scratch as may be", rank=3),
    Column("saved_bytes", "kept for backward", "bytes", lambda w: w.saved_bytes, "kept for backward, parameters and inputs excluded", when=trains, rank=5),
    Column("recompute_flops", "FLOPs again", "flops", lambda w: w.recompute_flops, "FLOPs of forward that backward computes again", when=trains, rank=4),
    Column("recompute_percent", "FLOPs added %", "percent", lambda w: w.recompute_percent, "what is computed again, as a share of the step's FLOPs", when=trains),
    Column("recompute_ns", "time added", "ns", lambda w: w.recompute_ns, "the least time that computing again takes: computed from the roofline of --hardware, not measured", when=trains),
    Column("fits", "fits", "text", lambda w: w.fits, "into the memory asked for: surely, likely or not"),
)

WORKSPACE_COLUMNS: tuple[Column[OpMemory], ...] = (
    Column("layer", "layer", "text", lambda o: shown_path(o.path), "the module whose op it is", name=True),
    Column("phase", "phase", "text", lambda o: o.phase, "the phase it ran in"),
    Column("op", "op", "text", lambda o: o.op, "the op", name=True),
    Column("before_bytes", "live before", "bytes", lambda o: o.before_bytes, "bytes live when it began", rank=1),
    Column("growth_bytes", "returned", "bytes", lambda o: o.growth_bytes, "bytes more that were live when it had ended", rank=2),
    Column("workspace_bytes", "workspace", "bytes", lambda o: o.workspace_bytes, "its peak beyond both"),
)

TABLES = (
    ColumnTable("memory", MEMORY_COLUMNS, "The step's peak, predicted and measured, by what it is for."),
    ColumnTable("peaks", PEAK_COLUMNS, "The peak of each run, as it was predicted by rules, with the scratch that was measured, and as it was measured."),
    ColumnTable("kept", KEPT_COLUMNS, "What is kept for backward, parameters and inputs excluded: who made it, who keeps it. Predicted."),
    ColumnTable("timeline", TIMELINE_COLUMNS, "The bytes of tensors held over the step. Predicted."),
    ColumnTable("scratch", SCRATCH_COLUMNS, "Ops whose scratch memory is not known exactly, those that may lift the predicted peak most first."),
    ColumnTable("what_ifs", WHAT_IF_COLUMNS, "The predicted memory with something changed: `count --batch 8,16 --fits 24GiB --checkpoint PATH --what-if amp`. `--by what-if -o FILE.csv` writes it."),
    ColumnTable("workspaces", WORKSPACE_COLUMNS, "The ops of the probe step that used most scratch memory."),
)
# fmt: on
