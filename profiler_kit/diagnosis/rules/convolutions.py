"""Convolutions that are slow by their sizes, or that run on a fallback."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import is_float32, trials_of
from profiler_kit.diagnosis.convolution import convolution_of
from profiler_kit.diagnosis.facts import counts_of
from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS, launch_idle_ns
from profiler_kit.diagnosis.phrases import advise, join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import is_product
from profiler_kit.records.claims import kernel_claims, module_claims
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.families import IM2COL, main_algorithm
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.units import text

_CONVOLUTIONS = ("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedConvolution:
    """One convolution layer (in a trace: all with the same shapes) and its time, backward included.

    `path`: its module; empty in a trace.
    """

    path: str
    channels_in: int
    channels_out: int
    groups: int
    kernel: tuple[int, ...]
    ns: int

    @property
    def is_depthwise(self) -> bool:
        """Whether each group has one input channel, so that channels do not mix."""
        return self.groups > 1 and self.groups == self.channels_in


def _timed_convolutions(work: StepWork, static: StaticCount | None) -> tuple[_TimedConvolution, ...]:
    """Return the convolutions of `work` with their times, longest first."""
    timed = list(_by_modules(work, static)) if static is not None else list(_by_shapes(work))
    return tuple(sorted(timed, key=lambda item: -item.ns))


def _by_modules(work: StepWork, static: StaticCount) -> Iterator[_TimedConvolution]:
    for node in static.modules:
        layer = convolution_of(node)
        if layer is not None and (ns := work.module_ns.get(node.path, 0)):
            yield _TimedConvolution(
                path=node.path,
                channels_in=layer.channels_in,
                channels_out=layer.channels_out,
                groups=layer.groups,
                kernel=layer.kernel,
                ns=ns,
            )


def _by_shapes(work: StepWork) -> Iterator[_TimedConvolution]:
    for operator in work.trace.shapes:
        if operator.name not in _CONVOLUTIONS or len(operator.shapes) < 2:
            continue
        data, weight = operator.shapes[:2]
        if len(data) == len(weight) >= 3 and weight[1] and data[1] % weight[1] == 0:
            yield _TimedConvolution(
                path="",
                channels_in=data[1],
                channels_out=weight[0],
                groups=data[1] // weight[1],
                kernel=weight[2:],
                ns=operator.kernel_ns,
            )


def _depthwise(report: Report | TraceReport, work: StepWork) -> StepPart:
    layers = [layer for layer in _timed_convolutions(work, counts_of(report)) if layer.is_depthwise]
    kernels = work.select(lambda item: item.family == "conv:depthwise")
    ns, paths, claims = total_ns(kernels), tuple[str, ...](), work_claims(work, kernels)
    if (layers_ns := sum(layer.ns for layer in layers)) >= ns:
        paths = tuple(layer.path for layer in layers if layer.path)
        ns, claims = layers_ns, module_claims(paths) or work_claims(work, work.select(is_product))
    return StepPart(
        ns=ns,
        what="Depthwise convolutions take",
        sentences=(
            f"They take {text(ns, 'ns')} of {work.clock_name} {work.per_step}"
            f"{f' in {join_list([layer_name(path) for path in paths])}' if paths else ''}.",
            "Each value is multiplied by one small filter, so memory bandwidth limits them, and tensor cores cannot be used.",
        ),
        advice="Use channels last, {code} and the same for the inputs"
        f"{'' if work.facts.half else f', and 16 bits, {work.autocast}'}. Dense convolutions with fewer channels, or "
        "groups of 16 channels and more, use the device better. This changes the model.",
        code="model.to(memory_format=torch.channels_last)",
        measures=(("time of depthwise convolutions", ns, "ns"),),
        paths=paths,
        trials=trials_of(report, "channels_last", "amp_bf16"),
        claims=claims,
    )


DEPTHWISE = step_rule(
    "depthwise",
    _depthwise,
    Shares(0.25, high=0.50),  # for layers that do few percent of the operations
    """
Fires on depthwise convolutions (one input channel per group).

A depthwise convolution multiplies each value by one small filter: it needs few operations, and as many bytes as a dense
one. Tensor cores cannot be used, so it is slow for its operations. The counts show the groups of a layer; in a trace, the shapes
of its operators or the names of its kernels do.
""",
    keeps=0.5,  # channels_last kernels of depthwise convolutions take about half of the time
)


# A shorter wait for launches is not mentioned.
MIN_WAIT_PART: Final = 0.05
_FALLBACK_FAMILIES: Final = ("gemm", IM2COL)

# PyTorch's own operators in all versions: aten::_slow_conv2d_forward, thnn_conv2d, slow_conv_dilated2d ...
_CUDNN_FALLBACK: Final = re.compile(r"\A(aten::)?_?(slow_conv|thnn_conv)")


def _cudnn_fallback(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    """Return PyTorch's own convolutions of a step on a device; None if cuDNN is off in the baseline."""
    run = report.baseline() if isinstance(report, Report) else None
    times, layers = _fallback_times(step), _fallback_layers(step)
    ns = sum(times.values())
    if not step.on_device or (run is not None and run.config.enabled is not True):
        return None
    kernels = step.select(lambda kernel: kernel.family.startswith(_FALLBACK_FAMILIES))
    # The fallback launches several kernels for each example, which often takes longer than they run.
    launch_ns, is_one = launch_idle_ns(step, kernels), len(times) == 1
    return StepPart(
        ns=ns,
        what="cuDNN is not used: PyTorch's fallback convolution takes",
        sentences=(
            f"{join_list([layer_name(name) for name in times])} {'copies' if is_one else 'copy'} input patches to a buffer and "
            f"{'multiplies' if is_one else 'multiply'} them (im2col), for {text(ns, 'ns')} {step.per_step}.",
            f"The device waits about {text(launch_ns, 'ns')} for the launches of these kernels, several for each example."
            if launch_ns >= MIN_WAIT_PART * ns
            else "",
            _module_configs(report, layers),
        ),
        advice=_FALLBACK_ADVICE if run is not None else f"{_CHECK_FLAG} {_FALLBACK_ADVICE}",
        evidence=tuple(
            Evidence(name="time of the fallback", value=ns, unit="ns", where=name) for name, ns in times.items()
        ),
        paths=tuple(layers),
        weight=step.share(ns + launch_ns),
        claims=(*(module_claims(layers) or kernel_claims(kernel.name for kernel in kernels)), *LAUNCH_CLAIMS),
    )


_CHECK_FLAG: Final = "Check whether cuDNN is off (torch.backends.cudnn.enabled, or cudnn.flags() without enabled=True)."
_FALLBACK_ADVICE: Final = (
    "Find the reason why cuDNN does not run: dilation, an unusual data type or stride, torch.backends.cudnn.enabled "
    "inside the model, or the cuDNN version. torch._C._select_conv_backend returns PyTorch's backend for given tensors."
)


def _fallback_times(step: StepWork) -> dict[str, int]:
    """Return the time of each operator of the fallback; in older reports, which have no operators, that of each layer."""
    operators = step.select(lambda item: _CUDNN_FALLBACK.search(item.name) is not None, operators=True)
    times = {operator.name: operator.ns for operator in operators}
    return times or (_fallback_layers(step) if step.is_measured else {})


def _fallback_layers(step: StepWork) -> dict[str, int]:
    """Return the time of each layer whose main algorithm is the fallback, longest first."""
    times: Counter[str] = Counter()
    for module in step.trace.modules:
        used = main_algorithm(module.kernels)
        if used is not None and used.family == IM2COL and (module.path or step.is_measured):
            kernels = [kernel for kernel in module.kernels if kernel.family.startswith(_FALLBACK_FAMILIES)]
            times[module.path] += sum(kernel.kernel_ns for kernel in kernels)
    return dict(times.most_common())


def _module_configs(report: Report | TraceReport, paths: Collection[str]) -> str:
    """Return a sentence with class and arguments of the layers, which show the dilation."""
    nodes = report.static.modules if isinstance(report, Report) and report.static is not None else ()
    configs = [f"{layer_name(n.path)} is {n.class_name}({n.config})" for n in nodes if n.path in paths and n.config]
    return f"{join_list(configs)}." if configs else ""


NOT_ON_CUDNN = step_rule(
    "not_on_cudnn",
    _cudnn_fallback,
    Shares(0.05, high=0.20),  # cuDNN's own convolutions do not copy input patches
    """
Fires on PyTorch's own convolution on a device. This fallback copies input patches to a buffer (im2col, or vol2col in 3-d) and
multiplies them. PyTorch uses it if cuDNN does not support a convolution: some dilations, data types or versions. A report gets no
finding if cuDNN is off in the baseline; a trace does not show whether it is off.

Both the copies and the products count. The operators (`slow_conv2d`, `slow_conv_dilated2d`, `slow_conv_transpose2d` and their
backward operators) show the fallback, and in reports without operators the kernels of each layer.
""",
    states_share=False,
)

# PyTorch computes small convolutions without oneDNN in any type.
MIN_CALL_NS: Final = 500_000
# Some shapes never use oneDNN. A network whose type it does not support does not use it at all.
MIN_CONVOLUTION_SHARE: Final = 0.90
_ONEDNN_FALLBACK: Final = re.compile(r"\Aaten::_?slow_conv")
_HALF: Final = ("bfloat16", "float16")


def _onednn_fallback(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    if work.on_device or (isinstance(report, Report) and is_float32(report)):
        return None
    convolutions = work.select(lambda item: item.family == "conv")
    kernels = tuple(
        item for item in convolutions if _ONEDNN_FALLBACK.search(item.name) and item.ns >= MIN_CALL_NS * item.calls
    )
    ns = total_ns(kernels)
    dtype = next((dtype for item in kernels for dtype in item.dtypes), _target_dtype(report))
    if not kernels or ns < MIN_CONVOLUTION_SHARE * total_ns(convolutions) or dtype not in ("", *_HALF):
        return None
    return StepPart(
        ns=ns,
        what=f"Convolution{f' in {dtype}' if dtype else ''} without oneDNN takes",
        sentences=(
            f"{kernels[0].name} takes {text(ns, 'ns')} {work.per_step}. It is PyTorch's own kernel.",
            f"oneDNN, which is faster, convolves in {dtype} on CPUs with instructions for it only."
            if dtype
            else "oneDNN, which is faster, does not compute in float64, and it may be switched off. The types are not recorded.",
        ),
        advice=advise(
            f"Convolve in float32 on this CPU: without autocast, and `{{code}}` for a model in {dtype}.",
            "model = model.float()",
        )
        if dtype
        else advise(
            "Record the types: `{code}`. In float32, check that torch.backends.mkldnn.enabled is True.",
            "torch.profiler.profile(record_shapes=True)",
        ),
        measures=(("time without oneDNN", ns, "ns"),),
        claims=work_claims(work, kernels),
    )


def _target_dtype(report: Report | TraceReport) -> str:
    if isinstance(report, TraceReport):
        return ""
    target = report.target
    inputs = (item.dtype for item in target.inputs if item.dtype not in ("float32", "float") and "float" in item.dtype)
    return target.amp or target.dtype or next(inputs, "float32")


NOT_ON_ONEDNN = step_rule(
    "not_on_onednn",
    _onednn_fallback,
    Shares(0.10),
    f"""
Fires on a CPU for convolutions without oneDNN (`_slow_conv2d`) that take at least {MIN_CALL_NS // 1000} us per call, and
{limit_percent(MIN_CONVOLUTION_SHARE)} of the time of all convolutions.

- In 16 bits, oneDNN convolves on CPUs with instructions for it only; elsewhere PyTorch's own kernel runs, which is slower than
  oneDNN in float32.
- In a trace without types (`record_shapes=True` records them), the convolutions may be in float64, which oneDNN does not compute,
  or oneDNN may be switched off.

In float64, rule `float64` covers them. In float32, PyTorch chooses its own kernel where it is faster: 1x1 filters with fewer than
16 examples on one thread, and small single images. No finding is made.
""",
)
