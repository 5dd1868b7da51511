"""A first step that needs far more memory than all later ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.words import listing, quoted, sentences, threshold, times
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# The first step lacks gradients and optimizer state, so it should need less than a steady one; a third more is a search.
FACTOR: Final = 1.3
# From here on the first step may not fit where the steady one does.
OF_DEVICE: Final = 0.8

DOC = f"""
The first step's peak is more than {FACTOR:g}x the steady step's. With `cudnn.benchmark=True` that is the search, which tries
algorithms with large workspaces. The model then runs out of memory at the start on a device where it would train well.
`medium` in the baseline, or where the first peak is more than {threshold(OF_DEVICE)} of the device's memory, otherwise `low`.
One finding, for the largest such factor; further runs are named.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the run with the largest factor."""
    factors = [(run, ratio(run.first_step_peak_bytes, run.peak_allocated_bytes)) for run in plain(report)]
    found = [(run, factor) for run, factor in factors if factor is not None and factor > FACTOR]
    if not found:
        return
    run, factor = max(found, key=lambda item: item[1])
    others = [quoted(other) for other, _ in found if other is not run]
    memory = run.environment.device_memory_bytes if run.environment is not None else None
    of_device = ratio(run.first_step_peak_bytes, memory)
    grave = any(r is report.baseline() for r, _ in found) or (of_device is not None and of_device > OF_DEVICE)
    first, steady = run.first_step_peak_bytes or 0, run.peak_allocated_bytes or 0  # both known, as there is a factor
    yield RULE.finding(
        severity="medium" if grave else "low",
        title=f"The first step of {quoted(run)} peaks at {text(first, 'bytes')}, "
        f"later ones at {text(steady, 'bytes')} ({times(factor)})",
        explanation=sentences(
            "In the first step cudnn.benchmark tries algorithms, and some need a large workspace; the ones it keeps need less."
            if run.config.benchmark
            else "Something in the first step takes memory that later steps do not: choosing algorithms, or building caches.",
            f"That first peak is {percent(of_device)} of the device's memory." if of_device is not None else "",
            f"The same holds for {listing(others)}." if others else "",
        ),
        advice=_advice(run),
        evidence=(
            Evidence(name="first step's peak", value=first, unit="bytes", where=run.config.name),
            Evidence(name="steady peak", value=steady, unit="bytes", where=run.config.name),
            Evidence(name="factor", value=factor, unit="ratio", where=run.config.name),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _advice(run: ConfigRun) -> str:
    if run.config.benchmark:
        return (
            "Size the batch by the first step, or try fewer algorithms (torch.backends.cudnn.benchmark_limit, 10 by default). "
            "Algorithms whose workspace does not fit are left out of the search, so a full device gets slower ones."
        )
    return "Size the batch by the first step, not by what a running job shows."


RULE = Rule("startup_peak", DOC, check, "memory")
