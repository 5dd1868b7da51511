"""A trace's columns -> whose its work is: step, phase and module of every host event and of all device work.

Work on the device belongs to what was around its launch on the host, whenever it ran. `ownership.How` has the evidence for a
phase in the order in which it is asked.
"""

from __future__ import annotations

import numpy as np

from profiler_kit.attribution.alignment import align
from profiler_kit.attribution.context import surroundings
from profiler_kit.attribution.links import by_external_id, join_nodes, launches
from profiler_kit.attribution.modules import COMPILED_CLASS, calls
from profiler_kit.attribution.nesting import in_time, nest
from profiler_kit.attribution.owners import host_modules
from profiler_kit.attribution.ownership import PHASE_NUMBERS, Device, Host, How, Module, Owned
from profiler_kit.attribution.phases import OTHER, host_phases
from profiler_kit.attribution.roles import Role, collectives, from_host, roles
from profiler_kit.attribution.said import notes
from profiler_kit.attribution.step_marks import steps_of
from profiler_kit.attribution.times import times
from profiler_kit.records.counts import COMMUNICATION_PATH
from profiler_kit.traces.table import DEVICE_KINDS, NONE, Bytes, Ids, Table

COMMUNICATION = PHASE_NUMBERS["communication"]


def own(table: Table) -> Owned:
    """The owners of the work in `table`; what has none says so."""
    nesting = nest(table)
    role = roles(table, nesting.rows)
    context = surroundings(table, nesting, role)
    steps = steps_of(table, nesting, role)
    step = steps.at(nesting.start_ns)
    began = np.append(steps.start_ns, np.int64(-(1 << 62)))[step]
    nodes = join_nodes(table, nesting, context, role, began)
    rows = _device_rows(table)
    launch = launches(table, nesting, rows)
    source = np.where(launch == NONE, by_external_id(table, nesting, rows), launch)
    copies = from_host(table, rows)
    phases = host_phases(table, nesting, context, role, nodes, steps, source[copies & (source != NONE)])
    called = calls(table, nesting, context, role)
    module, redone = host_modules(nesting, context, role, nodes, called, phases, step)
    host = Host(
        rows=nesting.rows,
        parent=nesting.parent,
        operator=context.operator,
        node=context.node,
        python=context.python,
        phase=phases.phase,
        module=module,
        step=step,
    )
    shared = collectives(table, rows)
    # A collective is launched in some module's call, and is not that module's work.
    modules = (*called.modules, Module(COMMUNICATION_PATH, "")) if shared.any() else tuple(called.modules)
    device = _device(table, host, rows, launch, source, phases.how)
    device.phase[shared], device.how[shared], device.module[shared] = COMMUNICATION, How.NAME, len(modules) - 1
    compiled = bool((role == Role.REGION).any()) or any(of.class_name == COMPILED_CLASS for of in called.modules)
    graphs = _shared_launches(device.launch)
    return Owned(
        table=table,
        host=host,
        device=device,
        modules=modules,
        steps=steps.steps,
        nodes=nodes.positions,
        made=np.where(nodes.exact, nodes.forward, NONE),
        redone=redone,
        graph_launches=graphs,
        compiled=compiled,
        notes=notes(table, device, nodes, called, steps, compiled, graphs),
    )


def _device_rows(table: Table) -> Ids:
    rows = np.flatnonzero(table.of(*DEVICE_KINDS)).astype(np.int32)
    return rows[in_time(*times(table, rows))]


def _device(table: Table, host: Host, rows: Ids, launch: Ids, source: Ids, how_host: Bytes) -> Device:
    """The device's events, each with the owners of its launch, whatever it is itself."""
    linked = source != NONE
    # What has no launch takes the entry behind the last one.
    phase = np.append(host.phase, np.int8(NONE))[source]
    module, step, operator = (
        np.append(column, np.int32(NONE))[source] for column in (host.module, host.step, host.operator)
    )
    how = np.append(how_host, np.int8(How.NONE))[source]
    phase[linked & (phase == NONE)] = OTHER
    same = align(table.name[rows], table.stream[rows], step, linked)
    aligned = same != NONE
    phase[aligned], module[aligned] = phase[same[aligned]], module[same[aligned]]
    how[aligned] = How.ALIGNED
    return Device(
        rows=rows,
        launch=launch,
        operator=operator,
        phase=phase,
        within=phase.copy(),
        module=module,
        step=step,
        how=how,
        like=same,
    )


def _shared_launches(launch: Ids) -> int:
    """How many launches have more than one device event."""
    if not (launch != NONE).any():
        return 0
    return int((np.bincount(launch[launch != NONE]) > 1).sum())
