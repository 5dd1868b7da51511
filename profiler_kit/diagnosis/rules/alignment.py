"""Sizes that tensor cores pad, or cannot load at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import fsum
from typing import Final, NamedTuple

from profiler_kit.diagnosis.convolution import (
    CHANNEL_MULTIPLE,
    Channels,
    layer_channels,
    operator_text,
    round_up_to_multiple,
    shaped_channels,
)
from profiler_kit.diagnosis.facts import counts_of
from profiler_kit.diagnosis.phrases import join_list, layer_name, limit_percent
from profiler_kit.diagnosis.rule import evidence_of
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, total_ns, work_claims
from profiler_kit.records.claims import kernel_claims, module_claims
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.families import is_contraction, math_name
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.units import percent, text

# A layer below a twentieth of the device time is not worth a change of its weights' shape.
MIN_DEVICE_SHARE: Final = 0.05
# Tiles lose about this much at the edges in any case.
MIN_PADDED_SHARE: Final = 0.05
TENSOR_CORE_MATH: Final = frozenset({"tf32", "f16", "bf16"})


class _PaddedLayer(NamedTuple):
    """One layer or operator: its name in sentences, its path if it has one, its channels, and its time."""

    name: str
    path: str | None
    channels: Channels
    ns: int

    @property
    def padding_ns(self) -> float:
        """The time spent on padding, if time is proportional to operations."""
        return self.ns * self.channels.padded_share


def _padding(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    layers = _padded_layers(step, counts_of(report))
    if not layers:
        return None
    ns, first = fsum(layer.padding_ns for layer in layers), layers[0]
    channels, paths = first.channels, tuple(layer.path for layer in layers if layer.path is not None)
    return StepPart(
        ns=ns,
        title=f"Padding takes {percent(step.share(ns))} of the {step.facts.whole}: "
        f"{join_list([str(n) for n in channels.unaligned])} channels in {first.name}, not a multiple of {CHANNEL_MULTIPLE}",
        sentences=(
            f"Tensor cores pad {join_list([_describe(layer) for layer in layers])}.",
            "The padding is computed from the channels, and a lower bound.",
        ),
        advice=f"Use {_multiples_below(channels)} channels or features instead of {channels.inputs} -> {channels.outputs} in "
        f"{first.name}, which saves at least the padding; or {_next_multiples(channels)}, which do more in the same time. "
        "Multiples of 64 fill larger tiles too. This changes the model, so train it again. A vocabulary can be padded: the added "
        "rows are never used.",
        evidence=tuple(
            item
            for layer in layers
            for item in evidence_of(
                layer.name,
                ("padded share", 100.0 * layer.channels.padded_share, "percent"),
                (step.clock_name, layer.ns, "ns"),
            )
        ),
        paths=paths,
        computed=True,
        claims=module_claims(paths) or kernel_claims(kernel.name for kernel in step.select(_uses_tensor_cores)),
    )


def _padded_layers(step: StepWork, static: StaticCount | None) -> list[_PaddedLayer]:
    """Return the layers that pad enough, most padding first."""
    if not step.is_mostly_busy:
        return []
    layers = _counted_layers(step, static) if static is not None else _shaped_layers(step)
    padded = [
        layer
        for layer in layers
        if layer.channels.padded_share >= MIN_PADDED_SHARE and layer.ns >= MIN_DEVICE_SHARE * step.busy_ns
    ]
    return sorted(padded, key=lambda layer: -layer.padding_ns)


def _counted_layers(step: StepWork, static: StaticCount) -> Iterator[_PaddedLayer]:
    """Yield the counted layers with the time of their kernels in tensor-core arithmetic."""
    times = step.layers(_uses_tensor_cores)
    for node in static.modules:
        channels = layer_channels(node)
        if channels is not None and node.path in times:
            yield _PaddedLayer(layer_name(node.path), node.path, channels, times[node.path])


def _shaped_layers(step: StepWork) -> Iterator[_PaddedLayer]:
    """Yield the operators of a trace by shapes. Their kernels are unknown, so most of the products must use tensor cores."""
    if 2 * step.kernel_ns(_uses_tensor_cores) < step.kernel_ns(lambda kernel: is_contraction(kernel.family)):
        return
    for operator in step.trace.shapes:
        if (channels := shaped_channels(operator)) is not None:
            yield _PaddedLayer(operator_text(operator), None, channels, operator.kernel_ns)


def _uses_tensor_cores(kernel: Work) -> bool:
    return kernel.math in TENSOR_CORE_MATH and is_contraction(kernel.family)


def _describe(layer: _PaddedLayer) -> str:
    channels = layer.channels
    sizes = f"{channels.inputs} -> {channels.outputs} channels to {_next_multiples(channels)}"
    return f"{layer.name} ({sizes}, {text(layer.ns, 'ns')})"


def _next_multiples(channels: Channels) -> str:
    return f"{round_up_to_multiple(channels.inputs)} -> {round_up_to_multiple(channels.outputs)}"


def _multiples_below(channels: Channels) -> str:
    counts = (max(count // CHANNEL_MULTIPLE, 1) * CHANNEL_MULTIPLE for count in (channels.inputs, channels.outputs))
    return " -> ".join(map(str, counts))


CHANNELS_MULTIPLE = step_rule(
    "channels_multiple",
    _padding,
    Shares(0.0, medium=0.05),  # a twentieth of the step spent on padding is worth a change of the model
    f"""
Fires when a convolution or linear layer runs in tensor-core arithmetic with channels (features) that are not a multiple of
{CHANNEL_MULTIPLE}, at least {limit_percent(MIN_PADDED_SHARE)} of its multiplications are padding, and it takes at least
{limit_percent(MIN_DEVICE_SHARE)} of the device time. The device must be busy for at least {limit_percent(MIN_BUSY_SHARE)} of the
step.

The padded share is **computed from the channels**, not measured, and is a lower bound: real tiles are larger than
{CHANNEL_MULTIPLE}, so a layer with few channels pads more. Channels rounded down
to a multiple save at least the padding. Channels rounded up take about the same time as now.

The counts of a report show the channels. In a trace, the shapes of convolutions and linear layers do, if most of the products run
on tensor cores.
""",
    states_share=False,
)

# cuBLAS and CUTLASS load 16 bytes at once into tensor cores.
# Source: NVIDIA, Matrix Multiplication Background User's Guide, "Requirements to use Tensor Cores".
LOAD_BYTES: Final = 16
_BYTES: Final = {"f16": 2, "bf16": 2, "tf32": 4}
# CUTLASS names the number of values to which addresses and rows are aligned: cutlass_75_tensorop_bf16_..._tn_align1.
_ALIGNMENT: Final = re.compile(r"tensorop\w*_align(\d+)")


def _unaligned(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    kernels = work.select(_is_unaligned)
    if not kernels:
        return None
    kinds = sorted({kernel.math for kernel in kernels if kernel.math})
    multiple = LOAD_BYTES // min(_BYTES[math] for math in kinds)
    return StepPart(
        ns=total_ns(kernels),
        what="Matrix products with odd sizes take",
        sentences=(
            f"{join_list([math_name(math) for math in kinds])} kernels for unaligned rows take {text(total_ns(kernels), 'ns')} "
            f"of {work.clock_name} {work.per_step}.",
            f"Tensor cores load {LOAD_BYTES} bytes at once. Rows that do not start at multiples of {LOAD_BYTES} bytes need "
            "slower kernels.",
        ),
        advice=f"Make the sizes of layers, vocabularies and padded batches multiples of {multiple}, better of 64: 1024 features "
        "instead of 1023. This changes the model, so train it again. A vocabulary can be padded: the added rows are never used.",
        evidence=tuple(Evidence(name="device time", value=item.ns, unit="ns", where=item.name) for item in kernels),
        claims=work_claims(work, kernels),
    )


def _is_unaligned(kernel: Work) -> bool:
    size = _BYTES.get(kernel.math or "")
    match = _ALIGNMENT.search(kernel.name)
    return size is not None and match is not None and int(match.group(1)) * size < LOAD_BYTES


UNALIGNED_PRODUCTS = step_rule(
    "unaligned_products",
    _unaligned,
    Shares(0.10, high=1 / 3),  # a product that becomes twice as fast saves half of its share
    f"""
Fires on tensor-core kernels for unaligned rows.

Tensor cores load {LOAD_BYTES} bytes at once: 8 values of 16 bits, or 4 of TF32. If a size of a product is odd, its rows start at
other addresses, and the library falls back to kernels that load one or two values at a time. They are several times slower,
although the padding is below a percent. The names of CUTLASS kernels show the alignment (`align1`).
""",
)
