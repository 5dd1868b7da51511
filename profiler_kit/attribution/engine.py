"""The attribution engine: assign a step, a phase and a module to every host event and to all device work.

Device work gets the step, phase and module of its launch on the host, no matter when it runs. `result.Evidence` lists
the evidence for a phase in order of precedence.

The order of work in `attribute`: nest the host events, find the steps, join backward nodes to forward operators, join
device work to launches, and then attribute the host events and, through their launches, the device work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.completeness import unrecorded_launches
from profiler_kit.attribution.events import Role, host_events
from profiler_kit.attribution.links import Links, Nodes, join_nodes, link_launches
from profiler_kit.attribution.modules import COMPILED_CLASS, host_modules
from profiler_kit.attribution.nesting import time_order
from profiler_kit.attribution.phases import OTHER, find_steps, host_phases
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Device, Evidence, Host, Module
from profiler_kit.attribution.step_matching import match_unlinked
from profiler_kit.records.counts import COMMUNICATION_PATH
from profiler_kit.traces.names import HOST_TO_DEVICE, is_collective_kernel
from profiler_kit.traces.table import DEVICE_KINDS, NONE, Bytes, Ids, Ints, Kind, Table
from profiler_kit.units import plural


class _DeviceWork(NamedTuple):
    """The device events in order of time."""

    rows: Ids
    start_ns: Ints
    end_ns: Ints


def attribute(table: Table) -> Attribution:
    """Return the step, phase and module of all events in `table`. Where a trace holds no evidence, the value is NONE."""
    work = _device_work(table)
    rows = work.rows
    events = host_events(table)
    steps = find_steps(table, events)
    step = steps.at(events.start_ns)
    nodes = join_nodes(table, events, np.append(steps.start_ns, np.int64(-(1 << 62)))[step])
    links = link_launches(table, events, rows)
    host_to_device_copies = (
        (table.kind[rows] == Kind.MEMCPY) & table.named(rows, HOST_TO_DEVICE) & (links.source != NONE)
    )
    phases = host_phases(table, events, nodes, steps, links.source[host_to_device_copies])
    module_calls = host_modules(table, events, nodes, phases, step)
    host = Host(
        rows=events.rows,
        start_ns=events.start_ns,
        end_ns=events.recorded_end_ns,
        thread=events.thread,
        parent=events.parent,
        operator=events.operator,
        node=events.node,
        python=events.python,
        phase=phases.phase,
        module=module_calls.module,
        step=step,
    )
    collective = table.with_names(rows, is_collective_kernel)
    device = _attribute_device(table, host, work, links, phases.evidence)
    modules = module_calls.modules
    if collective.any():
        # A collective is launched inside a module's call, but is not work of that module.
        device.phase[collective], device.evidence[collective] = PHASE_NUMBERS["communication"], Evidence.NAME
        device.module[collective] = len(modules)
        modules = (*modules, Module(COMMUNICATION_PATH, ""))
    launches = device.launch[device.launch != NONE]
    attribution = Attribution(
        table=table,
        host=host,
        device=device,
        modules=modules,
        steps=steps.steps,
        nodes=nodes.positions,
        node_forward=np.where(nodes.exact, nodes.forward, NONE),
        node_redone=module_calls.node_redone,
        graph_launches=int((np.bincount(launches) > 1).sum()) if len(launches) else 0,
        compiled=events.has(Role.REGION) or any(module.class_name == COMPILED_CLASS for module in modules),
        notes=(),
        steps_inferred=steps.inferred,
    )
    return replace(
        attribution,
        notes=_notes(attribution, nodes, has_calls=bool(module_calls.modules)),
        unrecorded_launches=unrecorded_launches(attribution),
    )


def _device_work(table: Table) -> _DeviceWork:
    rows = np.flatnonzero(table.of(*DEVICE_KINDS)).astype(np.int32)
    start, end = table.times(rows)
    order = time_order(start, end)
    return _DeviceWork(rows[order], start[order], end[order])


def _attribute_device(table: Table, host: Host, work: _DeviceWork, links: Links, evidence_of: Bytes) -> Device:
    """Return the device events with the attribution of their launches."""
    rows, source = work.rows, links.source
    linked = source != NONE
    # An event without a launch has source NONE (-1), which selects the appended last entry.
    phase = np.append(host.phase, np.int8(NONE))[source]
    module, step, operator = (
        np.append(column, np.int32(NONE))[source] for column in (host.module, host.step, host.operator)
    )
    evidence = np.append(evidence_of, np.int8(Evidence.NONE))[source]
    phase[linked & (phase == NONE)] = OTHER
    matches = match_unlinked(table.name[rows], table.stream[rows], step, linked)
    matched = matches != NONE
    phase[matched], module[matched] = phase[matches[matched]], module[matches[matched]]
    evidence[matched] = Evidence.ALIGNED
    return Device(
        rows=rows,
        start_ns=work.start_ns,
        end_ns=work.end_ns,
        launch=links.launch,
        operator=operator,
        phase=phase,
        within=phase.copy(),
        module=module,
        step=step,
        evidence=evidence,
        aligned=matches,
    )


def _notes(attribution: Attribution, nodes: Nodes, *, has_calls: bool) -> tuple[str, ...]:
    """Return one sentence or two for each limit of the attribution."""
    notes = []
    device = attribution.device
    unlinked_count = int((device.launch == NONE).sum())
    if unlinked_count:
        matched_count = int((device.evidence == Evidence.ALIGNED).sum())
        notes.append(
            f"{unlinked_count} of {len(device.rows)} device events have no launch in the trace; "
            f"{matched_count} were attributed by matching another step."
        )
    forward = nodes.forward[~nodes.unnumbered]
    missing_count = int((forward == NONE).sum())
    if missing_count:
        notes.append(
            f"{missing_count} of {len(forward)} backward nodes have no forward operator in the trace. "
            "Their work has no module."
        )
    if not has_calls and attribution.table.of(Kind.OPERATOR).any():
        notes.append(
            "The recorded stacks hold no calls of nn.Module, so no time is attributed to modules."
            if attribution.table.info.with_stack
            else "No module calls in the trace. Record with with_stack=True to attribute time to modules."
        )
    if attribution.compiled:
        notes.append("Regions compiled by torch.compile have a phase, but no modules inside.")
    if attribution.graph_launches:
        notes.append(
            f"Launches with several kernels each (CUDA graphs): {attribution.graph_launches}. "
            "All kernels are attributed to the launch."
        )
    if attribution.steps_inferred:
        notes.append(
            f"No steps are marked: {plural(len(attribution.steps), 'step')} inferred from the ends of Optimizer.step. "
            "A profiler with schedule= marks them at profiler.step()."
        )
    elif not attribution.steps:
        notes.append("No steps are marked. A profiler with schedule= marks them where profiler.step() is called.")
    return tuple(notes)
