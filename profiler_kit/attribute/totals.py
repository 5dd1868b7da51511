"""Work to figures per step: every instant charged once, divided so that the parts still sum to the whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from profiler_kit.attribute.assign import Assignment, Owner
from profiler_kit.attribute.correlate import Frame, Links
from profiler_kit.attribute.events import HostKind, Trace
from profiler_kit.attribute.intervals import charge_once, subtract
from profiler_kit.records import marks
from profiler_kit.records.counts import PHASES
from profiler_kit.records.runs import KernelStat, LayerTiming
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op

Key = TypeVar("Key", bound=Hashable)


class Work(NamedTuple):
    """One kernel, copy, fill or operator call of a traced step: when it ran, and whose it is (None: nobody's).

    `lane` tells apart timelines that are added up each for itself: devices. `step` is None where the launch is unknown.
    `convolution` is what the operator that launched it does, where that is a convolution.
    """

    name: str
    lane: str
    step: int | None
    owner: Owner | None
    stretches: tuple[tuple[int, int], ...]
    convolution: ConvolutionOp | None = None


class Charge(NamedTuple):
    """A stretch of a lane, charged to one piece of work."""

    start_ns: int
    end_ns: int
    work: Work


class Leaf(NamedTuple):
    """The finest thing added up."""

    owner: Owner | None
    name: str


class Outside(NamedTuple):
    """Device events that were left out because no traced step launched them."""

    events: int
    sum_ns: int


# ---- gathering work


def kernel_work(trace: Trace, links: Links, assignment: Assignment) -> tuple[list[Work], Outside]:
    """Device events that a traced step launched, or whose launch is unknown and that ran no earlier than the first step."""
    works: list[Work] = []
    first_ns = links.steps[0].event.start_ns
    events = sum_ns = 0
    for event in trace.device:
        launch = links.launches.get(event.correlation) if event.correlation is not None else None
        step = assignment.step(launch) if launch is not None else None
        stretch = ((event.start_ns, event.end_ns),)
        if launch is None and event.start_ns >= first_ns:
            works.append(Work(event.name, event.device, None, None, stretch))
        elif launch is not None and step is not None:
            owner = assignment.owner(launch)
            works.append(Work(event.name, event.device, step, owner, stretch, _convolution(launch)))
        else:
            events += 1
            sum_ns += event.end_ns - event.start_ns
    return works, Outside(events, sum_ns)


REDOING: Final = "autograd::recompute"  # what a node spends outside of operators while forward work is done again in it


def operator_work(links: Links, assignment: Assignment) -> list[Work]:
    """Operators of the traced steps with their self time: what no operator inside them covers.

    Only threads that take part in the steps; time in a phase but in no operator is the interpreter's and is no work. An
    autograd node that does forward work again encloses the interpreter's time too: that is the recomputing module's.
    """
    works: list[Work] = []
    for thread, frames in links.threads.items():
        if not assignment.works_here(thread):
            continue
        inner: dict[Frame, list[tuple[int, int]]] = defaultdict(list)
        redone_until: dict[Frame, int] = {}
        timed = [frame for frame in frames if frame.event.kind is HostKind.OPERATOR or _redoes(frame)]
        for frame in timed:
            stretch = (frame.event.start_ns, frame.event.end_ns)
            if (holder := _holder(frame)) is not None:
                inner[holder].append(stretch)
            if frame.redone and frame.node is not None:
                redone_until[frame.node] = max(redone_until.get(frame.node, 0), stretch[1])
        for frame in timed:
            step = assignment.step(frame)
            if step is None:
                continue
            own = subtract([(frame.event.start_ns, frame.event.end_ns)], inner.get(frame, ()))
            again: list[tuple[int, int]] = []
            if _redoes(frame):
                own, again = [], own
            elif frame in redone_until:
                last_ns = redone_until[
                    frame
                ]  # what ends the recomputation comes after it, up to the node's own first operator
                until_ns = min((start for start, _ in inner[frame] if start >= last_ns), default=last_ns)
                again = subtract(own, [(until_ns, frame.event.end_ns)])
                own = subtract(own, [(frame.event.start_ns, until_ns)])
            if again:
                works.append(Work(REDOING, "host", step, assignment.redoer(frame), tuple(again)))
            if not _redoes(frame):
                works.append(
                    Work(frame.event.name, "host", step, assignment.owner(frame), tuple(own), _convolution(frame))
                )
    return works


def _redoes(frame: Frame) -> bool:
    """Whether `frame` is the mark of a module that is called again inside an autograd node."""
    return frame.redone and frame.event.kind is HostKind.ANNOTATION and frame.event.name.startswith(marks.MODULE)


def _holder(frame: Frame) -> Frame | None:
    """The innermost operator, or module called again, around `frame`: what covers it takes nothing of its own time."""
    around = frame.parent
    while around is not None and around.event.kind is not HostKind.OPERATOR and not _redoes(around):
        around = around.parent
    return around


def _convolution(frame: Frame) -> ConvolutionOp | None:
    """What the innermost convolution operator around `frame` does, or None where there is none."""
    op = frame.op
    while op is not None:
        if (does := convolution_op(op.event.name)) is not None:
            return does
        op = op.parent.op if op.parent is not None else None
    return None


def charge(works: Sequence[Work]) -> list[Charge]:
    """Every busy instant of every lane, charged once: to the work that started first. In order of time within a lane."""
    lanes: dict[str, list[tuple[tuple[int, int], Work]]] = defaultdict(list)
    for work in works:
        lanes[work.lane].extend((stretch, work) for stretch in work.stretches)
    charges: list[Charge] = []
    for lane in lanes.values():
        for piece in charge_once([stretch for stretch, _ in lane]):
            charges.append(Charge(piece.start_ns, piece.end_ns, lane[piece.owner][1]))
    return charges


# ---- per step


def apportion(totals: Mapping[Key, int], steps: int) -> dict[Key, int]:
    """`totals` divided by `steps` in whole numbers whose sum is the rounded quotient of the totals' sum.

    What flooring leaves over goes to the largest remainders, one each; of equals to the first.
    """
    shares = {key: total // steps for key, total in totals.items()}
    whole = (2 * sum(totals.values()) + steps) // (2 * steps)
    left = whole - sum(shares.values())
    for key in sorted(totals, key=lambda k: -(totals[k] % steps))[:left]:
        shares[key] += 1
    return shares


class PerStep(NamedTuple):
    """Figures of one step: `layers` and `unattributed_ns` sum to `device_ns`, and so do `kernels`."""

    device_ns: int
    layers: tuple[LayerTiming, ...]
    kernels: tuple[KernelStat, ...]
    unattributed_ns: int


def per_step(works: Sequence[Work], charges: Sequence[Charge], steps: int) -> PerStep:
    """`charges` added up by owner and by kernel name, divided by the number of `steps`."""
    totals: dict[Leaf, int] = defaultdict(int)
    calls: dict[Leaf, int] = defaultdict(int)
    launched_by: dict[Leaf, set[ConvolutionOp | None]] = defaultdict(set)
    for work in works:
        leaf = Leaf(work.owner, work.name)
        totals[leaf] += 0  # work that others hide completely still ran
        calls[leaf] += 1
        launched_by[leaf].add(work.convolution)
    for item in charges:
        totals[Leaf(item.work.owner, item.work.name)] += item.end_ns - item.start_ns
    shares = apportion(totals, steps)

    by_owner: dict[Owner | None, list[Leaf]] = defaultdict(list)
    by_name: dict[str, list[Leaf]] = defaultdict(list)
    for leaf in totals:
        by_owner[leaf.owner].append(leaf)
        by_name[leaf.name].append(leaf)

    def stats(groups: Iterable[tuple[str, Sequence[Leaf]]]) -> tuple[KernelStat, ...]:
        made = [
            _stat(
                name,
                calls=_rounded(sum(calls[leaf] for leaf in leaves), steps),
                kernel_ns=sum(shares[leaf] for leaf in leaves),
                launched_by={op for leaf in leaves for op in launched_by[leaf]},
            )
            for name, leaves in groups
        ]
        return tuple(sorted(made, key=lambda stat: (-stat.kernel_ns, stat.name)))

    layers = tuple(
        LayerTiming(
            path=owner.path,
            phase=owner.phase,
            kernel_ns=sum(shares[leaf] for leaf in leaves),
            kernels=stats((leaf.name, [leaf]) for leaf in leaves),
        )
        for owner, leaves in sorted(
            ((owner, leaves) for owner, leaves in by_owner.items() if owner is not None),
            key=lambda item: PHASES.index(item[0].phase),  # then as they first ran: sorting is stable
        )
    )
    return PerStep(
        device_ns=sum(shares.values()),
        layers=layers,
        kernels=stats(by_name.items()),
        unattributed_ns=sum(shares[leaf] for leaf in by_owner.get(None, ())),
    )


def _stat(name: str, *, calls: int, kernel_ns: int, launched_by: set[ConvolutionOp | None]) -> KernelStat:
    said = classify(name, next(iter(launched_by)) if len(launched_by) == 1 else None)
    return KernelStat(name=name, family=said.family, calls=calls, kernel_ns=kernel_ns, op=said.op, math=said.math)


def _rounded(count: int, steps: int) -> int:
    return (2 * count + steps) // (2 * steps)
