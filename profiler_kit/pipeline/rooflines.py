"""Rooflines: bounds of a report's layers and ops by datasheet peaks (from `devices`) or measured peaks (from `measurement`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from profiler_kit.devices.registry import devices_with_peaks, find_device
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.machine import Ceilings
from profiler_kit.records.notes import plain_notes
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roof
from profiler_kit.records.target import TargetInfo

HERE: Final = "here"
# Limit for measuring peaks in `analyze`. `env` and ``count --hardware here`` have no limit.
ANALYZE_LIMIT_S: Final = 6.0


def check_hardware(hardware: str | None) -> None:
    """Raise UsageError with the choices for an unknown device name `hardware`. Does not import torch."""
    if hardware is not None and hardware.lower() != HERE:
        _datasheet_roof(hardware)


def datasheet_name(hardware: str | None) -> str | None:
    """The device whose datasheet `hardware` selects; None for the measured peaks of this machine, or without a roofline."""
    return None if hardware is None or hardware.lower() == HERE else hardware


def with_hardware_roofline(report: Report, hardware: str | None, on_progress: OnProgress) -> Report:
    """Add the roofline of `hardware` to a counted `report`. None does not change the report."""
    from profiler_kit.diagnosis.roofline import roofline

    if hardware is None or report.static is None:
        return report
    notes: tuple[str, ...] = ()
    if hardware.lower() == HERE:
        roofs, notes = _measured_roofs(on_progress)
    else:
        roofs = (_datasheet_roof(hardware),)
    lines = tuple(roofline(report.static, report.target, roof) for roof in roofs)
    return replace(report, roofline=lines, notes=(*report.notes, *plain_notes(notes)))


def recompute_time(
    hardware: str | None, target: TargetInfo, on_progress: OnProgress
) -> Callable[[StaticCount], float | None]:
    """A function that returns the roofline bound, in ns, of the recomputation in a count; it returns None without `hardware`."""
    from profiler_kit.diagnosis.roofline import roofline

    if hardware is None:
        return lambda static: None
    available_roofs = _measured_roofs(on_progress)[0] if hardware.lower() == HERE else (_datasheet_roof(hardware),)

    def recompute_ns(static: StaticCount) -> float | None:
        if not available_roofs:
            return None
        phases = roofline(static, target, available_roofs[0]).phases
        return next((phase.layers_ns for phase in phases if phase.phase == "recompute"), 0.0)

    return recompute_ns


def with_measured_roofline(report: Report, device: str, on_progress: OnProgress) -> Report:
    """Add the rooflines of `device`, and the percentage of roofline that the runs reached, to a measured `report`.

    Peaks are the saved ones, or measured within `ANALYZE_LIMIT_S`, or those of the datasheet. Raises KeyboardInterrupt.
    """
    from profiler_kit.diagnosis.roofline import rooflines

    baseline = report.baseline()
    if report.static is None or baseline is None or baseline.environment is None:
        return report
    ceilings, notes = ceilings_of(device, limit_s=ANALYZE_LIMIT_S, on_progress=on_progress)
    lines = rooflines(report, ceilings)
    peaks = plain_notes(_peak_notes(notes, ceilings, has_roof=bool(lines)))
    return replace(report, roofline=lines, notes=(*report.notes, *peaks))


def _datasheet_roof(hardware: str) -> Roof:
    """The datasheet roof of the device named `hardware`. Raises UsageError with the choices."""
    from profiler_kit.diagnosis.roofline import datasheet_roof

    device = find_device(hardware, "--hardware", devices_with_peaks(), also=f"; or {HERE}, to measure this machine")
    assert device.peaks is not None
    return datasheet_roof(device.peaks, device.torch_names[0] if device.torch_names else device.label)


def ceilings_of(
    device: str, *, fresh: bool = False, limit_s: float | None = None, on_progress: OnProgress = ignore_progress
) -> tuple[Ceilings | None, tuple[str, ...]]:
    """Saved or newly measured peaks of `device` for the torch version, driver and flags of this process, with notes."""
    from profiler_kit.measurement import ceiling_store
    from profiler_kit.worker import ceilings

    key = ceilings.cache_key(device)
    return ceiling_store.load_or_measure(device, key, fresh=fresh, limit_s=limit_s, on_progress=on_progress)


def _measured_roofs(on_progress: OnProgress) -> tuple[tuple[Roof, ...], tuple[str, ...]]:
    from profiler_kit.diagnosis.roofline import roofs
    from profiler_kit.worker import environment

    device = environment.pick_device("auto")
    ceilings, notes = ceilings_of(device, on_progress=on_progress)
    device_roofs = roofs(environment.device_name(device), ceilings)
    return device_roofs, _peak_notes(notes, ceilings, has_roof=bool(device_roofs))


def _peak_notes(notes: tuple[str, ...], ceilings: Ceilings | None, *, has_roof: bool) -> tuple[str, ...]:
    if ceilings is not None:
        return (*notes, *ceilings.notes)
    consequence = (
        "rooflines use datasheet peaks" if has_roof else "there are no datasheet peaks either, so no rooflines"
    )
    return tuple(f"{note}; {consequence}." for note in notes)
