"""Puts a report under a roof: a datasheet's, or what its device was measured to reach. A part of the pipeline.

It is here that measured ceilings meet the datasheets: `measurement` knows the one, `devices` the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from profiler_kit.devices.registry import find, with_peaks
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.ceilings import Ceilings
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roof
from profiler_kit.records.target import TargetInfo

HERE: Final = "here"
# `analyze` may wait so long for ceilings nobody has measured yet; `env` and ``count --hardware here`` wait as long as it takes.
ANALYZE_LIMIT_S: Final = 6.0


def check(hardware: str | None) -> None:
    """Raises UsageError that lists the choices where no device is called `hardware`; imports nothing slow."""
    if hardware is not None and hardware.lower() != HERE:
        _named_roof(hardware)


def under_hardware(report: Report, hardware: str | None, say: OnProgress) -> Report:
    """The counted `report` with its floors on `hardware`; as it is where that is None."""
    from profiler_kit.diagnosis.roofline import roofline

    if hardware is None or report.static is None:
        return report
    notes: tuple[str, ...] = ()
    if hardware.lower() == HERE:
        roofs, notes = _roofs_here(say)
    else:
        roofs = (_named_roof(hardware),)
    lines = tuple(roofline(report.static, report.target, roof) for roof in roofs)
    return replace(report, roofline=lines, notes=(*report.notes, *notes))


def recompute_price(hardware: str | None, target: TargetInfo, say: OnProgress) -> Callable[[StaticCount], float | None]:
    """A function from a count to the least time, in ns, of what its backward computes again; None without `hardware`."""
    from profiler_kit.diagnosis.roofline import roofline

    if hardware is None:
        return lambda static: None
    known_roofs = _roofs_here(say)[0] if hardware.lower() == HERE else (_named_roof(hardware),)

    def price(static: StaticCount) -> float | None:
        if not known_roofs:
            return None
        phases = roofline(static, target, known_roofs[0]).phases
        return next((phase.layers_ns for phase in phases if phase.phase == "recompute"), 0.0)

    return price


def under_own_device(report: Report, device: str, say: OnProgress) -> Report:
    """The measured `report` with the share of the roof that its runs attained on `device`.

    The ceilings are those kept, else measured within `ANALYZE_LIMIT_S`, else the datasheet's. Raises KeyboardInterrupt.
    """
    from profiler_kit.diagnosis.roofline import rooflines

    baseline = report.baseline()
    if report.static is None or baseline is None or baseline.environment is None:
        return report
    ceilings, notes = ceilings_of(device, limit_s=ANALYZE_LIMIT_S, say=say)
    lines = rooflines(report, ceilings)
    return replace(report, roofline=lines, notes=(*report.notes, *_unmeasured(notes, ceilings, bool(lines))))


def _named_roof(hardware: str) -> Roof:
    """The datasheet's roof of the device that a person calls `hardware`. Raises UsageError that lists the choices."""
    from profiler_kit.diagnosis.roofline import datasheet_roof

    device = find(hardware, "--hardware", with_peaks(), also=f"; or {HERE}, to measure this machine")
    assert device.peaks is not None
    return datasheet_roof(device.peaks, device.names[0] if device.names else device.label)


def ceilings_of(
    device: str, *, fresh: bool = False, limit_s: float | None = None, say: OnProgress = silent
) -> tuple[Ceilings | None, tuple[str, ...]]:
    """`measurement.ceiling_store.ceilings_of` for the torch, driver and switches of this process."""
    from profiler_kit.measurement import ceiling_store
    from profiler_kit.worker import ceilings

    key = ceilings.identity(device)
    return ceiling_store.ceilings_of(device, key, fresh=fresh, limit_s=limit_s, on_progress=say)


def _roofs_here(say: OnProgress) -> tuple[tuple[Roof, ...], tuple[str, ...]]:
    from profiler_kit.diagnosis.roofline import roofs
    from profiler_kit.worker import environment

    device = environment.pick_device("auto")
    ceilings, notes = ceilings_of(device, say=say)
    known = roofs(environment.device_name(device), ceilings)
    return known, _unmeasured(notes, ceilings, bool(known))


def _unmeasured(notes: tuple[str, ...], ceilings: Ceilings | None, has_roof: bool) -> tuple[str, ...]:
    if ceilings is not None:
        return (*notes, *ceilings.notes)
    end = (
        "floors are by the datasheet"
        if has_roof
        else "and no datasheet of this device is known, so there are no floors"
    )
    return tuple(f"{note}; {end}." for note in notes)
