"""Work that moves bytes and computes little: chains of pointwise operations, copies, layout conversions, all of it together."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.family_advice import COPIES
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, layer_name, layers_sentence, limit_percent, plural
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import (
    MEMORY_FAMILIES,
    copies,
    copy_ns,
    is_eager_pointwise,
    is_product,
    pointwise_calls,
    pointwise_ns,
)
from profiler_kit.diagnosis.work_sites import site_claim
from profiler_kit.records.claims import Claim, kernel_claims, module_claims
from profiler_kit.records.families import LAYOUT, family_name, is_host_copy
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.roofline import LayerBound, Roofline
from profiler_kit.units import percent, text

# A network with one activation for each layer has about one pointwise operation for each product. Three and more are a chain.
MIN_CALLS_PER_PRODUCT: Final = 3.0
# Fewer operations cannot hold a chain worth a compiler.
MIN_CALLS: Final = 6


def _pointwise_chain(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    ns, calls = pointwise_ns(work), pointwise_calls(work)
    products = total_calls(work.select(is_product)) / work.steps
    if calls < max(MIN_CALLS, MIN_CALLS_PER_PRODUCT * products):
        return None
    rest = ", without the optimizer," if work.facts.has_optimizer else ""
    return StepPart(
        ns=ns,
        what="Unfused pointwise operations take",
        sentences=(
            f"{calls:,} pointwise operations{work.facts.each}{rest} take {text(ns, 'ns')} {work.per_step}.",
            "Each one reads its inputs from memory and writes its output.",
        ),
        advice="Fuse them: {code}. Functions outside the model can be compiled too"
        + (", such as the loss: loss_fn = torch.compile(loss_fn)." if work.facts.trains else "."),
        code="model = torch.compile(model)",
        measures=(("time of pointwise operations", ns, "ns"), ("pointwise operations per step", calls, "count")),
        trials=trials_of(report, "compile"),
        claims=(*_chains(work), *work_claims(work, work.select(is_eager_pointwise))),
    )


def _chains(work: StepWork) -> Iterator[Claim]:
    """Yield claims on the rows between two products that are mostly pointwise: one kernel for each pass can do their work."""
    families = {item.name: item.family for item in work.operators}
    for site in work.trace.sites:
        names = site.row.split(", ")
        if 2 * sum(families.get(name) == "pointwise" for name in names) > len(names):
            yield site_claim(site)


POINTWISE_CHAIN = step_rule(
    "pointwise_chain",
    _pointwise_chain,
    Shares(0.25, high=0.50),  # fusion leaves one pass over memory of several, so it saves at least half of a chain
    f"""
Fires on pointwise operations (add, mul, exp, activations and their gradients), if there are at least {MIN_CALLS_PER_PRODUCT:g}
of them for each convolution or matrix product, and {MIN_CALLS} per step. The optimizer does not count, and neither do kernels
that a compiler fused.

Each pointwise operation reads its inputs from memory and writes its output. It computes almost nothing, so the traffic decides
its time. A compiler fuses a chain into one kernel that reads and writes once.
""",
    keeps=0.34,  # three operations as one kernel read and write once instead of three times
)


def _tensor_copies(report: Report | TraceReport, work: StepWork) -> StepPart:
    kernels, ns = copies(work), copy_ns(work)
    calls = total_calls(kernels) // work.steps
    operators = work.select(lambda item: item.family == "cat/copy", operators=True)[:3]
    sources = [f"{item.name} {text(item.ns, 'ns')}" for item in operators]
    return StepPart(
        ns=ns,
        what="Copies of tensors take",
        sentences=(
            f"{calls:,} copies{work.facts.each} take {text(ns, 'ns')} {work.per_step}. They compute nothing.",
            f"By operator: {join_list(sources)}." if sources else "",
        ),
        advice=COPIES,
        measures=(("time of copies", ns, "ns"), ("copies per step", calls, "count")),
        claims=work_claims(work, kernels),
    )


TENSOR_COPIES = step_rule(
    "tensor_copies",
    _tensor_copies,
    Shares(0.10, medium=0.20, high=0.40),  # most networks copy a little: concatenation, gradients of views
    """
Fires on copies of tensors: `contiguous`, `clone`, `reshape` of a non-contiguous tensor, `copy_`, `cat` and `stack`. Copies
between host and device, conversions of the data type, and layout conversions of cuDNN do not count.

A copy computes nothing. `permute` and `transpose` return views; `contiguous`, or `reshape` after them, copies.
""",
)

CAUSE: Final = "{library}'s fast convolutions need channels-last tensors and convert other layouts."
CHANNELS_LAST_ADVICE: Final = advise(
    "Use channels last: {code} and inputs.to(memory_format=torch.channels_last).",
    "model.to(memory_format=torch.channels_last)",
)
# Without the variable, PyTorch on ROCm converts channels-last tensors back before it calls MIOpen.
_ROCM_ADVICE: Final = advise(
    "Use channels last, and let MIOpen use it: `{code}`, before the first convolution, and "
    "inputs.to(memory_format=torch.channels_last).",
    "os.environ['PYTORCH_MIOPEN_SUGGEST_NHWC'] = '1'; model.to(memory_format=torch.channels_last)",
)


_TENSOR_CORES: Final = Advice(
    "Kernels of tensor cores take channels-last tensors: compute in 16 bits or TF32, with channels that are multiples of 8."
)
# A pass of a convolution reads two tensors and writes one, so there are more conversions from the layout of the tensors.
_TO_NCHW: Final = re.compile(r"nhwcToNchw")
_TO_NHWC: Final = re.compile(r"nchwToNhwc")


def _calls(kernels: Iterable[Work], name: re.Pattern[str]) -> int:
    return sum(kernel.calls for kernel in kernels if name.search(kernel.name))


def _layout(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    kernels = step.select(_is_layout)
    ns, calls, paths = total_ns(kernels), total_calls(kernels) // step.steps, tuple(step.layers(_is_layout))
    if not step.is_mostly_busy:
        return None
    is_channels_last = _calls(kernels, _TO_NCHW) > _calls(kernels, _TO_NHWC)
    return StepPart(
        ns=ns,
        most="low" if is_channels_last else "high",
        what="Layout conversions take",
        sentences=(
            f"{plural(calls, 'kernel')}{step.facts.each} only {'converts' if calls == 1 else 'convert'} tensors between NCHW and "
            f"NHWC, for {text(ns, 'ns')} {step.per_step}.",
            layers_sentence(paths),
            "The tensors are channels last, and the kernels take NCHW."
            if is_channels_last
            else CAUSE.format(library="MIOpen" if step.is_rocm else "cuDNN"),
        ),
        advice=_TENSOR_CORES if is_channels_last else _layout_advice(report, step),
        measures=(("time of layout kernels", ns, "ns"), ("layout kernels per step", calls, "count")),
        paths=paths,
        trials=trials_of(report, "channels_last"),
        claims=kernel_claims(kernel.name for kernel in kernels),
    )


def _layout_advice(report: Report | TraceReport, step: StepWork) -> Advice:
    if step.is_rocm:
        return _ROCM_ADVICE
    if isinstance(report, TraceReport):
        return CHANNELS_LAST_ADVICE
    if report.target.channels_last:
        return Advice(
            "The model is already in channels_last. Look for an op that returns another layout (view, permute), or an input "
            "that is not in channels_last."
        )
    return CHANNELS_LAST_ADVICE.then("To measure the effect, run analyze with --channels-last.")


def _is_layout(kernel: Work) -> bool:
    return kernel.family == LAYOUT


LAYOUT_OVERHEAD = step_rule(
    "layout_overhead",
    _layout,
    Shares(0.05, medium=0.10),  # a twentieth justifies one line of code, and exceeds the noise of a trace
    f"""
Fires on layout kernels (NCHW to NHWC and back, padding of channels), if the device is busy for at least
{limit_percent(MIN_BUSY_SHARE)} of the step.

The tensor-core convolutions of cuDNN and MIOpen need channels-last tensors. They convert tensors of other layouts before and
after. These kernels compute nothing. If more of them convert from NHWC to NCHW, the tensors are channels last already: cuDNN
chose kernels without tensor cores, and the finding is `low`. On ROCm, PyTorch passes channels-last tensors on to MIOpen only
with the environment variable `PYTORCH_MIOPEN_SUGGEST_NHWC=1`.
""",
)

# From half of the device time on, moving fewer bytes helps more than faster arithmetic.
MIN_MEMORY_BOUND_SHARE: Final = 0.50
# A layer that takes five times its memory floor waits for something else, usually for launches and dispatch.
MIN_BANDWIDTH_SHARE: Final = 0.20
# A layer that is much faster than its memory floor reads its operands from caches: memory does not limit it.
MAX_BANDWIDTH_SHARE: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryWork:
    """The work that memory limits. `times`: its time by name, longest first. `floor_ns`: what its bytes need; None if unknown."""

    kind: str
    times: dict[str, int]
    claims: tuple[Claim, ...]
    paths: tuple[str, ...] = ()
    floor_ns: float | None = None

    @property
    def ns(self) -> int:
        """The time of all of it."""
        return sum(self.times.values())

    @property
    def bandwidth_percent(self) -> float | None:
        """The share of the peak bandwidth that it reaches at least, in percent."""
        return 100.0 * min(1.0, self.floor_ns / self.ns) if self.floor_ns is not None else None


def _memory_bound(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    line = report.roofline_of(report.baseline()) if isinstance(report, Report) else None
    work = _by_roofline(step, line) if line is not None else _by_families(step)
    is_busy = step.busy_ns >= MIN_BUSY_SHARE * step.span_ns and (step.on_device or line is not None)
    if not is_busy or work.ns < MIN_MEMORY_BOUND_SHARE * step.busy_ns:
        return None
    trials = trials_of(report, "compile", "amp_bf16", "channels_last")  # the smallest change of the script first
    largest = [f"{name} {text(ns, 'ns')}" for name, ns in list(work.times.items())[:3]]
    return StepPart(
        ns=work.ns,
        most="low",
        what=f"Memory-bound: {work.kind} limited by memory bandwidth take",
        sentences=(
            f"These {work.kind} take {text(work.ns, 'ns')} of {step.clock_name} {step.per_step}. The largest: "
            f"{join_list(largest)}.",
            _bandwidth(line, work),
            trials.sentence(),
        ),
        advice=_memory_advice(step),
        measures=(
            *((name, ns, "ns") for name, ns in sorted(work.times.items())),
            ("share of peak bandwidth", work.bandwidth_percent, "percent"),
        ),
        paths=work.paths,
        trials=trials,
        claims=work.claims,
    )


def _by_roofline(step: StepWork, line: Roofline) -> _MemoryWork:
    recurrent = {m.path for m in step.trace.modules if any(k.family.startswith("rnn") for k in m.kernels)}
    layers = [item for item in line.layers if _is_at_bandwidth(item) and item.path not in recurrent]
    times: Counter[str] = Counter()
    for item in layers:
        times[item.path] += (item.time_ns or 0) * step.steps
    return _MemoryWork(
        kind="layers",
        times={layer_name(path): ns for path, ns in times.most_common()},
        claims=module_claims(times),
        paths=tuple(path for path, _ in times.most_common()),
        floor_ns=step.steps * math.fsum(item.floor_ns for item in layers),
    )


def _by_families(step: StepWork) -> _MemoryWork:
    kernels = step.select(lambda kernel: kernel.family in MEMORY_FAMILIES and not is_host_copy(kernel.name))
    times: Counter[str] = Counter()
    for kernel in kernels:
        times[family_name(kernel.family)] += kernel.ns
    claims = kernel_claims(kernel.name for kernel in kernels)
    return _MemoryWork(kind="kernels", times=dict(times.most_common()), claims=claims)


def _is_at_bandwidth(layer: LayerBound) -> bool:
    """Whether memory limits the layer, and its time is near the shortest that the bandwidth allows."""
    if layer.binds != "memory" or not layer.time_ns:
        return False
    return MIN_BANDWIDTH_SHARE * layer.time_ns <= layer.floor_ns <= MAX_BANDWIDTH_SHARE * layer.time_ns


def _bandwidth(line: Roofline | None, work: _MemoryWork) -> str:
    if line is None or work.bandwidth_percent is None:
        return ""
    return (
        f"At the {line.roof.source} bandwidth of {text(line.roof.bandwidth_bytes_per_s, 'bytes/s')}, their bytes need "
        f"{percent(work.bandwidth_percent / 100.0)} of this time."
    )


def _memory_advice(step: StepWork) -> Advice:
    """Return the advice, without compiling or 16 bits where the program uses them already."""
    compiled, is_half = step.trace.compiled, step.facts.half
    options = [] if compiled else ["fuse operations with model = torch.compile(model)"]
    options += [] if is_half else [f"use a smaller data type with {step.autocast}"]
    options += [] if compiled else ["in-place activations"]
    last = "or fewer and smaller activations" if options else "fewer and smaller activations"
    code = "model = torch.compile(model)" if not compiled else "" if is_half else step.autocast
    return Advice(f"Move fewer bytes: {', '.join([*options, last])}.", code)


MEMORY_BOUND = step_rule(
    "memory_bound",
    _memory_bound,
    Shares(0.0),
    f"""
Fires if memory-bound work takes at least {limit_percent(MIN_MEMORY_BOUND_SHARE)} of the device time, and the device is busy for
at least {limit_percent(MIN_BUSY_SHARE)} of the step. At most `low`: normalization, activations and the optimizer often take most
of a sound step.

With a roofline, a layer is memory-bound if its bytes need more time at the peak bandwidth than its arithmetic at the peak
FLOP/s. The finding gives the share of the bandwidth that these layers reach. The counted bytes are a lower bound, with each
operand moved once. Layers that reach less than {limit_percent(MIN_BANDWIDTH_SHARE)} wait for something else, and layers that
reach more than {MAX_BANDWIDTH_SHARE:g} times the bandwidth read from caches: neither counts. Nor do recurrent layers, which read
the same weights in every time step.

Without byte counts, as in a trace, kernels of families that hardly compute are memory-bound: pointwise operations,
normalization, pooling, reductions, softmax, copies, indexing, the optimizer. Copies between host and device use the bus, not the
memory bandwidth, and do not count. Findings that say why such work is slow (pointwise chains, copies, attention by hand) precede
this one.
""",
    topic="bound",
    states_share=False,
    keeps=0.5,  # fusing two operations halves their traffic, and so does a type of half the size
)
