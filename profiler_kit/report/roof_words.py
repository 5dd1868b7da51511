"""What a roof and a roofline say in words."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.records.roofline import Roof, Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import digits, text


def roofline(line: Roofline) -> Iterator[str]:
    """The roof and where it is from, the arithmetic it is used in, and the step's floor."""
    yield f"{roof(line.roof)}. Contractions in {line.arithmetic}."
    step = line.step
    if step is not None:
        binds = "arithmetic" if step.binds == "compute" else "memory traffic"
        yield f"Layer by layer the step takes at least {text(step.layers_ns, 'ns')}; most of it is for {binds}."


def attained(line: Roofline, run: ConfigRun) -> str | None:
    """How near `run` comes to the roof, on the device and in all; None without a trace."""
    step = line.step
    if step is None or step.attained_percent is None:
        return None
    said = f"The layers attain {text(step.attained_percent, 'percent')} of the roof ({line.roof.source}) in their device time"
    if run.step_ns is not None and run.step_ns.median:
        said += f", {text(100 * step.layers_ns / run.step_ns.median, 'percent')} over the timed step"
    return f"{said}."


def roof(of: Roof) -> str:
    """The roof in one line: ``NVIDIA H200 by its datasheet: fp32 67 TFLOP/s (ridge 14 FLOP/B), ..., 4.8 TB/s``."""
    source = "by its datasheet" if of.source == "datasheet" else "as measured"
    peaks = [
        f"{peak.math} {text(peak.flops_per_s, 'flops/s')} (ridge {digits(peak.ridge_flops_per_byte, 3)} FLOP/B)"
        for peak in of.peaks
    ]
    return f"{of.hardware} {source}: {', '.join(peaks)}; {text(of.bandwidth_bytes_per_s, 'bytes/s')}"
