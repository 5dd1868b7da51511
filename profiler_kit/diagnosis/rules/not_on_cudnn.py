"""Convolutions that run on PyTorch's own fallback although cuDNN is on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS, launch_idle_ns
from profiler_kit.diagnosis.phrases import join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork
from profiler_kit.records.claims import kernel_claims, module_claims
from profiler_kit.records.families import IM2COL, main_algorithm
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.units import percent, text

# cuDNN's own convolutions do not copy input patches. A twentieth of the device time is worth a look.
MAX_FALLBACK_SHARE: Final = 0.05
# A fifth of the step is more than most changes of a model save.
LARGE_SHARE: Final = 0.20
_FALLBACK_FAMILIES: Final = ("gemm", IM2COL)

# PyTorch's own operators in all versions: aten::_slow_conv2d_forward, thnn_conv2d, slow_conv_dilated2d ...
_FALLBACK_OPERATOR: Final = re.compile(r"\A(aten::)?_?(slow_conv|thnn_conv)")

DOC = f"""
Fires if PyTorch's own convolution takes more than {limit_percent(MAX_FALLBACK_SHARE)} of the device time. This fallback copies
input patches to a buffer (im2col, or vol2col in 3-d) and multiplies them. PyTorch uses it if cuDNN does not support a
convolution: some dilations, data types or versions. A report gets no finding if cuDNN is off in the baseline; a trace does not
show whether it is off.

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: below that.

Both the copies and the products count. The operators (`slow_conv2d`, `slow_conv_dilated2d`, `slow_conv_transpose2d` and their
backward operators) show the fallback, and in reports without operators the kernels of each layer.
"""


def _fallback(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    """Return PyTorch's own convolutions of a step on a device; None below the limit, or if cuDNN is off in the baseline."""
    run = report.baseline() if isinstance(report, Report) else None
    times, layers = _fallback_times(step), _fallback_layers(step)
    ns, share = sum(times.values()), step.share(sum(times.values()))
    if (
        not step.on_device
        or ns <= MAX_FALLBACK_SHARE * step.busy_ns
        or (run is not None and run.config.enabled is not True)
    ):
        return None
    kernels = step.select(lambda kernel: kernel.family.startswith(_FALLBACK_FAMILIES))
    # The fallback launches several kernels for each example, which often takes longer than they run.
    launch_ns, is_one = launch_idle_ns(step, kernels), len(times) == 1
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"cuDNN is not used: PyTorch's fallback convolution takes {percent(share)} of the {step.facts.whole}",
        sentences=(
            f"{join_list([layer_name(name) for name in times])} {'copies' if is_one else 'copy'} input patches to a buffer and "
            f"{'multiplies' if is_one else 'multiply'} them (im2col), for {text(ns, 'ns')} {step.per_step}.",
            f"The device waits about {text(launch_ns, 'ns')} for the launches of these kernels, several for each example."
            if launch_ns >= MAX_FALLBACK_SHARE * ns
            else "",
            _module_configs(report, layers),
        ),
        advice=_ADVICE if run is not None else f"{_CHECK_FLAG} {_ADVICE}",
        evidence=tuple(
            Evidence(name="time of the fallback", value=ns, unit="ns", where=name) for name, ns in times.items()
        ),
        paths=tuple(layers),
        weight=step.share(ns + launch_ns),
        claims=(*(module_claims(layers) or kernel_claims(kernel.name for kernel in kernels)), *LAUNCH_CLAIMS),
    )


_CHECK_FLAG: Final = "Check whether cuDNN is off (torch.backends.cudnn.enabled, or cudnn.flags() without enabled=True)."
_ADVICE: Final = (
    "Find the reason why cuDNN does not run: dilation, an unusual data type or stride, torch.backends.cudnn.enabled "
    "inside the model, or the cuDNN version. torch._C._select_conv_backend returns PyTorch's backend for given tensors."
)


def _fallback_times(step: StepWork) -> dict[str, int]:
    """Return the time of each operator of the fallback; in older reports, which have no operators, that of each layer."""
    operators = step.select(lambda item: _FALLBACK_OPERATOR.search(item.name) is not None, operators=True)
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


RULE = step_rule("not_on_cudnn", DOC, _fallback, states_share=False)
