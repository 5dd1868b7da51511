"""What bfloat16 autocast would save on products that run in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import attempt, is_float32, outcome
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import is_product, kernels, ratio
from profiler_kit.diagnosis.words import quoted, sentences, threshold, times
from profiler_kit.records.families import FEWER_OPERATIONS
from profiler_kit.records.report import Evidence, Finding, Report, Trial
from profiler_kit.records.runs import KernelStat
from profiler_kit.statistics.noise import WORTH
from profiler_kit.units import percent, text

# Below a fifth of the step, twice the speed of its products saves less than a tenth of it.
SHARE: Final = 0.20

DOC = f"""
Convolutions and matrix products of TF32 arithmetic take at least {threshold(SHARE)} of the baseline's step, and the
device's ceiling in bfloat16 is higher: what the step would save if these kernels sped up as the ceilings do, **computed,
not measured** (`low`; `info` where it is less than {threshold(WORTH)}, or where the trial found no gain). Autocast adds
conversions, and halves the bytes of what it converts, so the trial may come out on either side.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    line = report.roofline_of(run) if run is not None else None
    if run is None or line is None or run.step_ns is None or run.clock != "kernel" or not is_float32(report):
        return
    spent = sum(kernel.kernel_ns for kernel in kernels(run) if _is_tf32(kernel))
    share = ratio(spent, run.step_ns.median)
    factor = ratio(line.roof.peak("bf16"), line.roof.peak("tf32"))
    tried = attempt(report, run, ("amp_bf16",))
    if share is None or share < SHARE or factor is None or factor <= 1.0 or not tried.tries:
        return
    saved = min(1.0, share) * (1.0 - 1.0 / factor)
    helps = tried.trial is None or tried.trial.verdict == "better"
    yield RULE.finding(
        severity="low" if helps and saved >= WORTH else "info",
        title=_title(saved, tried.trial),
        explanation=sentences(
            f"Products in TF32 take {text(spent, 'ns')} of the {text(run.step_ns.median, 'ns')} step of {quoted(run)}; large "
            "ones reach "
            f"{text(line.roof.peak('tf32'), 'flops/s')} in TF32 and {text(line.roof.peak('bf16'), 'flops/s')} in bfloat16 here, "
            f"{times(factor)} as much.",
            "Computed from that, not measured: conversions cost, and halved bytes save, on top.",
        ),
        advice="Try torch.autocast(device_type='cuda', dtype=torch.bfloat16) around forward and loss, and check the training's "
        "quality: bfloat16 keeps 8 bits.",
        evidence=(
            Evidence(name="saving", value=100.0 * saved, unit="percent", where="computed"),
            Evidence(name="TF32 products' time", value=spent, unit="ns", where=run.config.name),
            Evidence(name="bfloat16 ceiling over TF32's", value=factor, unit="ratio", where=line.roof.hardware),
        ),
        attempt=tried,
        weight=saved,
        computed=True,
    )


def _is_tf32(kernel: KernelStat) -> bool:
    return kernel.math == "tf32" and is_product(kernel.family) and kernel.family not in FEWER_OPERATIONS


def _title(saved: float, tried: Trial | None) -> str:
    if tried is None or tried.verdict == "failed":
        return f"bfloat16 autocast would save {percent(saved)} of the step, computed from the ceilings"
    return f"bfloat16 autocast: {outcome(tried)}, where the ceilings alone give {percent(saved)} less"


RULE = Rule("half_precision", DOC, check, "remedy")
