"""Matrix products on tensor cores whose rows do not start at multiples of 16 bytes."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, Work, total_ns, work_claims
from profiler_kit.records.families import math_name
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.units import percent, text

# A slow product of a tenth of the step saves a twentieth of it if it becomes twice as fast.
MIN_SHARE: Final = 0.10
HIGH_SHARE: Final = 1 / 3
# cuBLAS and CUTLASS load 16 bytes at once into tensor cores.
# Source: NVIDIA, Matrix Multiplication Background User's Guide, "Requirements to use Tensor Cores".
LOAD_BYTES: Final = 16
_BYTES: Final = {"f16": 2, "bf16": 2, "tf32": 4}
# CUTLASS names the number of values to which addresses and rows are aligned: cutlass_75_tensorop_bf16_..._tn_align1.
_ALIGNMENT: Final = re.compile(r"tensorop\w*_align(\d+)")

DOC = f"""
Fires if tensor-core kernels for unaligned rows take at least {limit_percent(MIN_SHARE)} of the step. `high` from
{limit_percent(HIGH_SHARE)} on, `medium` below.

Tensor cores load {LOAD_BYTES} bytes at once: 8 values of 16 bits, or 4 of TF32. If a size of a product is odd, its rows start at
other addresses, and the library falls back to kernels that load one or two values at a time. They are several times slower,
although the padding is below a percent. The names of CUTLASS kernels show the alignment (`align1`). The rule reads reports and
traces.
"""


def _unaligned(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    kernels = work.select(_is_unaligned)
    share = work.share(total_ns(kernels))
    if share < MIN_SHARE:
        return None
    kinds = sorted({kernel.math for kernel in kernels if kernel.math})
    multiple = LOAD_BYTES // min(_BYTES[math] for math in kinds)
    return StepPart(
        share=share,
        severity=severity_of(share, high=HIGH_SHARE),
        title=f"Matrix products with odd sizes take {percent(share)} of the {work.facts.whole}",
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


RULE = step_rule("unaligned_products", DOC, _unaligned)
