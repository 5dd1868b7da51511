"""Convolutions that run as PyTorch's own fallback although cuDNN is on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.traced import gravest, on_device
from profiler_kit.diagnosis.words import layer, listing, quoted, sentences, threshold
from profiler_kit.records.families import IM2COL, algorithm
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceOperator, TraceSummary
from profiler_kit.units import percent, text

# A twentieth of the device time is worth a look; cuDNN's own convolutions never write patches out.
SHARE: Final = 0.05
# A fifth of the step is more than most changes to a model bring.
LARGE: Final = 0.20
_PRODUCTS: Final = ("gemm", IM2COL)

# PyTorch's own operators, by their names of all versions: aten::_slow_conv2d_forward, thnn_conv2d, slow_conv_dilated2d ...
_OWN_CONVOLUTION: Final = re.compile(r"\A(aten::)?_?(slow_conv|thnn_conv)")

DOC = f"""
cuDNN is on in the baseline, and layers that write their input patches out (im2col, or vol2col in 3-d) and multiply them take more
than {threshold(SHARE)} of the device time: PyTorch took its own convolution, as it does for what cuDNN does not offer (some
dilated ones, a data type, a version). `high` from {threshold(LARGE)}, else `medium`. Both kernels count, copy and product.

In a trace it is the time of what PyTorch's own operators for convolutions launch (`slow_conv2d`, `slow_conv_dilated2d`,
`slow_conv_transpose2d` and their backward ones), by the same limits. Whether cuDNN was switched off, a trace does not say.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns or run.config.enabled is not True:
        return
    times: Counter[str] = Counter()
    for item in run.modules:
        used = algorithm(item.kernels)
        if used is not None and used.family == IM2COL:
            times[item.path] += sum(k.kernel_ns for k in item.kernels if k.family.startswith(_PRODUCTS))
    spent = times.total()
    share = spent / run.device_ns
    if share <= SHARE:
        return
    paths = tuple(path for path, _ in times.most_common())
    yield RULE.finding(
        severity="high" if share >= LARGE else "medium",
        title=f"Not on cuDNN: PyTorch's own convolution takes {percent(share)} of the device time",
        explanation=sentences(
            f"In {quoted(run)} cuDNN is on, and yet {listing([layer(path) for path in paths])} "
            f"{'writes its' if len(paths) == 1 else 'write their'} input patches out "
            f"and {'multiplies' if len(paths) == 1 else 'multiply'} them (im2col), {text(spent, 'ns')} a step.",
            _configs(report, paths),
        ),
        advice="Find out what keeps cuDNN away: dilation, an unusual data type or stride, torch.backends.cudnn.enabled inside "
        "the model, or a cuDNN version. torch._C._select_conv_backend names the backend that PyTorch takes for given tensors.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=run.config.name),
            *(
                Evidence(name="fallback's time", value=times[p], unit="ns", where=f"{p}, {run.config.name}")
                for p in paths
            ),
        ),
        paths=paths,
        weight=share,
    )


def _configs(report: Report, paths: tuple[str, ...]) -> str:
    """What the layers are, so that a reader sees the dilation."""
    nodes = report.static.modules if report.static is not None else ()
    configs = [f"{layer(n.path)} is {n.class_name}({n.config})" for n in nodes if n.path in paths and n.config]
    return f"{listing(configs)}." if configs else ""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace whose own convolutions take the largest share."""
    if (seen := gravest(report, _own_share, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    found = sorted(_own_operators(trace), key=lambda one: -one.kernel_ns)
    spent = sum(one.kernel_ns for one in found)
    yield RULE.finding(
        severity="high" if share >= LARGE else "medium",
        title=f"Not on cuDNN: PyTorch's own convolution takes {percent(share)} of the device time",
        explanation=sentences(
            f"{seen.place}{listing([one.name for one in found])} {'writes' if len(found) == 1 else 'write'} input patches "
            f"out and {'multiplies' if len(found) == 1 else 'multiply'} them, {text(spent, 'ns')} in all.",
            seen.others(),
        ),
        advice="Is cuDNN off (torch.backends.cudnn.enabled, or cudnn.flags() without enabled=True)? If not, find out what keeps "
        "it away: dilation, an unusual data type or stride, or a cuDNN version.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=seen.where),
            *(Evidence(name="time", value=one.kernel_ns, unit="ns", where=one.name) for one in found),
        ),
        weight=share,
    )


def _own_operators(trace: TraceSummary) -> list[TraceOperator]:
    return [one for one in trace.operators if one.kernel_ns and _OWN_CONVOLUTION.search(one.name)]


def _own_share(trace: TraceSummary) -> float | None:
    share = sum(one.kernel_ns for one in _own_operators(trace)) / trace.busy_ns if on_device(trace) else 0.0
    return share if share > SHARE else None


RULE = Rule("not_on_cudnn", DOC, check, "cause", check_trace)
