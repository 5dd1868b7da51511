"""Work in float64, which most networks do not need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, total_ns, work_claims, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# float32 halves the bytes of this work at least. A tenth of the step then saves a twentieth.
MIN_SHARE: Final = 0.10
LARGE_SHARE: Final = 1 / 3
BYTES_PER_VALUE: Final = 8
# PyTorch computes small convolutions without oneDNN in any type.
MIN_FALLBACK_CALL_NS: Final = 500_000
# Some shapes never use oneDNN. A network in float64 does not use it at all.
MIN_FALLBACK_SHARE: Final = 0.90
_FALLBACK_OPERATOR: Final = re.compile(r"\Aaten::_?slow_conv")
# Names of optimizer and random kernels contain "double" for scalar arguments.
_OTHER_FAMILIES: Final = ("optimizer", "random", "comm", "memcpy/memset")
_FLOAT64_KERNEL: Final = re.compile(r"dgemm|dcudnn|f(?<![a-z]f)64|<double")

DOC = f"""
Fires if work in float64 takes at least {limit_percent(MIN_SHARE)} of the step. `high` from a third of the step on, `medium`
below.

Networks are trained in 32 bits and less. float64 doubles the bytes, runs without the fast tensor cores, and on many devices has
1/32 of the float32 peak. It usually enters by accident: NumPy arrays, `torch.tensor` of a NumPy scalar, `.double()`, or
`torch.set_default_dtype`. On a device, the names of kernels show it. On a CPU, the types of parameters and inputs of a report
do, and those of a trace with `record_shapes=True`. Without types, convolutions that do not use oneDNN show it (`_slow_conv2d`,
at least {MIN_FALLBACK_CALL_NS // 1000} us per call and {limit_percent(MIN_FALLBACK_SHARE)} of the time of all convolutions),
because oneDNN computes in 32 and 16 bits only. It may also be switched off, so this is at most `medium`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Float64:
    """The kernels in float64 and their share of the step. `tensors`: the tensors of the target in float64."""

    kernels: tuple[Work, ...]
    share: float
    tensors: tuple[str, ...]

    @property
    def is_certain(self) -> bool:
        """Whether a type shows float64, and not only a convolution without oneDNN."""
        return self.tensors != () or not any(
            _FALLBACK_OPERATOR.search(item.name) and not item.float64_ns for item in self.kernels
        )


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of float64."""
    tensors = tuple(_float64_tensors(report)) if isinstance(report, Report) else ()
    if (worst := worst_step(report, lambda work: _float64(work, tensors), lambda match: match.share)) is None:
        return
    work, match = worst.work, worst.match
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE and match.is_certain else "medium",
        title=f"{_WORK if match.is_certain else _FALLBACK} takes {percent(match.share)} of the step",
        explanation=join_sentences(
            f"{work.sentence_prefix}It takes {text(total_ns(match.kernels), 'ns')} of {work.clock_name} {work.per_step}.",
            f"In float64: {join_list(match.tensors)}." if match.tensors else "",
            "float32 moves half of the bytes, and can use tensor cores or wider vector instructions."
            if match.is_certain
            else f"{match.kernels[0].name} is PyTorch's fallback. oneDNN, which is faster, computes in 32 and 16 bits only.",
            worst.others_sentence(),
        ),
        advice="Use float32: `model = model.float(); inputs = inputs.float()`, torch.from_numpy(array).float(). "
        "Look for .double(), dtype=torch.float64, NumPy scalars in arithmetic, and torch.set_default_dtype."
        + ("" if match.is_certain else " If nothing is in float64, check torch.backends.mkldnn.is_available()."),
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.source),
            Evidence(name="time in float64", value=total_ns(match.kernels), unit="ns", where=work.source),
        ),
        weight=match.share,
        claims=work_claims(work, match.kernels),
    )


_WORK: Final = "Work in float64"
_FALLBACK: Final = "Convolution in float64, or without oneDNN,"


def _float64_tensors(report: Report) -> Iterator[str]:
    static = report.static
    if static is not None and static.params and static.param_bytes >= BYTES_PER_VALUE * static.params:
        yield "the parameters"
    yield from (f"input {item.name}" for item in report.target.inputs if item.dtype in ("float64", "double"))


def _float64(work: StepWork, tensors: tuple[str, ...]) -> _Float64 | None:
    if work.clock == "device":
        kernels = work.select(
            lambda item: (
                item.family not in _OTHER_FAMILIES and (item.math == "f64" or bool(_FLOAT64_KERNEL.search(item.name)))
            )
        )
    elif "the parameters" in tensors:
        kernels = work.select(lambda _: True)  # operators on a CPU do not show their type
    else:
        typed = work.select(lambda item: item.float64_ns > 0 and item.family not in _OTHER_FAMILIES)
        kernels = tuple(replace(item, ns=item.float64_ns) for item in typed) or _without_onednn(work)
    share = work.share(total_ns(kernels))
    return _Float64(kernels=kernels, share=share, tensors=tensors) if share >= MIN_SHARE else None


def _without_onednn(work: StepWork) -> tuple[Work, ...]:
    """Return the operators of large convolutions without oneDNN; empty where others use it, as some shapes never do."""
    convolutions = work.select(lambda item: item.family == "conv")
    kernels = tuple(
        item
        for item in convolutions
        if _FALLBACK_OPERATOR.search(item.name) and item.ns >= MIN_FALLBACK_CALL_NS * item.calls
    )
    return kernels if total_ns(kernels) >= MIN_FALLBACK_SHARE * total_ns(convolutions) else ()


RULE = Rule(
    "float64",
    DOC,
    check,
    "cause",
    check,
    symptoms=("no_tensor_cores", "memory_bound", "dominant_layer", "half_precision"),
)
