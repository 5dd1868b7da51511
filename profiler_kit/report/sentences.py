"""Sentences of a report: target, device, steps, counting convention, clocks, noise, roofline."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from profiler_kit.records.configs import Environment
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount
from profiler_kit.records.document import FindingList, Paragraph, Role, Section
from profiler_kit.records.experiments import SweepTime
from profiler_kit.records.notes import Choice, Note, plain_notes
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.roofline import Roof, Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.uncounted import BOUNDS, bound_text
from profiler_kit.report.columns.column import WorkUnit
from profiler_kit.statistics.noise import Sample, noise_of
from profiler_kit.units import digits, percent, plural, text

ESTIMATES: Final = {  # of processes that took turns, in the words of the table's explanation
    Sample.LOW_OF_TURNS: "the lower decile of their steps, which varied least between processes",
    Sample.MEAN_OF_TURNS: "the mean of their steps without the longest tenth, which varied least between processes",
    Sample.MEDIAN_OF_TURNS: "the median of their steps",
}
MAX_OTHERS: Final = 3  # names that are listed beside an assumed model
MIN_STEPS = 5  # with fewer timed steps a warning says that the median's interval is unreliable


def header(report: Report, run: ConfigRun | None, unit: WorkUnit = "flop") -> tuple[Paragraph, ...]:
    """Target, device, steps, counted work and convention, then notes, then warnings.

    `unit`: the unit of the step's work; the forward pass is in MACs.
    """
    lines = [Paragraph(text=_target(report)), *(Paragraph(text=sentence) for sentence in _measured(report, run))]
    if report.static is not None:
        lines += _counts(report, report.static, unit)
    warnings = [*_guesses(report), *_assumptions(report), *plain_notes(_warnings(report, run))]
    details = (
        plain_notes(filter(None, (*run.notes, run.error_note))) if run is not None else ()
    )  # about the measurement of one run
    notes = dict.fromkeys(
        (*warnings, *report.target.notes, *report.notes, *plain_notes(_static_notes(report)), *details)
    )
    # the assumptions about the target in the order of a step, other notes, then warnings
    for note in sorted(notes, key=lambda note: (note.rank, note in warnings)):
        role: Role = "warning" if note in warnings else "note"
        lines.append(Paragraph(text=str(note), role=role, detail=note in details and note not in report.notes))
    return tuple(lines)


def _counts(report: Report, static: StaticCount, unit: WorkUnit) -> Iterator[Paragraph]:
    """The counted work and the convention; the details of the default one are shown on request."""
    counted = _counted(report, static, unit)
    if static.convention_name != DEFAULT_CONVENTION:
        yield Paragraph(text=counted)
        own = "Findings use profiler_kit's own convention."
        yield Paragraph(text=f"Convention {static.convention_name}. {static.convention} {own}")
        return
    first, _, others = static.convention.partition(". ")
    yield Paragraph(text=f"{counted} {first.rstrip('.')}.")
    if others:
        yield Paragraph(text=others, detail=True)


def _target(report: Report) -> str:
    target = report.target
    inputs = ", ".join(f"{tensor.name} {tensor.text}" for tensor in target.inputs) or "no inputs"
    step = "Training step" if target.mode == "train" else "Inference step"
    parts = [f"{step} on {inputs}"]
    settings = {"loss": target.loss, "optimizer": target.optimizer, "dtype": target.dtype, "autocast to": target.amp}
    parts += [f"{name} {value}" for name, value in settings.items() if value is not None]
    if target.channels_last:
        parts.append("channels_last")
    if target.parallel is not None:
        parts.append(f"the batch of each of {target.parallel.text}")
    return f"{', '.join(parts)}."


def _measured(report: Report, run: ConfigRun | None) -> Iterator[str]:
    environment = run.environment if run else next((r.environment for r in report.runs if r.environment), None)
    if environment is not None:
        counts = ""
        if run is not None:
            counts = f"; {len(run.steps_ns):,} timed and {plural(run.traced_steps, 'traced step')}"
        yield f"{place(environment)}{counts}."
    if run is not None:
        return
    if report.runs:
        runs = "The run" if len(report.runs) == 1 else f"All {len(report.runs)} runs"
        yield f"{runs} failed: the figures below are counted, not measured."
    elif report.static is not None:
        times = "no times" if report.static.forecast is None else "times are predicted"
        yield f"Counted on {report.static.device} tensors without running the model: {times}."


def place(environment: Environment) -> str:
    """Device and versions in one line."""
    parts = [environment.device_name or environment.device]
    if environment.threads is not None and environment.device == "cpu":
        parts[0] = f"{environment.device_name or 'CPU'} (cpu, {plural(environment.threads, 'thread')})"
    parts.append(f"torch {environment.torch}")
    if environment.cudnn is not None:
        parts.append(f"cuDNN {_dotted(environment.cudnn)}")
    parts.append(f"Python {environment.python}")
    return ", ".join(parts)


def _dotted(version: str) -> str:
    """A cuDNN version with dots: 9.19.0 for 91900, 8.9.2 for 8902; any other text unchanged."""
    if not version.isdecimal() or len(version) not in (4, 5):
        return version
    unit = 1000 if len(version) == 4 else 10_000
    major, minor_patch = divmod(int(version), unit)
    return f"{major}.{minor_patch // 100}.{minor_patch % 100}"


def steps(run: ConfigRun) -> str:
    """The numbers of timed, warm-up and traced steps of `run`."""
    timed = f"Median of {plural(len(run.steps_ns), 'timed step')} after {plural(run.warmup_steps, 'warm-up step')}"
    if not run.traced_steps:
        return f"{timed}. No traced steps, so no times per layer."
    kind = "Operator" if run.clock == "operator" else "Kernel"
    return f"{timed}. {kind} time: mean of {plural(run.traced_steps, 'traced step')}.{_disagreement(run)}"


def _disagreement(run: ConfigRun) -> str:
    """A sentence if the replay of the traced steps without the profiler differs from the timed steps; "" otherwise."""
    replayed, timed = run.untraced_step_ns, run.step_ns
    if replayed is None or timed is None or (replayed.low <= timed.high and timed.low <= replayed.high):
        return ""
    times = f"{text(replayed.low, 'ns')} to {text(replayed.high, 'ns')}"
    return f" Without the profiler, the traced steps would take {times}: they differ from the timed steps."


def _guesses(report: Report) -> tuple[Note, ...]:
    """The notes on guessed inputs."""
    if not report.target.inputs_are_guessed:
        return ()
    notes = tuple(note for note in report.target.notes if note.code == "guessed")
    return notes or plain_notes(["the input shapes are guessed: pass yours with -i"])


def _assumptions(report: Report) -> Iterator[Note]:
    """One note on all assumed parts of the target except the inputs, with the options that set them."""
    target = report.target
    choices = [choice for choice in target.assumed if choice.subject != "inputs" and not target.is_loop]
    if choices:
        parts = "; ".join(_assumption(choice) for choice in choices)
        words = [word for choice in choices for word in choice.options]
        options = shlex.join(words) if target.inputs_from != "caller" else ""  # a model from Python has none
        yield Note(subject="assumed", text=f"{parts}. To set them: {options}" if options else parts)


def _assumption(choice: Choice) -> str:
    others = f" (others: {', '.join(choice.others[:MAX_OTHERS])})" if choice.others else ""
    return f"{choice.subject} {choice.value}{others}"


def _static_notes(report: Report) -> tuple[str, ...]:
    return report.static.notes if report.static is not None else ()


def _warnings(report: Report, run: ConfigRun | None) -> Iterator[str]:
    if run is not None and len(run.steps_ns) < MIN_STEPS:
        more = "a longer loop" if report.target.is_loop else "a longer --budget"
        yield f"only {plural(len(run.steps_ns), 'timed step')}: {more} gives a narrower interval"
    if report.static is None:
        yield "the model ran but could not be counted"
    elif report.static.uncounted:
        ops = report.static.uncounted
        calls = sum(op.calls for op in ops)
        yield f"{plural(len(ops), 'op')} without a formula ({plural(calls, 'call')}): FLOPs are a lower bound"
    for bound in report.static.bounds if report.static is not None else ():
        yield f"FLOPs, bytes and memory are {BOUNDS[bound.kind]}: {bound_text(bound)}"


def _counted(report: Report, static: StaticCount, unit: WorkUnit) -> str:
    """Parameters and work of one step in one line; MACs also per sample if the first input has a batch dimension."""
    macs = text(static.forward.macs, "macs")
    first = report.target.inputs[0] if report.target.inputs else None
    batch = first.shape[0] if first is not None and first.shape else 1
    if batch > 1 and static.forward.macs % batch == 0:
        macs += f" ({batch:,} x {text(static.forward.macs // batch, 'macs')})"
    figures = [f"{static.params:,} parameters", f"{macs} MACs forward"]
    if report.target.mode == "train":
        step = (
            f"{text(static.step.macs, 'macs')} MACs" if unit == "mac" else f"{text(static.step.flops, 'flops')} FLOPs"
        )
        figures += [f"{step} per step", f"{text(static.saved_bytes, 'bytes')} saved for backward"]
    elif unit == "flop":
        figures.append(f"{text(static.forward.flops, 'flops')} FLOPs")
    return f"{', '.join(figures)}."


def findings(findings: tuple[Finding, ...]) -> Section:
    """The section of findings; "None." without any."""
    block = FindingList(findings=findings) if findings else Paragraph(text="None.")
    return Section(title="Findings", blocks=(block,))


def flags(environment: Environment) -> Iterator[Paragraph]:
    """The flags of torch and the environment variables that affect it."""
    for title, values in (("torch flags", environment.flags), ("Environment variables", environment.variables)):
        if values:
            yield Paragraph(text=f"{title}: {', '.join(f'{v.name}={v.value}' for v in values)}")


def unsynchronized(run: ConfigRun) -> str:
    """A warning about stopwatch times for the caption of their table; empty where no kernels are queued."""
    if run.clock != "kernel" or not any(timing.phase == "loss" and timing.stopwatch_ns for timing in run.phases):
        return ""
    return "; stopwatch: .item() in the loss waits for all queued work"


def clocks(run: ConfigRun) -> str:
    """The definitions of the clocks in `run`'s phases."""
    names = {
        clock
        for timing in run.phases
        for clock, ns in (("events", timing.event_ns), ("kernel", timing.kernel_ns))
        if ns is not None
    }
    sentences = ["Stopwatch: time.time() around the phase."]
    if run.clock == "kernel" or "events" in names:
        sentences[0] = (
            "Stopwatch: time.time() around the phase, without synchronization. A call that waits, such as .item() in the loss, "
            "includes the time of all work queued before it."
        )
    if "events" in names:
        sentences.append("CUDA events: time between events around the phase, gaps between kernels included.")
    if "kernel" in names and run.clock == "operator":
        sentences.append("Operators: self time of the phase's operators.")
    elif "kernel" in names:
        sentences.append("Kernels: time of the phase's kernels on the device.")
    return " ".join(sentences)


def idle(run: ConfigRun) -> str | None:
    """Busy time of a traced step; None where idle time was not measured."""
    if not run.idle or not run.span_ns or run.busy_ns is None or run.busy_share is None:
        return None
    traced = run.busy_ns / run.span_ns
    busy = f"busy {percent(traced)} of a traced step: {text(run.busy_ns, 'ns')} of {text(run.span_ns, 'ns')}."
    if run.clock == "operator":
        return f"Operators {busy}"
    timed = f"is busy {percent(run.busy_share)} of a step" if run.busy_share > traced else "is idle for less time"
    return f"Device {busy} The profiler slows the host; without it the device {timed}."


def noise(report: Report, run: ConfigRun) -> str | None:
    """The difference between two processes of the same configuration; None without a second one."""
    difference = noise_of(report).repeat_gap(run)
    if difference is None:
        return None
    return f"Two processes of {run.config.name} differ by {percent(difference)}. ~ marks a difference that is not established."


def turns(report: Report, run: ConfigRun) -> str | None:
    """What the steps in the table are where processes took turns; None elsewhere."""
    of_report = noise_of(report)
    sample = of_report.host_sample(run, run)
    if run.step_ns is None or sample not in ESTIMATES or of_report.compared_step(run) == run.step_ns:
        return None
    return (
        "step ms: processes took turns, so that all configurations saw the same moments of the host. It is "
        f"{ESTIMATES[sample]}. The rest of this report describes the first process of {run.config.name}, "
        f"whose median step took {text(run.step_ns.median, 'ns')}."
    )


def sweep(time: SweepTime) -> str:
    """Wall time of all processes, and the part of it with the device in use."""
    return f"All processes took {text(time.wall_ns, 'ns')}. The device was in use for {text(time.needed_ns, 'ns')} of that."


def roofline(line: Roofline) -> Iterator[str]:
    """Peaks, bandwidth and their source, the arithmetic in use, and the shortest possible step."""
    yield f"{_roof(line.roof)}. Matrix products and convolutions in {line.arithmetic}."
    step = line.step
    if step is not None:
        binds = "arithmetic" if step.binds == "compute" else "memory traffic"
        yield f"Layer by layer, the step takes at least {text(step.layers_ns, 'ns')}, most of it for {binds}."


def attained(line: Roofline, run: ConfigRun) -> str | None:
    """Percent of roofline of `run`, in kernel (or operator) time and over the timed step; None without a trace."""
    step = line.step
    if step is None or step.attained_percent is None:
        return None
    share = text(step.attained_percent, "percent")
    clock = "operator" if run.clock == "operator" else "kernel"
    sentence = f"Layers reach {share} of the {line.roof.source} roofline in {clock} time"
    if run.step_ns is not None and run.step_ns.median:
        sentence += f", {text(100 * step.layers_ns / run.step_ns.median, 'percent')} over the timed step"
    return f"{sentence}."


def _roof(roof: Roof) -> str:
    """The roofline in one line: ``NVIDIA H200, datasheet: fp32 67 TFLOP/s (ridge 14 FLOP/B), ...; 4.8 TB/s``."""
    peaks = [
        f"{peak.math} {text(peak.flops_per_s, 'flops/s')} (ridge {digits(peak.ridge_flops_per_byte, 3)} FLOP/B)"
        for peak in roof.peaks
    ]
    return f"{roof.hardware}, {roof.source}: {', '.join(peaks)}; {text(roof.bandwidth_bytes_per_s, 'bytes/s')}"
