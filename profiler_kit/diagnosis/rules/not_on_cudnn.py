"""Convolutions that run on PyTorch's own fallback although cuDNN is on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS, launch_idle_ns
from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, module_claims, names_claims, step_works, worst_step
from profiler_kit.records.families import IM2COL, main_algorithm
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


class _Fallback(NamedTuple):
    """The time of fallback convolutions, by operator or by layer, and the layers."""

    times: dict[str, int]
    paths: tuple[str, ...]

    @property
    def ns(self) -> int:
        """The time of all of them."""
        return sum(self.times.values())


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the trace with the longest fallback convolutions."""
    run = report.baseline() if isinstance(report, Report) else None
    if run is not None and run.config.enabled is not True:
        return
    if (worst := worst_step(step_works(report), _fallback, lambda fallback: fallback.ns)) is None:
        return
    step, fallback = worst.step, worst.match
    share = fallback.ns / step.busy_ns
    kernels = step.select(lambda kernel: kernel.family.startswith(_FALLBACK_FAMILIES))
    # The fallback launches several kernels for each example, which often takes longer than they run.
    launch_ns = launch_idle_ns(step, kernels)
    is_one = len(fallback.times) == 1
    yield RULE.finding(
        severity="high" if step.share(fallback.ns) >= LARGE_SHARE else "medium",
        title=f"cuDNN is not used: PyTorch's fallback convolution takes {percent(share)} of the device time",
        explanation=join_sentences(
            f"{step.prefix}{join_list([layer_name(name) for name in fallback.times])} "
            f"{'copies' if is_one else 'copy'} input patches to a buffer and {'multiplies' if is_one else 'multiply'} them "
            f"(im2col), for {text(fallback.ns, 'ns')} {step.per_step}.",
            f"The device waits about {text(launch_ns, 'ns')} for the launches of these kernels, several for each example."
            if launch_ns >= MAX_FALLBACK_SHARE * fallback.ns
            else "",
            _module_configs(report, fallback.paths),
            worst.others_sentence(),
        ),
        advice=_ADVICE if run is not None else f"{_CHECK_FLAG} {_ADVICE}",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=step.name),
            *(
                Evidence(name="time of the fallback", value=ns, unit="ns", where=name)
                for name, ns in fallback.times.items()
            ),
        ),
        paths=fallback.paths,
        weight=step.share(fallback.ns + launch_ns),
        claims=(
            *(module_claims(fallback.paths) or names_claims(kernel.name for kernel in kernels)),
            *LAUNCH_CLAIMS,
        ),
    )


_CHECK_FLAG: Final = "Check whether cuDNN is off (torch.backends.cudnn.enabled, or cudnn.flags() without enabled=True)."
_ADVICE: Final = (
    "If it is on, find the reason why it does not run: dilation, an unusual data type or stride, torch.backends.cudnn.enabled "
    "inside the model, or the cuDNN version. torch._C._select_conv_backend returns PyTorch's backend for given tensors."
)


def _fallback(step: StepWork) -> _Fallback | None:
    """Return PyTorch's own convolutions of a step on a device; None below the limit."""
    if not step.on_device:
        return None
    layers: Counter[str] = Counter()
    for module in step.trace.modules:
        used = main_algorithm(module.kernels)
        if used is not None and used.family == IM2COL and (module.path or step.is_measured):
            kernels = [kernel for kernel in module.kernels if kernel.family.startswith(_FALLBACK_FAMILIES)]
            layers[module.path] += sum(kernel.kernel_ns for kernel in kernels)
    operators = step.select(lambda item: _FALLBACK_OPERATOR.search(item.name) is not None, operators=True)
    times = {operator.name: operator.ns for operator in operators}
    if not times and step.is_measured:  # older reports have no operators
        times = dict(layers.most_common())
    fallback = _Fallback(times, tuple(path for path, _ in layers.most_common()) if times else ())
    return fallback if fallback.ns > MAX_FALLBACK_SHARE * step.busy_ns else None


def _module_configs(report: Report | TraceReport, paths: tuple[str, ...]) -> str:
    """Return a sentence with class and arguments of the layers, which show the dilation."""
    nodes = report.static.modules if isinstance(report, Report) and report.static is not None else ()
    configs = [f"{layer_name(n.path)} is {n.class_name}({n.config})" for n in nodes if n.path in paths and n.config]
    return f"{join_list(configs)}." if configs else ""


RULE = Rule("not_on_cudnn", DOC, check, "cause", "both", states_share=False)
