"""An optimizer step that takes a large part of the step."""

from __future__ import annotations

import re
from typing import Final, Literal

from profiler_kit.diagnosis.advice import optimizer_class, trials_of
from profiler_kit.diagnosis.idle_time import LAUNCH_CAUSES, LAUNCH_CLAIMS
from profiler_kit.diagnosis.phrases import Advice, advise
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork
from profiler_kit.records.claims import phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import text

_FUSED: Final = re.compile(r"[fF]used_?(adam|sgd|adagrad)", re.IGNORECASE)
_FOREACH_OPERATOR: Final = "aten::_foreach_"
_FOREACH: Final = re.compile(r"_foreach_|multi_tensor_apply")


Kind = Literal["fused", "single", "foreach", "loop"]
_ONE_PASS: Final = ("fused", "single")


def _optimizer(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    ns = work.phase_ns.get("optimizer", 0)
    idle_ns = sum(part.ns for part in work.idle if part.phase == "optimizer" and part.cause in LAUNCH_CAUSES)
    if not ns:
        return None
    kind = _kind(work)
    wait = "the device waits {} for its launches" if work.on_device else "Python between its operators takes {}"
    idle = f", and {wait.format(text(idle_ns, 'ns'))}" if idle_ns else ""
    can_fuse = bool(fusible_optimizer(report, work))
    return StepPart(
        ns=ns + idle_ns,
        most="low" if kind in _ONE_PASS else "high",
        what="The optimizer takes",
        sentences=(
            f"The optimizer step takes {text(ns, 'ns')} of {work.clock_name} {work.per_step}{idle}.",
            _EXPLANATIONS[kind],
        ),
        advice=_advice(kind, work.on_device, optimizer_class(report)),
        measures=(("time of the optimizer", ns, "ns"), ("idle time before its kernels", idle_ns, "ns")),
        trials=trials_of(report, *(("fused_optimizer",) if can_fuse else ()), "batch=2x"),
        claims=(*phase_claims("optimizer"), *(LAUNCH_CLAIMS if idle_ns else ())),
        keeps=0.5 if kind in _ONE_PASS else 0.0,  # half as many updates: a batch of twice the size
    )


_EXPLANATIONS: Final[dict[Kind, str]] = {
    "fused": "It is fused already: it reads and writes each parameter once.",
    "single": "It does a single operation on all tensors together, so it reads and writes each parameter once.",
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
    if kind in _ONE_PASS:
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
    return name if work.phase_ns.get("optimizer", 0) and _kind(work) not in _ONE_PASS and name in _HAS_FUSED else ""


def _kind(work: StepWork) -> Kind:
    names = [item.name for item in (*work.kernels, *work.operators)]
    if any(map(_FUSED.search, names)):
        return "fused"
    together = {item.name for item in work.operators if item.name.startswith(_FOREACH_OPERATOR)}
    if len(together) == 1:  # with others, the tensors are read again
        return "single"
    return "foreach" if together or any(map(_FOREACH.search, names)) else "loop"


OPTIMIZER_BOUND = step_rule(
    "optimizer_bound",
    _optimizer,
    Shares(0.25, high=0.50),  # from a quarter of the step on, the examples per step are few or the update is slow
    """
Fires on the optimizer step: its device time (on a CPU: operator time), and the idle time before its kernels that its own launches
cause. `low` if the optimizer is fused already, or does a single operation, as plain SGD does.

An optimizer reads and writes each parameter, its gradient and its state once. This takes the same time for any batch size. A
loop over the parameters launches several small kernels for each tensor; `foreach` launches a few for all tensors; `fused`
launches one and reads each value once. The names of the operators and kernels show which of them runs. On a CPU, `foreach` still
runs one operation for each tensor, so it saves little there, and `fused` is the remedy.
In a trace, the phase comes from marks, from `Optimizer.step`, or from the names of its kernels.
""",
    keeps=0.25,  # a fused optimizer reads and writes the state once, in a few launches
)
