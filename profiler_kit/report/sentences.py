"""What a report says in words: what was looked at, on what, from how many steps, and what each figure means."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.records.document import Paragraph
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, Environment
from profiler_kit.units import text

WARNING = "warning: "
# Below this many timed steps a median's interval says little, and the reader is told so.
FEW_STEPS = 5


def header(report: Report, run: ConfigRun | None) -> tuple[Paragraph, ...]:
    """Target, device, steps and convention, then what had to be announced; warnings last, set apart."""
    lines = [Paragraph(text=_target(report)), *(Paragraph(text=said) for said in _measured(report, run))]
    if report.static is not None:
        lines.append(Paragraph(text=report.static.convention))
    notes = list(dict.fromkeys(_notes(report, run)))
    lines += [Paragraph(text=note, role="note") for note in notes if not note.startswith(WARNING)]
    lines += [Paragraph(text=note.removeprefix(WARNING), role="warning") for note in notes if note.startswith(WARNING)]
    return tuple(lines)


def _target(report: Report) -> str:
    target = report.target
    inputs = (
        ", ".join(f"{i.name} {'x'.join(map(str, i.shape)) or 'scalar'} {i.dtype}" for i in target.inputs) or "no inputs"
    )
    what = "One training step" if target.mode == "train" else "One inference step"
    parts = [f"{what} on {inputs}"]
    if target.loss is not None:
        parts.append(f"loss {target.loss}")
    if target.optimizer is not None:
        parts.append(f"optimizer {target.optimizer}")
    if target.dtype is not None:
        parts.append(f"dtype {target.dtype}")
    if target.amp is not None:
        parts.append(f"autocast to {target.amp}")
    if target.channels_last:
        parts.append("channels_last")
    return f"{', '.join(parts)}."


def _measured(report: Report, run: ConfigRun | None) -> Iterator[str]:
    environment = run.environment if run else next((r.environment for r in report.runs if r.environment), None)
    if environment is not None:
        yield f"On {place(environment)}."
    if run is not None:
        yield steps(run)
    elif report.runs:
        failed = "the one run" if len(report.runs) == 1 else f"all {len(report.runs)} runs"
        yield f"Nothing could be measured, {failed} failed; the figures below are counted."
    else:
        yield f"Counted on {report.static.device if report.static else 'no'} tensors; nothing was run, so there are no times."


def place(environment: Environment) -> str:
    """The machine and the versions, in one line."""
    parts = [f"{environment.device_name} ({environment.device})" if environment.device_name else environment.device]
    if environment.threads is not None and environment.device == "cpu":
        parts[0] = f"{environment.device_name or 'CPU'} (cpu, {_some(environment.threads, 'thread')})"
    parts.append(f"torch {environment.torch}")
    if environment.cudnn is not None:
        parts.append(f"cuDNN {environment.cudnn}")
    parts.append(f"Python {environment.python}")
    return ", ".join(parts)


def steps(run: ConfigRun) -> str:
    """From how many steps the figures of `run` come."""
    timed = f"Median of {_some(len(run.steps_ns), 'timed step')} after {_some(run.warmup_steps, 'warm-up step')}"
    if not run.traced_steps:
        return f"{timed}; no traced steps, so no times per layer."
    kind = "operator" if run.clock == "operator" else "kernel"
    return f"{timed}; {kind} time: mean of {run.traced_steps:,} more, under the profiler."


def _notes(report: Report, run: ConfigRun | None) -> Iterator[str]:
    guessed = report.target.inputs_from == "guess"
    said = [note for note in report.target.notes if guessed and "guess" in note.lower()]
    if guessed:
        yield from (WARNING + note for note in said or ["the input shapes are a guess: give yours with -i"])
    if run is not None and len(run.steps_ns) < FEW_STEPS:
        yield f"{WARNING}only {_some(len(run.steps_ns), 'timed step')}: a longer --budget gives a narrower interval"
    if report.static is None:
        yield f"{WARNING}the model could be run but not counted"
    elif report.static.uncounted:
        ops = report.static.uncounted
        calls = sum(op.calls for op in ops)
        yield f"{WARNING}{_some(len(ops), 'op')} without a formula ({_some(calls, 'call')}): FLOPs are a lower bound"
    yield from (note for note in report.target.notes if note not in said)
    yield from report.notes
    if report.static is not None:
        yield from report.static.notes
    if run is not None:
        yield from run.notes


def per_sample(report: Report) -> str | None:
    """The step's cost divided by the first input's first dimension; None where that is no batch."""
    if report.static is None or not report.target.inputs or not report.target.inputs[0].shape:
        return None
    first = report.target.inputs[0]
    batch = first.shape[0]
    if batch < 2 or report.static.forward.macs % batch:
        return None
    macs = text(report.static.forward.macs // batch, "macs")
    step = f", {text(report.static.step.flops / batch, 'flops')} FLOPs a step" if report.target.mode == "train" else ""
    return f"Per sample ({batch}, the first dimension of {first.name}): {macs} MACs forward{step}."


def clocks(run: ConfigRun) -> str:
    """What each of the clocks shown for `run` is."""
    measured = {
        clock
        for timing in run.phases
        for clock, ns in (("events", timing.event_ns), ("kernel", timing.kernel_ns))
        if ns is not None
    }
    said = ["Stopwatch: time.time() around the phase"]
    if run.clock == "kernel" or "events" in measured:
        said[0] += ", not synchronised: whoever waits (.item() in the loss) pays for all work queued before"
    if "events" in measured:
        said.append("events: between CUDA events, launch gaps included")
    if "kernel" in measured and run.clock == "operator":
        said.append("operator time: self time of the phase's operators")
    elif "kernel" in measured:
        said.append("kernel time: the phase's kernels on the device")
    return f"{'; '.join(said)}."


def idle(run: ConfigRun) -> str | None:
    """The device's idle time per step by cause; None where it was not measured."""
    if not run.idle:
        return None
    total = sum(part.ns for part in run.idle)
    parts = ", ".join(
        f"{part.cause} {text(part.ns, 'ns')}" for part in sorted(run.idle, key=lambda part: (-part.ns, part.cause))
    )
    return f"Device idle {text(total, 'ns')} per step: {parts}."


def noise(report: Report, run: ConfigRun) -> str | None:
    """What a second fresh process of the same configuration gave; None without one."""
    repeat = next((r for r in report.runs if r.config.repeat_of == run.config.name and r.step_ns is not None), None)
    if repeat is None or repeat.step_ns is None or run.step_ns is None or not run.step_ns.median:
        return None
    apart = abs(repeat.step_ns.median - run.step_ns.median) / run.step_ns.median
    return f"{run.config.name} in a second process differs by {text(100 * apart, 'percent')}: a smaller difference is noise."


def _some(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
