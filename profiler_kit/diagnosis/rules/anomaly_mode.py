"""Anomaly detection that was left on."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS
from profiler_kit.diagnosis.phrases import limit_percent, plural
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps
from profiler_kit.records.claims import idle_claims, phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent

# Anomaly detection checks each gradient that a node returns, so it has about one check per node.
MIN_CHECKS_PER_NODE: Final = 0.5
MIN_NODES: Final = 4
# A debugging mode in a training loop is always worth a line; from here on, it is a main cost.
MEDIUM_SHARE: Final = 0.05
HIGH_SHARE: Final = 0.25
_NODE: Final = "autograd::engine::evaluate_function: "
_ACCUMULATE: Final = "AccumulateGrad"
_CHECK: Final = "aten::isnan"
# The operators of a check: (grad != grad).any().item().
_CHECK_OPERATORS: Final = frozenset(
    {
        "aten::isnan",
        "aten::ne",
        "aten::any",
        "aten::_is_any_true",
        "aten::is_nonzero",
        "aten::item",
        "aten::_local_scalar_dense",
    }
)

DOC = f"""
Fires if backward calls `{_CHECK}` at least {MIN_CHECKS_PER_NODE:g} times per autograd node (with at least {MIN_NODES} nodes):
`torch.autograd.set_detect_anomaly(True)` checks every gradient for NaN, and on a device the host waits for each answer.

- `high`: its share of the step is at least {limit_percent(HIGH_SHARE)}.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that.

The share is an estimate: the host's time for the checks, plus the time to save a stack trace for each node in forward. A view
operator takes microseconds, and under anomaly detection mostly saves its stack trace, so the largest mean time of a view operator
counts once for each node. On a device, the share is at most that of its idle time.
"""


def _anomaly_mode(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    nodes = checks = check_ns = 0
    view_ns = 0.0
    for operator in step.trace.operators:
        if operator.name.startswith(_NODE) and _ACCUMULATE not in operator.name:
            nodes += operator.calls
        elif operator.name in _CHECK_OPERATORS:
            check_ns += operator.host_self_ns
            checks += operator.calls if operator.name == _CHECK else 0
        elif operator.family == "view" and operator.calls:
            view_ns = max(view_ns, operator.host_self_ns / operator.calls)
    if nodes < MIN_NODES or checks < MIN_CHECKS_PER_NODE * nodes or step.span_ns <= 0:
        return None
    most_ns = step.trace.idle_ns if step.on_device else step.span_ns
    share = step.share(min(check_ns + nodes * view_ns, most_ns))
    return StepPart(
        share=share,
        share_name="anomaly detection, share of the step",
        severity=severity_of(share, high=HIGH_SHARE, medium=MEDIUM_SHARE),
        title=f"Anomaly detection is on and takes about {percent(share)} of the {step.facts.whole}",
        sentences=(
            f"Backward calls {_CHECK} {plural(checks, 'time')} for {plural(nodes, 'autograd node')}, and forward saves a stack "
            "trace for each.",
            "The host waits for the answer of each check." if step.on_device else "",
        ),
        advice="Turn it off outside debugging: {code}, and no detect_anomaly() around backward.",
        code="torch.autograd.set_detect_anomaly(False)",
        measures=(("checks for NaN", checks, "count"), ("autograd nodes", nodes, "count")),
        claims=(*idle_claims("synchronization"), *LAUNCH_CLAIMS)
        if step.on_device
        else phase_claims("forward", "loss", "backward"),
    )


RULE = step_rule("anomaly_mode", DOC, _anomaly_mode, steps=all_steps)
