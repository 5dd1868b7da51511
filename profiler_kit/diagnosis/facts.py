"""Facts that a recording shows about the program. Texts of findings ask it, and state nothing that it does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.command_lines import kit_command
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import TraceSummary

HALF: Final = frozenset({"bfloat16", "float16"})
STACKS: Final = "torch.profiler.profile(with_stack=True)"
_HALF_MATH: Final = frozenset({"f16", "bf16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts that a report, a trace, or all traces of a report show.

    - `has_steps`: steps are measured or marked. Without them, shares are those of the recorded time.
    - `is_pass`: a measured step is a forward pass.
    - `trains`: there is a backward pass or an optimizer step. `has_backward`, `has_optimizer`: there is one.
    - `has_loader`: a DataLoader makes the batches.
    - `half`: convolutions and products compute in 16 bits.
    - `dtypes`: the floating-point types of the tensors that operators read; empty where they are not recorded.
    - `examples`: the examples of a step; None where nothing shows their number.
    - `stacks`: the code or the command that records the same with the calls of Python functions.
    """

    has_steps: bool = True
    is_pass: bool = False
    has_backward: bool = False
    has_optimizer: bool = False
    has_loader: bool = False
    half: bool = False
    dtypes: frozenset[str] = frozenset()
    examples: int | None = None
    stacks: str = STACKS

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass or an optimizer step."""
        return self.has_backward or self.has_optimizer

    @property
    def whole(self) -> str:
        """What shares are parts of: ``step``, ``forward pass``, or ``time`` where no steps are recorded."""
        return "forward pass" if self.is_pass else "step" if self.has_steps else "time"

    @property
    def each(self) -> str:
        """The words after a number per step, with a space before them; empty where no steps are recorded."""
        return f" per {self.whole}" if self.has_steps else ""

    def lacks(self, dtype: str) -> bool:
        """Return whether types are recorded, and `dtype` is none of them."""
        return bool(self.dtypes) and dtype not in self.dtypes

    def elsewhere(self) -> str:
        """Return where work can go that a step does not need."""
        places = ["before the loop", "in DataLoader workers" if self.has_loader else "in another process"]
        return ", ".join([*places, "or every few hundred steps only" if self.has_steps else "or after it"])


def counts_of(report: Report | TraceReport) -> StaticCount | None:
    """Return the counts of a report; None for traces."""
    return report.static if isinstance(report, Report) else None


def facts_of(source: Report | TraceReport | TraceSummary) -> Facts:
    """Return the facts of a report's target and baseline, of one trace, or of all traces of a report."""
    if isinstance(source, Report):
        return _report_facts(source)
    if isinstance(source, TraceSummary):
        return _trace_facts(source)
    facts = [_trace_facts(trace) for trace in source.traces]
    return Facts(
        has_steps=all(item.has_steps for item in facts),
        has_backward=any(item.has_backward for item in facts),
        has_optimizer=any(item.has_optimizer for item in facts),
        has_loader=any(item.has_loader for item in facts),
        half=any(item.half for item in facts),
        dtypes=frozenset[str]().union(*(item.dtypes for item in facts)),
    )


def _trace_facts(trace: TraceSummary) -> Facts:
    phases = {timing.phase for timing in trace.phases if timing.kernel_ns or timing.host_ns or timing.events}
    dtypes = frozenset(dtype for operator in trace.operators for dtype in operator.dtypes)
    return Facts(
        has_steps=bool(trace.steps),
        has_backward="backward" in phases,
        has_optimizer="optimizer" in phases,
        has_loader=bool(trace.loaders),
        half=bool(dtypes & HALF) or _is_half(trace),
        dtypes=dtypes,
    )


def _is_half(trace: TraceSummary) -> bool:
    """Return whether most of the time of kernels that state their arithmetic is in 16 bits."""
    stated = [kernel for kernel in trace.kernels if kernel.math is not None]
    half_ns = sum(kernel.kernel_ns for kernel in stated if kernel.math in _HALF_MATH)
    return 2 * half_ns > sum(kernel.kernel_ns for kernel in stated)


def _with_stacks(target: TargetInfo) -> str:
    if not target.is_loop:
        return STACKS
    if target.seen is None:
        return "session(model, stacks=True)"
    return kit_command("run", "--stacks", target.seen.program, *target.seen.arguments)


def _report_facts(report: Report) -> Facts:
    target, run = report.target, report.baseline()
    trains = target.mode == "train"
    return Facts(
        is_pass=not trains,
        stacks=_with_stacks(target),
        has_backward=trains,
        has_optimizer=trains and bool(target.optimizer),
        has_loader=target.has_loader,
        half=target.amp is not None or not HALF.isdisjoint((target.dtype, *(item.dtype for item in target.inputs))),
        examples=run.samples if run is not None else None,
    )
