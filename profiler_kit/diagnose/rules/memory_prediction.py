"""A measured memory peak that is not the predicted one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.timing import ratio
from profiler_kit.diagnose.words import layer, percent, quoted, sentences, threshold
from profiler_kit.records.counts import DeviceMemory
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import text

# Half of the predictions are within 0.1 % on the device that the rules are from; beyond this something is not modelled.
TOLERATED: Final = 0.03

DOC = f"""
On a GPU, the baseline's peak differs by more than {threshold(TOLERATED)} from the predicted one. `info` where the prediction's
own interval holds the measured peak: a library's scratch was not known without the device. Otherwise `low`: something takes
memory that is not simulated, such as a custom kernel, a compiled model or another version of a library. Trust the measured
peak, and the predicted what-ifs less.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires for the baseline, which runs as the simulation assumes."""
    run = report.baseline()
    memory = report.static.memory if report.static is not None else None
    device = memory.device if memory is not None else None
    if run is None or device is None or run.peak_allocated_bytes is None or run.environment is None:
        return
    off = ratio(run.peak_allocated_bytes - device.allocated_bytes, device.allocated_bytes)
    if not run.environment.device.startswith("cuda") or off is None or abs(off) <= TOLERATED:
        return
    measured = run.peak_allocated_bytes
    held = device.allocated_low_bytes <= measured <= device.allocated_high_bytes
    yield Finding(
        rule=RULE.name,
        severity="info" if held else "low",
        title=f"{quoted(run)} peaks at {text(measured, 'bytes')}, {percent(abs(off))} "
        f"{'above' if off > 0 else 'below'} the predicted {text(device.allocated_bytes, 'bytes')}",
        explanation=sentences(
            _interval(device) if held else "The prediction's interval does not hold it: something is not simulated.",
            _largest_scratch(run),
        ),
        advice="Plan with the measured peak; predictions for other batch sizes are likely off by as much.",
        evidence=(
            Evidence(name="measured peak", value=measured, unit="bytes", where=run.config.name),
            Evidence(name="predicted peak", value=device.allocated_bytes, unit="bytes", where=device.profile),
            Evidence(name="predicted at least", value=device.allocated_low_bytes, unit="bytes", where=device.profile),
            Evidence(name="predicted at most", value=device.allocated_high_bytes, unit="bytes", where=device.profile),
        ),
        weight=min(abs(off), 1.0),
    )


def _interval(device: DeviceMemory) -> str:
    low, high = text(device.allocated_low_bytes, "bytes"), text(device.allocated_high_bytes, "bytes")
    return f"It is within the predicted {low} to {high}: scratch of libraries is not known without the device."


def _largest_scratch(run: ConfigRun) -> str:
    if run.memory is None or not run.memory.ops:
        return ""
    most = run.memory.ops[0]
    return f"The most scratch was seen in {most.op} of {layer(most.path)}, {text(most.workspace_bytes, 'bytes')}."


RULE = Rule("memory_prediction", DOC, check, "memory")
