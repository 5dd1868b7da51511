"""A machine as a document: devices, versions, measured peaks, configurations, packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiler_kit import units
from profiler_kit.records.document import Block, Document, Paragraph, Section
from profiler_kit.records.machine import Machine
from profiler_kit.records.serde import dumps
from profiler_kit.report import sentences
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.machine import (
    CEILING_COLUMNS,
    CONFIG_COLUMNS,
    DEVICE_COLUMNS,
    PACKAGE_COLUMNS,
    CeilingRow,
)


def machine_document(machine: Machine) -> Document:
    """`machine` as sections of text and tables; CSV holds the measured peaks."""
    ceilings = data_table("ceilings", CEILING_COLUMNS, _ceilings(machine))
    packages = data_table("packages", PACKAGE_COLUMNS, machine.packages)
    devices = data_table("devices", DEVICE_COLUMNS, machine.devices)
    return Document(
        title=f"profiler_kit {machine.tool.version} on this machine",
        sections=tuple(_sections(machine)),
        json=dumps(machine),
        full=(ceilings, devices, packages),
    )


def _sections(machine: Machine) -> Iterator[Section]:
    blocks: list[Block] = [Paragraph(text=sentence) for sentence in _sentences(machine)]
    blocks += [Paragraph(text=note, role="note") for note in machine.notes]
    yield Section(title="Machine", blocks=tuple(blocks))
    if machine.devices:
        table = page_table("devices", "as torch sees them", DEVICE_COLUMNS, machine.devices)
        yield Section(title="Devices", blocks=(table,))
    rows = _ceilings(machine)
    if rows:
        yield Section(title="Measured peaks", blocks=tuple(_peaks(machine, rows)))
    if machine.configs:
        table = page_table("configurations", "measured by analyze", CONFIG_COLUMNS, machine.configs)
        notes = tuple(Paragraph(text=note, role="note") for note in machine.config_notes)
        yield Section(title="Configurations", blocks=(table, *notes))
    yield Section(title="Packages", blocks=(page_table("packages", "", PACKAGE_COLUMNS, machine.packages),))
    environment = machine.environment
    if environment is not None:
        yield Section(title="Flags", blocks=tuple(sentences.flags(environment)), detail=True)


def _sentences(machine: Machine) -> Iterator[str]:
    environment = machine.environment
    cores = units.plural(machine.cores, "core")
    if environment is None:
        yield f"Python {machine.python} on {machine.platform}, {cores}."
        return
    yield f"{sentences.place(environment)}, {machine.platform}."
    build = f"built for {machine.torch_cuda}" if machine.torch_cuda else "a CPU build"
    driver = f", NVIDIA driver {machine.driver}" if machine.driver else ""
    simd = f", {machine.simd}" if machine.simd else ""
    threads = f"{units.plural(environment.threads, 'thread')} on {cores}" if environment.threads is not None else cores
    yield f"torch is {build}{driver}. CPU: {threads}{simd}."
    if machine.host_factor is not None:
        factor = f"{machine.host_factor:g}"
        yield f"An op of eager PyTorch takes {factor} times as long as on the reference host: count --gpu NAME --host {factor}"


def _peaks(machine: Machine, rows: Sequence[CeilingRow]) -> Iterator[Block]:
    ceilings = machine.ceilings
    name = ceilings.device_name if ceilings is not None else machine.roofs[0].hardware
    yield page_table("ceilings", name, CEILING_COLUMNS, rows)
    if ceilings is not None:
        saved = f" Saved in {machine.cache}; env --fresh measures again." if machine.cache and ceilings.steady else ""
        duration = units.text(ceilings.duration_ns, "ns")
        yield Paragraph(text=f"Measured in {duration} with torch {ceilings.torch}.{saved}")
    for roof in machine.roofs:
        if roof.source == "datasheet":
            yield Paragraph(text=f"Datasheet: {roof.citation}", detail=True)


def _ceilings(machine: Machine) -> list[CeilingRow]:
    """One row per measured arithmetic or datasheet peak, then the memory bandwidth."""
    sheet = next((roof for roof in machine.roofs if roof.source == "datasheet"), None)
    measured = machine.ceilings
    rates = {rate.math: rate for rate in measured.rates} if measured is not None else {}
    peaks = {peak.math: peak.flops_per_s for peak in sheet.peaks} if sheet is not None else {}
    rows = []
    for math in dict.fromkeys([*rates, *peaks]):
        rate = rates.get(math)
        rows.append(
            CeilingRow(
                test=math,
                rows=rate.size if rate is not None else None,
                flops_per_s=rate.flops_per_s if rate is not None else None,
                sheet_flops_per_s=peaks.get(math),
                spread_percent=rate.spread_percent if rate is not None else None,
            )
        )
    if sheet is not None or (measured is not None and measured.bandwidth_bytes_per_s is not None):
        rows.append(
            CeilingRow(
                test="copy",
                copied_bytes=measured.copy_bytes if measured is not None else None,
                bytes_per_s=measured.bandwidth_bytes_per_s if measured is not None else None,
                sheet_bytes_per_s=sheet.bandwidth_bytes_per_s if sheet is not None else None,
                spread_percent=measured.bandwidth_spread_percent if measured is not None else None,
            )
        )
    return rows
