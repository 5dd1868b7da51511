"""An optimizer step that takes a large part of the step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.diagnosis.advice import optimizer_class, trials_of
from profiler_kit.diagnosis.idle_time import LAUNCH_CAUSES, LAUNCH_CLAIMS
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.rules.embedding_gradients import embedding_gradients
from profiler_kit.diagnosis.step_work import StepWork, step_works, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# The optimizer does a few operations per parameter, forward and backward do several per parameter and example. From a
# quarter of the step on, the examples per step are few or the update is slow.
MIN_SHARE: Final = 0.25
# From half of the step on, no other phase can save as much.
LARGE_SHARE: Final = 0.50
_FUSED: Final = re.compile(r"[fF]used_?(adam|sgd|adagrad)", re.IGNORECASE)
_FOREACH: Final = re.compile(r"_foreach_|multi_tensor_apply")

DOC = f"""
Fires if the optimizer step takes at least {limit_percent(MIN_SHARE)} of the step: its device time (on a CPU: operator time),
and the idle time before its kernels that its own launches cause.

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: below that.

An optimizer reads and writes each parameter, its gradient and its state once. This takes the same time for any batch size. A
loop over the parameters launches several small kernels for each tensor; `foreach` launches a few for all tensors; `fused`
launches one and reads each value once. The names of the operators and kernels show which of them runs. On a CPU, `foreach` still
runs one operation for each tensor, so it saves little there, and `fused` is the remedy.
Rule `embedding_gradients` covers an optimizer that mostly updates embedding tables.
In a trace, the phase comes from marks, from `Optimizer.step`, or from the names of its kernels.
"""

Kind = Literal["fused", "foreach", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTime:
    """The time of the optimizer, the idle time before it, its share of the step, and how it updates the tensors."""

    ns: int
    idle_ns: int
    share: float
    kind: Kind


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of the optimizer."""
    static = report.static if isinstance(report, Report) else None

    def find(work: StepWork) -> OptimizerTime | None:
        embedding = embedding_gradients(work, static)  # its advice is more specific
        return optimizer_time(work) if embedding is None or not embedding.optimizer_ns else None

    if (worst := worst_step(step_works(report), find, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    can_fuse = bool(fusible_optimizer(report, work))
    wait = "the device waits {} for its launches" if work.on_device else "Python between its operators takes {}"
    idle = f", and {wait.format(text(match.idle_ns, 'ns'))}" if match.idle_ns else ""
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"The optimizer takes {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}The optimizer step takes {text(match.ns, 'ns')} of {work.clock_name} {work.per_step}{idle}.",
            _EXPLANATIONS[match.kind],
            worst.others_sentence(),
        ),
        advice=_advice(match.kind, work.on_device, optimizer_class(report)),
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of the optimizer", value=match.ns, unit="ns", where=work.name),
            Evidence(name="idle time before its kernels", value=match.idle_ns, unit="ns", where=work.name),
        ),
        trials=trials_of(report, *(("fused_optimizer",) if can_fuse else ()), "batch=2x"),
        weight=match.share,
        claims=("busy:phase:optimizer", *(LAUNCH_CLAIMS if match.idle_ns else ())),
    )


_EXPLANATIONS: Final[dict[Kind, str]] = {
    "fused": "It is fused already: it reads and writes each parameter once.",
    "foreach": "It updates all tensors together, in several passes over the parameters.",
    "loop": "It updates one tensor after the other, with several small operations for each.",
}
_FEWER_STEPS: Final = (
    "The update costs the same for every batch size, so a larger batch, or accumulating gradients over several batches, "
    "lowers its share."
)
_HAS_FUSED: Final = ("Adam", "AdamW", "SGD", "Adagrad")
_HAS_FOREACH: Final = ("ASGD", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")


def _advice(kind: Kind, on_device: bool, name: str) -> Advice:
    """Return the advice for the optimizer class `name`; empty if the class is unknown."""
    if kind == "fused":
        return Advice(f"{_FEWER_STEPS} Parameters with requires_grad_(False) need no update.")
    if not name:
        others = "; foreach=True for optimizers without it" if kind == "loop" and on_device else ""
        return advise(
            f"Use the fused optimizer: {{code}}, likewise Adam, SGD and Adagrad{others}. {_FEWER_STEPS}",
            "torch.optim.AdamW(model.parameters(), fused=True)",
        )
    if name in _HAS_FUSED:
        fused = f"torch.optim.{name}(model.parameters(), ..., fused=True)"
        return advise(f"Use the fused optimizer: {{code}}. {_FEWER_STEPS}", fused)
    if kind == "loop" and on_device and name in _HAS_FOREACH:
        together = f"torch.optim.{name}(model.parameters(), ..., foreach=True)"
        return advise(f"Update all tensors together: {{code}}. {_FEWER_STEPS}", together)
    known = f"{name} has no fused form; " if name in _HAS_FOREACH else ""
    return Advice(
        f"{_FEWER_STEPS} {known}Adam, AdamW, SGD and Adagrad of torch.optim have {'one' if known else 'a fused form'}."
    )


def fusible_optimizer(report: Report | TraceReport, work: StepWork) -> str:
    """Return the class of the optimizer of `work` that `fused=True` makes faster; empty if it is fused, or has no such form.

    Where the class is unknown, it is assumed to be AdamW.
    """
    name = optimizer_class(report) or "AdamW"
    return name if work.phase_ns.get("optimizer", 0) and _kind(work) != "fused" and name in _HAS_FUSED else ""


def optimizer_time(work: StepWork) -> OptimizerTime | None:
    """Return the time of the optimizer step; None below the limit."""
    ns = work.phase_ns.get("optimizer", 0)
    idle_ns = sum(part.ns for part in work.idle if part.phase == "optimizer" and part.cause in LAUNCH_CAUSES)
    share = work.share(ns + idle_ns)
    return OptimizerTime(ns=ns, idle_ns=idle_ns, share=share, kind=_kind(work)) if ns and share >= MIN_SHARE else None


def _kind(work: StepWork) -> Kind:
    names = [item.name for item in (*work.kernels, *work.operators)]
    if any(map(_FUSED.search, names)):
        return "fused"
    return "foreach" if any(map(_FOREACH.search, names)) else "loop"


# A fused optimizer reads and writes the state once, in a few launches.
KEEPS: Final = 0.25

RULE = Rule("optimizer_bound", DOC, check, "cause", "both", keeps=KEEPS)
