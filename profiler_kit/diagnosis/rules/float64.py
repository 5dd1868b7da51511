"""Work in float64, which most networks do not need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_ns, work_claims, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Float64:
    """The kernels in float64 and their share of the step. `tensors`: the tensors of the target in float64."""

    kernels: tuple[Work, ...]
    share: float
    tensors: tuple[str, ...]


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of float64."""
    tensors = tuple(_float64_tensors(report)) if isinstance(report, Report) else ()
    if (
        worst := worst_step(step_works(report), lambda work: _float64(work, tensors), lambda match: match.share)
    ) is None:
        return
    work, match = worst.step, worst.match
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Work in float64 takes {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}It takes {text(total_ns(match.kernels), 'ns')} of {work.clock_name} {work.per_step}.",
            f"In float64: {join_list(match.tensors)}." if match.tensors else "",
            "float32 moves half of the bytes, and can use tensor cores or wider vector instructions.",
            worst.others_sentence(),
        ),
        advice="Use float32: `{code}`, torch.from_numpy(array).float(). Look for .double(), dtype=torch.float64, NumPy "
        "scalars in arithmetic, and torch.set_default_dtype.",
        code="model = model.float(); inputs = inputs.float()",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time in float64", value=total_ns(match.kernels), unit="ns", where=work.name),
        ),
        weight=match.share,
        claims=work_claims(work, match.kernels),
    )


def _float64_tensors(report: Report) -> Iterator[str]:
    static = report.static
    if static is not None and static.params and static.param_bytes >= BYTES_PER_VALUE * static.params:
        yield "the parameters"
    yield from (f"input {item.name}" for item in report.target.inputs if item.dtype in ("float64", "double"))


def _float64(work: StepWork, tensors: tuple[str, ...]) -> _Float64 | None:
    if work.on_device:
        kernels = work.select(lambda item: item.family not in _OTHER_FAMILIES and _is_float64_kernel(item))
        kernels = () if work.facts.lacks("float64") else kernels
    elif "the parameters" in tensors:
        kernels = work.select(lambda _: True)  # operators on a CPU do not show their type
    else:
        typed = work.select(lambda item: item.float64_ns > 0 and item.family not in _OTHER_FAMILIES)
        kernels = tuple(replace(item, ns=item.float64_ns) for item in typed)
    share = work.share(total_ns(kernels))
    return _Float64(kernels=kernels, share=share, tensors=tensors) if share >= MIN_SHARE else None


def _is_float64_kernel(kernel: Work) -> bool:
    return kernel.math == "f64" or bool(_FLOAT64_KERNEL.search(kernel.name))


# Float32 has half the bytes, and at least twice the peak.
KEEPS: Final = 0.5

RULE = Rule("float64", DOC, check, "cause", "both", keeps=KEEPS)
