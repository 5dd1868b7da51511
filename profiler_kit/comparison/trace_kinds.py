"""How two traces differ in kind: device, ranks, precision, input size, compilation. Such differences explain those of time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from profiler_kit.records.families import LAYOUT, math_name
from profiler_kit.records.trace_comparison import KindChange
from profiler_kit.records.traces import ShapedOperator, TraceSummary

# Kernels whose arithmetic is the program's choice. Pointwise kernels compute in fp32 at any precision.
_MATH_FAMILIES: Final = frozenset(("conv", "gemm", "attention"))
_MIN_BATCH_SHARE: Final = 0.5  # of the time of the operators in both traces: these must agree on the sizes
# Operators whose first tensor begins with the batch by definition. The rows of other operators may be positions of sequences.
_CONVOLUTION: Final = re.compile(r"\Aaten::(conv[123]d|\w*convolution)\Z")
_ATTENTION: Final = re.compile(r"\Aaten::_?scaled_dot_product_\w*attention")


def kind_changes(a: TraceSummary, b: TraceSummary) -> tuple[KindChange, ...]:
    """Return the differences in kind, the most important first. Properties that only one trace records are not compared."""
    return tuple(_changes(a, b))


def _changes(a: TraceSummary, b: TraceSummary) -> Iterator[KindChange]:
    devices = _device(a), _device(b)
    if all(devices) and devices[0] != devices[1]:
        yield KindChange(kind="device", a=devices[0], b=devices[1])
    if a.world_size and b.world_size and a.world_size != b.world_size:
        yield KindChange(kind="world size", a=f"{a.world_size}", b=f"{b.world_size}")
    elif (a.communication is None) != (b.communication is None):
        yield _presence("communication", a.communication is not None)
    modes = _mode(a), _mode(b)
    if all(modes) and modes[0] != modes[1]:
        yield KindChange(kind="mode", a=modes[0], b=modes[1])
    if all(modes) and a.compiled != b.compiled:
        yield _presence("torch.compile", a.compiled)
    if all(modes) and (a.graph_launches > 0) != (b.graph_launches > 0):
        yield _presence("CUDA graphs", a.graph_launches > 0)
    math = _main_math(a), _main_math(b)
    if math[0] and math[1] and math[0] != math[1]:
        yield KindChange(kind="main arithmetic", a=math_name(math[0]), b=math_name(math[1]))
    batches = _sizes([op for op in a.shapes if _has_batch(op)], b.shapes)
    if (sizes := batches or _sizes(a.shapes, b.shapes)) is not None:
        kind = "batch size" if batches is not None else "first dimension of the inputs"
        yield KindChange(kind=kind, a=f"{sizes[0]}", b=f"{sizes[1]}")
    if _trains(a) and _trains(b) and _recomputes(a) != _recomputes(b):
        yield _presence("activation checkpointing", _recomputes(a))


def _presence(kind: str, in_a: bool) -> KindChange:
    return KindChange(kind=kind, a="yes" if in_a else "no", b="no" if in_a else "yes")


def _device(trace: TraceSummary) -> str:
    return ", ".join(dict.fromkeys(name for name in trace.devices if name))


def _trains(trace: TraceSummary) -> bool:
    return any(timing.phase in ("backward", "optimizer") and timing.kernel_ns for timing in trace.phases)


def _mode(trace: TraceSummary) -> str:
    """Return the mode of the model; empty for a trace without host events, which shows no phases."""
    if _trains(trace):
        return "training"
    return "inference" if any(timing.phase == "forward" and timing.kernel_ns for timing in trace.phases) else ""


def _recomputes(trace: TraceSummary) -> bool:
    return any(timing.phase == "recompute" and timing.kernel_ns for timing in trace.phases)


def _main_math(trace: TraceSummary) -> str | None:
    """Return the arithmetic with the most time in convolutions, matrix products and attention."""
    times: Counter[str] = Counter()
    for kernel in trace.kernels:
        is_product = kernel.family.partition(":")[0] in _MATH_FAMILIES and kernel.family != LAYOUT
        if kernel.math is not None and is_product:
            times[kernel.math] += kernel.kernel_ns
    return times.most_common(1)[0][0] if times else None


def _has_batch(operator: ShapedOperator) -> bool:
    """Return whether the first dimension of the operator's input is the batch."""
    if len(operator.shapes) < 2:
        return False
    dimensions, others = len(operator.shapes[0]), len(operator.shapes[1])
    if _ATTENTION.match(operator.name):
        return dimensions == 4  # of three, the first may be batch and heads in one
    # without a batch, the input has one dimension less than the weight
    return _CONVOLUTION.match(operator.name) is not None and dimensions == others


def _sizes(a: Sequence[ShapedOperator], b: Sequence[ShapedOperator]) -> tuple[int, int] | None:
    """Return the first sizes, if the same operators run on inputs that differ in the first dimension alone."""
    times: Counter[tuple[int, int]] = Counter()
    total_ns = 0
    for operator in a:
        pairs = {pair for other in b if (pair := _first_sizes(operator, other)) is not None}
        if len(pairs) == 1:
            times[next(iter(pairs))] += operator.kernel_ns
            total_ns += operator.kernel_ns
    if not times:
        return None
    sizes, agreeing_ns = times.most_common(1)[0]
    return sizes if sizes[0] != sizes[1] and agreeing_ns > _MIN_BATCH_SHARE * total_ns else None


def _first_sizes(a: ShapedOperator, b: ShapedOperator) -> tuple[int, int] | None:
    """Return the first sizes of the inputs of two operators that are otherwise equal; None for other operators."""
    if a.name != b.name or len(a.shapes) != len(b.shapes):
        return None
    pairs = set()
    for shape, other in zip(a.shapes, b.shapes, strict=True):
        if len(shape) != len(other) or shape[1:] != other[1:]:
            return None
        if shape[0] != other[0]:
            pairs.add((shape[0], other[0]))
    if len(pairs) > 1 or not a.shapes:
        return None
    return pairs.pop() if pairs else (a.shapes[0][0], b.shapes[0][0])
