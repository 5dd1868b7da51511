"""Whose each event is, as columns beside the event's own: for tables that people ask their own questions of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution.ownership import How, Owned
from profiler_kit.records.lanes import ROOT_NAME
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces import frames
from profiler_kit.traces.columns import Column, used_texts
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Ids

if TYPE_CHECKING:
    import pandas

HOW_NAMES = tuple(how.name.lower() for how in How)


def events_frame(owned: Owned) -> pandas.DataFrame:
    """The events of a trace with their owners, a row each; see `traces.frames.events_frame`. Raises KitError without pandas."""
    return frames.events_frame(owned.table, owner_columns(owned))


def owner_columns(owned: Owned) -> tuple[Column, ...]:
    """What is known of each row of the table beyond what the file says.

    `phase`, `within` (for a collective, the phase that launched it), `module`, `step` (the mark's number) for the host's and the
    device's work. `operator` is the name of the innermost operator around it, itself included, `operator_row` that one's row. The
    host's events have the row of what encloses them, `parent_row`; the device's that of their launch, `launch_row`, and by
    which evidence they got their phase, `how`. `family` is the algorithm family that the name of a kernel or operator tells.
    """
    table, host, device = owned.table, owned.host, owned.device
    operator_row = _both(owned, _rows(host.operator, host.rows), _rows(device.operator, host.rows))
    modules: dict[str, int] = {}
    of_module = np.array(
        [modules.setdefault(m.path or ROOT_NAME, len(modules)) for m in owned.modules] + [NONE], dtype=np.int32
    )
    steps = np.array([step.number for step in owned.steps] + [NONE], dtype=np.int64)
    operator = np.where(operator_row != NONE, table.name[operator_row], NONE) if len(table) else operator_row
    how = device.how.astype(np.int32)
    return (
        Column(name="phase", values=_both(owned, host.phase, device.phase), labels=TRACE_PHASES),
        Column(name="within", values=_both(owned, host.phase, device.within), labels=TRACE_PHASES),
        Column(
            name="module", values=_both(owned, of_module[host.module], of_module[device.module]), labels=tuple(modules)
        ),
        Column(name="step", values=_both(owned, steps[host.step], steps[device.step])),
        used_texts("operator", operator, table.names),
        Column(name="operator_row", values=operator_row),
        Column(name="parent_row", values=_both(owned, _rows(host.parent, host.rows), None)),
        Column(name="launch_row", values=_both(owned, None, _rows(device.launch, host.rows))),
        _families(owned),
        Column(name="how", values=_both(owned, None, np.where(how == How.NONE, NONE, how)), labels=HOW_NAMES),
    )


def _both(owned: Owned, of_host: NDArray[Any] | None, of_device: NDArray[Any] | None) -> NDArray[Any]:
    """One value per row of the table: of the host's events, of the device's work, NONE for all others."""
    values = np.full(len(owned.table), NONE, dtype=np.int32)
    if of_host is not None:
        values[owned.host.rows] = of_host
    if of_device is not None:
        values[owned.device.rows] = of_device
    return values


def _rows(positions: Ids, rows: Ids) -> Ids:
    """The table's rows that `positions` point to."""
    return np.append(rows, np.int32(NONE))[positions]  # NONE is the last one's place


def _families(owned: Owned) -> Column:
    table = owned.table
    families: dict[str, int] = {}
    of_name = np.full(len(table.names) + 1, NONE, dtype=np.int32)
    names = np.full(len(table), NONE, dtype=np.int32)
    names[owned.device.rows] = table.name[owned.device.rows]
    operators = owned.host.rows[owned.host.operator == np.arange(len(owned.host.rows))]
    names[operators] = table.name[operators]
    used = np.unique(names[names != NONE])
    of_name[used] = [families.setdefault(classify(table.names[i]).family, len(families)) for i in used.tolist()]
    return Column(name="family", values=of_name[names], labels=tuple(families))
