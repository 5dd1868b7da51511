"""Convolutions that run on PyTorch's own fallback although cuDNN is on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS
from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import busy_share, launch_idle_ns, module_claims, names_claims, trace_work
from profiler_kit.diagnosis.trace_facts import on_device, step_share, worst_trace
from profiler_kit.records.families import IM2COL, main_algorithm
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceOperator, TraceSummary
from profiler_kit.units import percent, text

# cuDNN's own convolutions do not copy input patches. A twentieth of the device time is worth a look.
MAX_FALLBACK_SHARE: Final = 0.05
# A fifth of the step is more than most changes of a model save.
LARGE_SHARE: Final = 0.20
_FALLBACK_FAMILIES: Final = ("gemm", IM2COL)

# PyTorch's own operators in all versions: aten::_slow_conv2d_forward, thnn_conv2d, slow_conv_dilated2d ...
_FALLBACK_OPERATOR: Final = re.compile(r"\A(aten::)?_?(slow_conv|thnn_conv)")

DOC = f"""
Fires if cuDNN is on in the baseline, and PyTorch's own convolution takes more than {limit_percent(MAX_FALLBACK_SHARE)} of the
device time. This fallback copies input patches to a buffer (im2col, or vol2col in 3-d) and multiplies them. PyTorch uses it if
cuDNN does not support a convolution: some dilations, data types or versions.

- `high`: at least {limit_percent(LARGE_SHARE)} of the device time.
- `medium`: below that.

Both the copies and the products count.

In a trace, the same limits hold for the kernels of PyTorch's convolution operators (`slow_conv2d`, `slow_conv_dilated2d`,
`slow_conv_transpose2d` and their backward operators), but `high` needs the share of the span. A trace does not show whether
cuDNN is off.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns or run.config.enabled is not True:
        return
    times: Counter[str] = Counter()
    for item in run.modules:
        used = main_algorithm(item.kernels)
        if used is not None and used.family == IM2COL:
            times[item.path] += sum(k.kernel_ns for k in item.kernels if k.family.startswith(_FALLBACK_FAMILIES))
    fallback_ns = times.total()
    share = fallback_ns / run.device_ns
    if share <= MAX_FALLBACK_SHARE:
        return
    paths = tuple(path for path, _ in times.most_common())
    yield RULE.finding(
        severity="high" if share >= LARGE_SHARE else "medium",
        title=f"cuDNN is not used: PyTorch's fallback convolution takes {percent(share)} of the device time",
        explanation=join_sentences(
            f"cuDNN is on in {quoted_name(run)}, but {join_list([layer_name(path) for path in paths])} "
            f"{'copies its' if len(paths) == 1 else 'copy their'} input patches to a buffer and "
            f"{'multiplies' if len(paths) == 1 else 'multiply'} them (im2col), for {text(fallback_ns, 'ns')} per step.",
            _module_configs(report, paths),
        ),
        advice="Find the reason why cuDNN does not run: dilation, an unusual data type or stride, torch.backends.cudnn.enabled "
        "inside the model, or the cuDNN version. torch._C._select_conv_backend returns PyTorch's backend for given tensors.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=run.config.name),
            *(
                Evidence(name="time of the fallback", value=times[p], unit="ns", where=f"{p}, {run.config.name}")
                for p in paths
            ),
        ),
        paths=paths,
        weight=share * busy_share(report),
        claims=module_claims(paths),
    )


def _module_configs(report: Report, paths: tuple[str, ...]) -> str:
    """Return a sentence with class and arguments of the layers, which show the dilation."""
    nodes = report.static.modules if report.static is not None else ()
    configs = [f"{layer_name(n.path)} is {n.class_name}({n.config})" for n in nodes if n.path in paths and n.config]
    return f"{join_list(configs)}." if configs else ""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest share of fallback convolutions."""
    if (worst := worst_trace(report, _fallback_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    operators = sorted(_fallback_operators(trace), key=lambda operator: -operator.kernel_ns)
    fallback_ns = sum(operator.kernel_ns for operator in operators)
    share_of_step = step_share(trace, fallback_ns)
    work = trace_work(trace, "")
    kernels = work.select(lambda kernel: kernel.family.startswith(_FALLBACK_FAMILIES))
    # The fallback launches several kernels for each example, which often takes longer than they run.
    launch_ns = launch_idle_ns(work, kernels)
    weight = step_share(trace, fallback_ns + launch_ns)
    names = join_list([operator.name for operator in operators])
    yield RULE.finding(
        severity="high" if share_of_step >= LARGE_SHARE else "medium",
        title=f"cuDNN is not used: PyTorch's fallback convolution takes {percent(share)} of the device time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}{names} {'copies' if len(operators) == 1 else 'copy'} input patches to a buffer and "
            f"{'multiplies' if len(operators) == 1 else 'multiply'} them, for {text(fallback_ns, 'ns')} in total.",
            f"The device waits about {text(launch_ns, 'ns')} for the launches of these kernels, several for each example."
            if launch_ns >= MAX_FALLBACK_SHARE * fallback_ns
            else "",
            worst.others_sentence(),
        ),
        advice="Check whether cuDNN is off (torch.backends.cudnn.enabled, or cudnn.flags() without enabled=True). If it is on, "
        "find the reason why it does not run: dilation, an unusual data type or stride, or the cuDNN version.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=worst.where),
            *(Evidence(name="device time", value=item.kernel_ns, unit="ns", where=item.name) for item in operators),
        ),
        weight=weight,
        claims=(*names_claims(kernel.name for kernel in kernels), *LAUNCH_CLAIMS),
    )


def _fallback_operators(trace: TraceSummary) -> list[TraceOperator]:
    return [operator for operator in trace.operators if operator.kernel_ns and _FALLBACK_OPERATOR.search(operator.name)]


def _fallback_share(trace: TraceSummary) -> float | None:
    if not on_device(trace):
        return None
    share = sum(operator.kernel_ns for operator in _fallback_operators(trace)) / trace.busy_ns
    return share if share > MAX_FALLBACK_SHARE else None


RULE = Rule(
    "not_on_cudnn",
    DOC,
    check,
    "cause",
    check_trace,
    states_share=False,
)
