"""A machine as a document: what it is, what it reaches, what means something on it, what is installed."""

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
    """`machine` as sections of text and tables; the ceilings are the table of a CSV file."""
    ceilings = data_table("ceilings", CEILING_COLUMNS, _ceilings(machine))
    packages = data_table("packages", PACKAGE_COLUMNS, machine.packages)
    devices = data_table("devices", DEVICE_COLUMNS, machine.devices)
    return Document(
        title=f"This machine, for profiler_kit {machine.tool.version}",
        sections=tuple(_sections(machine)),
        json=dumps(machine),
        full=(ceilings, devices, packages),
    )


def _sections(machine: Machine) -> Iterator[Section]:
    blocks: list[Block] = [Paragraph(text=said) for said in _said(machine)]
    blocks += [Paragraph(text=note, role="note") for note in machine.notes]
    yield Section(title="Machine", blocks=tuple(blocks))
    if machine.devices:
        table = page_table("devices", "as torch sees them", DEVICE_COLUMNS, machine.devices)
        yield Section(title="Devices", blocks=(table,))
    rows = _ceilings(machine)
    if rows:
        yield Section(title="Ceilings", blocks=tuple(_reached(machine, rows)))
    if machine.configs:
        table = page_table("configurations", "what analyze runs here", CONFIG_COLUMNS, machine.configs)
        notes = tuple(Paragraph(text=note, role="note") for note in machine.config_notes)
        yield Section(title="Configurations", blocks=(table, *notes))
    yield Section(title="Packages", blocks=(page_table("packages", "", PACKAGE_COLUMNS, machine.packages),))
    where = machine.environment
    if where is not None:
        yield Section(title="Flags", blocks=tuple(sentences.flags(where, "has")), detail=True)


def _said(machine: Machine) -> Iterator[str]:
    where = machine.environment
    cores = f"{machine.cores:,} {'core' if machine.cores == 1 else 'cores'}"
    if where is None:
        yield f"Python {machine.python} on {machine.platform}, {cores}."
        return
    yield f"{sentences.place(where)}, {machine.platform}."
    built = f"built for {machine.torch_cuda}" if machine.torch_cuda else "a CPU build"
    driver = f", the NVIDIA driver is {machine.driver}" if machine.driver else ""
    simd = f" with {machine.simd}" if machine.simd else ""
    threads = f" on {where.threads:,} of {cores}" if where.threads is not None else ""
    yield f"torch is {built}{driver}; on the CPU it computes{simd}{threads}."


def _reached(machine: Machine, rows: Sequence[CeilingRow]) -> Iterator[Block]:
    ceilings = machine.ceilings
    name = ceilings.device_name if ceilings is not None else machine.roofs[0].hardware
    yield page_table("ceilings", name, CEILING_COLUMNS, rows)
    if ceilings is not None:
        kept = f"; kept in {machine.cache} until env --fresh" if machine.cache and ceilings.steady else ""
        yield Paragraph(text=f"Measured in {units.text(ceilings.duration_ns, 'ns')} with torch {ceilings.torch}{kept}.")
    for roof in machine.roofs:
        if roof.source == "datasheet":
            yield Paragraph(text=f"Datasheet: {roof.citation}", detail=True)


def _ceilings(machine: Machine) -> list[CeilingRow]:
    """A row per arithmetic that was measured or that the datasheet has, then the bandwidth."""
    sheet = next((roof for roof in machine.roofs if roof.source == "datasheet"), None)
    found = machine.ceilings
    rates = {rate.math: rate for rate in found.rates} if found is not None else {}
    peaks = {peak.math: peak.flops_per_s for peak in sheet.peaks} if sheet is not None else {}
    rows = []
    for math in dict.fromkeys([*rates, *peaks]):
        rate = rates.get(math)
        rows.append(
            CeilingRow(
                what=math,
                rows=rate.size if rate is not None else None,
                flops_per_s=rate.flops_per_s if rate is not None else None,
                sheet_flops_per_s=peaks.get(math),
                spread_percent=rate.spread_percent if rate is not None else None,
            )
        )
    if sheet is not None or (found is not None and found.bandwidth_bytes_per_s is not None):
        rows.append(
            CeilingRow(
                what="copy",
                copied_bytes=found.copy_bytes if found is not None else None,
                bytes_per_s=found.bandwidth_bytes_per_s if found is not None else None,
                sheet_bytes_per_s=sheet.bandwidth_bytes_per_s if sheet is not None else None,
                spread_percent=found.bandwidth_spread_percent if found is not None else None,
            )
        )
    return rows
