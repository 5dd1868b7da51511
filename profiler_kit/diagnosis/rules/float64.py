"""Work in float64, which most networks do not need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, Work, total_ns, work_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# float32 halves the bytes of this work at least. A tenth of the step then saves a twentieth.
MIN_SHARE: Final = 0.10
LARGE_SHARE: Final = 1 / 3
BYTES_PER_VALUE: Final = 8
# Names of optimizer and random kernels contain "double" for scalar arguments.
_OTHER_FAMILIES: Final = ("optimizer", "random", "comm", "memcpy/memset")
_FLOAT64_KERNEL: Final = re.compile(r"dgemm|dcudnn|f(?<![a-z]f)64|<double")

DOC = f"""
Fires if work in float64 takes at least {limit_percent(MIN_SHARE)} of the step. `high` from a third of the step on, `medium`
below.

Networks are trained in 32 bits and less. float64 doubles the bytes, runs without the fast tensor cores, and on many devices has
1/32 of the float32 peak. It usually enters by accident: NumPy arrays, `torch.tensor` of a NumPy scalar, `.double()`, or
`torch.set_default_dtype`. On a device, the names of kernels show it; a trace with `record_shapes=True` in which no operator reads
float64 does not have it, whatever the names. On a CPU, the types of parameters and inputs of a report show it, and those of a
trace with `record_shapes=True`.
"""


def _float64(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    tensors = tuple(_float64_tensors(report)) if isinstance(report, Report) else ()
    kernels = _float64_work(work, are_parameters="the parameters" in tensors)
    ns = total_ns(kernels)
    share = work.share(ns)
    if share < MIN_SHARE:
        return None
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"Work in float64 takes {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"It takes {text(ns, 'ns')} of {work.clock_name} {work.per_step}.",
            f"In float64: {join_list(tensors)}." if tensors else "",
            "float32 moves half of the bytes, and can use tensor cores or wider vector instructions.",
        ),
        advice="Use float32: `{code}`, torch.from_numpy(array).float(). Look for .double(), dtype=torch.float64, NumPy "
        "scalars in arithmetic, and torch.set_default_dtype.",
        code="model = model.float(); inputs = inputs.float()",
        measures=(("time in float64", ns, "ns"),),
        claims=work_claims(work, kernels),
    )


def _float64_tensors(report: Report) -> Iterator[str]:
    static = report.static
    if static is not None and static.params and static.param_bytes >= BYTES_PER_VALUE * static.params:
        yield "the parameters"
    yield from (f"input {item.name}" for item in report.target.inputs if item.dtype in ("float64", "double"))


def _float64_work(work: StepWork, *, are_parameters: bool) -> tuple[Work, ...]:
    if work.on_device:
        kernels = work.select(lambda item: item.family not in _OTHER_FAMILIES and _is_float64_kernel(item))
        return () if work.facts.lacks("float64") else kernels
    if are_parameters:
        return work.select(lambda _: True)  # operators on a CPU do not show their type
    typed = work.select(lambda item: item.float64_ns > 0 and item.family not in _OTHER_FAMILIES)
    return tuple(replace(item, ns=item.float64_ns) for item in typed)


def _is_float64_kernel(kernel: Work) -> bool:
    return kernel.math == "f64" or bool(_FLOAT64_KERNEL.search(kernel.name))


# Float32 has half the bytes, and at least twice the peak.
RULE = step_rule("float64", DOC, _float64, keeps=0.5)
