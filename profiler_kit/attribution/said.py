"""What a reader should know about how far the owners of a trace's work are known."""

from __future__ import annotations

from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.modules import Calls
from profiler_kit.attribution.ownership import Device, How
from profiler_kit.attribution.step_marks import Steps
from profiler_kit.traces.table import NONE, Kind, Table


def notes(
    table: Table, device: Device, nodes: Nodes, called: Calls, steps: Steps, compiled: bool, shared: int
) -> tuple[str, ...]:
    """Short sentences; none where there is nothing to say."""
    said = []
    count = len(device.rows)
    lost = int((device.launch == NONE).sum())
    if lost:
        aligned = int((device.how == How.ALIGNED).sum())
        said.append(
            f"{lost} of {count} device events have no launch in the trace; "
            f"{aligned} of them are owned as the same work of another step is"
        )
    numbered = nodes.positions[~nodes.unnumbered]
    missing = int((nodes.forward[~nodes.unnumbered] == NONE).sum())
    if missing:
        said.append(f"{missing} of {len(numbered)} backward nodes have no forward operator in the trace: no module")
    if not called.modules and table.of(Kind.OPERATOR).any():
        said.append("no module calls in the trace: record with with_stack=True to see modules")
    if compiled:
        said.append("regions of torch.compile have a phase, but no modules inside")
    if shared:
        said.append(f"{shared} launches have several kernels each (CUDA graphs): all are owned as the launch is")
    if steps.inferred:
        said.append("no step is marked: a step is taken to end with an optimizer's step")
    elif not steps.steps:
        said.append("no step is marked: call profiler.step() after each")
    return tuple(said)
