"""Charged work to lanes of an annotated trace: phases, modules and kernel families on the device's own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from profiler_kit.attribute.correlate import Frame, Links
from profiler_kit.attribute.events import HostKind
from profiler_kit.attribute.totals import Charge
from profiler_kit.records import marks
from profiler_kit.records.lanes import ROOT_NAME, UNATTRIBUTED
from profiler_kit.records.runs import Span
from profiler_kit.traces.kernels import classify


def lane_spans(charges: Sequence[Charge], links: Links, clock: str) -> tuple[Span, ...]:
    """Spans of the host's phases, then of the charged work's phases, modules and kernel families.

    Consecutive work of the same phase (module, family) of the same step is one span, gaps inside included. `family` of a
    span is the phase it belongs to, and in the family lane the kernel family.
    """
    spans = list(_host_phases(links))
    # Lanes of several devices: one set each, told apart by the device's name.
    lanes = list(dict.fromkeys(charge.work.lane for charge in charges))
    for lane in lanes:
        here = [charge for charge in charges if charge.work.lane == lane]
        title = clock if len(lanes) == 1 else f"{clock} {lane}"
        spans += _merged(f"{title}: phase", here, lambda c: (phase_of(c), phase_of(c)))
        spans += _merged(f"{title}: module", here, lambda c: (module_of(c), phase_of(c)))
        spans += _merged(f"{title}: family", here, lambda c: (family_of(c), family_of(c)))
    return tuple(spans)


def phase_of(charge: Charge) -> str:
    """The phase's name, as lanes show it."""
    return charge.work.owner.phase if charge.work.owner is not None else UNATTRIBUTED


def module_of(charge: Charge) -> str:
    """The owner's path, as lanes show it."""
    if charge.work.owner is None:
        return UNATTRIBUTED
    return charge.work.owner.path or ROOT_NAME


def family_of(charge: Charge) -> str:
    """The kernel's family."""
    return classify(charge.work.name).family


def _host_phases(links: Links) -> Iterator[Span]:
    frames: Iterable[Frame] = (frame for of_thread in links.threads.values() for frame in of_thread)
    for frame in frames:
        event = frame.event
        if event.kind is HostKind.ANNOTATION and event.name.startswith(marks.PHASE) and frame.phase is not None:
            yield Span(
                lane="host: phase", name=frame.phase, start_ns=event.start_ns, end_ns=event.end_ns, family=frame.phase
            )


def _merged(lane: str, charges: Sequence[Charge], label: Callable[[Charge], tuple[str, str]]) -> Iterator[Span]:
    run: tuple[tuple[str, str], int | None] | None = None
    start_ns = end_ns = 0
    for charge in charges:
        named = (label(charge), charge.work.step)
        if run is not None and named == run:
            end_ns = charge.end_ns
            continue
        if run is not None:
            yield Span(lane=lane, name=run[0][0], start_ns=start_ns, end_ns=end_ns, family=run[0][1])
        run, start_ns, end_ns = named, charge.start_ns, charge.end_ns
    if run is not None:
        yield Span(lane=lane, name=run[0][0], start_ns=start_ns, end_ns=end_ns, family=run[0][1])
