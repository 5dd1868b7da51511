"""Anomaly detection that was left on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent

# Anomaly detection checks each gradient that a node returns, so it has about one check per node.
MIN_CHECKS_PER_NODE: Final = 0.5
MIN_NODES: Final = 4
# A debugging mode in a training loop is always worth a line; from here on, it is a main cost.
MEDIUM_SHARE: Final = 0.05
_NODE: Final = "autograd::engine::evaluate_function: "
_ACCUMULATE: Final = "AccumulateGrad"
_CHECK: Final = "aten::isnan"
# The operators of a check: (grad != grad).any().item().
_CHECK_OPERATORS: Final = frozenset(
    {"aten::isnan", "aten::ne", "aten::any", "aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"}
)

DOC = f"""
Fires if backward calls `{_CHECK}` at least {MIN_CHECKS_PER_NODE:g} times per autograd node (with at least {MIN_NODES} nodes):
`torch.autograd.set_detect_anomaly(True)` checks every gradient for NaN, and on a device the host waits for each answer.

- `medium`: these checks take at least {limit_percent(MEDIUM_SHARE)} of the operator time of a CPU, or there is a device.
- `low`: below that.

Anomaly detection also saves a stack trace for each operator of forward, which these operators do not include, so their share is a
lower bound. The rule reads traces, and reports of runs on a CPU.
"""


class _Operator(NamedTuple):
    name: str
    calls: int
    ns: int


class _Checks(NamedTuple):
    """The checks of one run or trace. `share`: of the busy time."""

    place: str
    nodes: int
    checks: int
    share: float
    on_device: bool


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for a baseline on a CPU."""
    run = report.baseline()
    if run is None or run.clock != "operator":
        return
    operators = [_Operator(kernel.name, kernel.calls, kernel.kernel_ns) for kernel in run.kernels]
    yield from _finding(_checks(quoted_name(run), operators, run.device_ns or 0, on_device=False))


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the first trace with such checks."""
    for trace in report.traces:
        operators = [_Operator(item.name, item.calls, item.kernel_ns) for item in trace.operators]
        name = report.name(trace) if len(report.traces) > 1 else ""
        checks = _checks(name, operators, trace.busy_ns, on_device=trace.clock == "device")
        if checks is not None:
            yield from _finding(checks)
            return


def _checks(place: str, operators: Iterable[_Operator], busy_ns: int, *, on_device: bool) -> _Checks | None:
    nodes = checks = ns = 0
    for operator in operators:
        if operator.name.startswith(_NODE) and _ACCUMULATE not in operator.name:
            nodes += operator.calls
        elif operator.name in _CHECK_OPERATORS:
            ns += operator.ns
            checks += operator.calls if operator.name == _CHECK else 0
    if nodes < MIN_NODES or checks < MIN_CHECKS_PER_NODE * nodes or busy_ns <= 0:
        return None
    return _Checks(place, nodes, checks, min(1.0, ns / busy_ns), on_device)


def _finding(checks: _Checks | None) -> Iterator[Finding]:
    if checks is None:
        return
    is_large = checks.on_device or checks.share >= MEDIUM_SHARE
    yield RULE.finding(
        severity="medium" if is_large else "low",
        title=f"Anomaly detection is on: {plural(checks.checks, 'check')} for NaN in backward",
        explanation=join_sentences(
            f"{f'In {checks.place}: ' if checks.place else ''}{plural(checks.checks, 'check')} for "
            f"{plural(checks.nodes, 'autograd node')} take {percent(checks.share)} of the "
            f"{'device' if checks.on_device else 'operator'} time.",
            "The host waits for the answer of each check, and saves a stack trace for each operator of forward."
            if checks.on_device
            else "Anomaly detection also saves a stack trace for each operator of forward.",
        ),
        advice="Turn it off outside debugging: torch.autograd.set_detect_anomaly(False), and remove detect_anomaly() around "
        "backward.",
        evidence=(
            Evidence(name="checks for NaN", value=checks.checks, unit="count", where=checks.place),
            Evidence(name="autograd nodes", value=checks.nodes, unit="count", where=checks.place),
            Evidence(
                name="checks, share of the busy time", value=100.0 * checks.share, unit="percent", where=checks.place
            ),
        ),
        weight=checks.share,
        claims=("busy:phase:backward",),
    )


RULE = Rule("anomaly_mode", DOC, check, "cause", check_trace)
