"""The forecast of a step: a price for each of its calls, and a replay of the host that launches them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from profiler_kit.devices.device import Device, Peaks
from profiler_kit.forecast.host import host_ns
from profiler_kit.forecast.prices import FREE, Price, PriceTable, prices_for
from profiler_kit.forecast.work import Arithmetic, Work, work_of
from profiler_kit.records.calls import StepCall
from profiler_kit.records.counts import EstimatedOp, Forecast, LayerForecast, Phase
from profiler_kit.records.samples import Interval
from profiler_kit.simulation.graph import NONE, Link, Node, graph_of
from profiler_kit.simulation.replay import simulate

_HOST_FACTOR: Final = (
    1.3  # nine of ten steps that their host limits lie within it, on hosts like those of the recordings
)
_HALF_WIDTH: Final = 1.28  # standard deviations of an interval that contains 80 %
# Deviations of a whole step that no op explains, such as clocks.
_STEP_SPREAD: Final = 0.03


def forecast_step(
    calls: Sequence[StepCall], device: Device, arithmetic: Arithmetic, host_factor: float = 1.0
) -> Forecast | None:
    """The forecast of a step with these `calls`; None for a device without peaks, or without calls.

    `host_factor`: how many times as long as the host of the recordings the user's host takes for an op.
    """
    table_of_device = prices_for(device)
    if table_of_device is None or device.peaks is None or not calls:
        return None
    table, is_own = table_of_device
    works = [None if call.is_view else work_of(call.call, arithmetic) for call in calls]
    prices = _prices(works, table, device.peaks)
    factor = interval_factor((call.call.op, price.ns, price.spread) for call, price in zip(calls, prices, strict=True))
    hosts = [host_factor * host_ns(work, price.kernels) for work, price in zip(works, prices, strict=True)]
    durations = [price.ns for price in prices]
    return Forecast(
        device=device.label,
        source=table.source,
        is_scaled=not is_own,
        kernel_ns=_range(sum(durations), factor),
        host_ns=_range(sum(hosts), _HOST_FACTOR),
        step_ns=Interval(
            median=_replayed(durations, hosts),
            low=_replayed([ns / factor for ns in durations], [ns / _HOST_FACTOR for ns in hosts]),
            high=_replayed([ns * factor for ns in durations], [ns * _HOST_FACTOR for ns in hosts]),
        ),
        calls=len(calls),
        modules=_modules(calls, prices),
        estimated=_estimated(calls, prices),
        host_factor=host_factor,
    )


def _prices(works: Sequence[Work | None], table: PriceTable, peaks: Peaks) -> list[Price]:
    """The price of each work; equal work is priced once."""
    priced = table.prices([work for work in works if work is not None], peaks)
    return [FREE if work is None else priced[work] for work in works]


def _range(ns: float, factor: float) -> Interval:
    return Interval(median=round(ns), low=round(ns / factor), high=round(ns * factor))


def interval_factor(parts: Iterable[tuple[str, float, float]]) -> float:
    """The factor on both sides of the sum of (op, time, spread) that should contain 80 % of measured times."""
    return math.exp(_HALF_WIDTH * math.hypot(spread_of(parts), _STEP_SPREAD))


def spread_of(parts: Iterable[tuple[str, float, float]]) -> float:
    """The standard deviation of the logarithm of a sum of (op, time, spread).

    Errors of calls of one op go in the same direction, those of different ops are independent.
    """
    by_op: dict[str, float] = defaultdict(float)
    total = 0.0
    for op, ns, spread in parts:
        by_op[op] += ns * spread
        total += ns
    return math.sqrt(sum(part**2 for part in by_op.values())) / total if total else 0.0


def _replayed(durations: Sequence[float], hosts: Sequence[float]) -> int:
    """The time of a step whose host takes `hosts` for its calls, each of which launches a kernel of its duration."""
    nodes: list[Node] = []
    last: dict[bool, int] = {}  # by whether the node is device work

    def add(duration: float, *, is_device: bool, after: tuple[tuple[int, int, Link], ...] = ()) -> None:
        previous = ((last[is_device], 0, Link.STREAM if is_device else Link.SEQUENCE),) if is_device in last else ()
        launch = last[False] if is_device else NONE
        nodes.append(
            Node(
                lane=int(is_device),
                duration_ns=round(duration),
                is_device=is_device,
                launch=launch,
                after=(*previous, *after),
            )
        )
        last[is_device] = len(nodes) - 1

    for duration, host in zip(durations, hosts, strict=True):
        add(host, is_device=False)
        if duration > 0:
            add(duration, is_device=True, after=((last[False], 0, Link.LAUNCH),))
    return int(simulate(graph_of(nodes)).end_ns.max())


def _modules(calls: Sequence[StepCall], prices: Sequence[Price]) -> tuple[LayerForecast, ...]:
    """Kernel time by module and phase. Rounded so that it sums to the rounded total."""
    parts: dict[tuple[str, Phase], list[tuple[str, float, float]]] = defaultdict(list)
    for call, price in zip(calls, prices, strict=True):
        parts[call.path, call.phase].append((call.call.op, price.ns, price.spread))
    layers, done = [], 0.0
    for (path, phase), prices_of_layer in parts.items():
        ns = sum(part_ns for _, part_ns, _ in prices_of_layer)
        kernel_ns, high_ns = round(done + ns) - round(done), round(ns * interval_factor(prices_of_layer))
        layers.append(LayerForecast(path=path, phase=phase, kernel_ns=kernel_ns, high_ns=max(high_ns, kernel_ns)))
        done += ns
    return tuple(layers)


def _estimated(calls: Sequence[StepCall], prices: Sequence[Price]) -> tuple[EstimatedOp, ...]:
    count: Counter[str] = Counter()
    times: dict[str, float] = defaultdict(float)
    for call, price in zip(calls, prices, strict=True):
        if not price.is_known:
            count[call.call.op] += 1
            times[call.call.op] += price.ns
    ops = sorted(times, key=lambda op: -times[op])
    return tuple(EstimatedOp(op=op, calls=count[op], kernel_ns=round(times[op])) for op in ops)
