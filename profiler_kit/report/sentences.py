"""What a report says in words: what was looked at, on what, from how many steps, and what each figure means."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.records.configs import Environment
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount
from profiler_kit.records.document import FindingList, Paragraph, Section
from profiler_kit.records.laboratory import SweepTime
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.roofline import Roof, Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.report.columns.column import WorkUnit
from profiler_kit.statistics.noise import noise_of
from profiler_kit.units import digits, percent, plural, text

WARNING = "warning: "
# Below this many timed steps a median's interval says little, and the reader is told so.
FEW_STEPS = 5


def header(report: Report, run: ConfigRun | None, unit: WorkUnit = "flop") -> tuple[Paragraph, ...]:
    """Target, device, steps and convention, then what had to be announced; warnings last, set apart.

    `unit`: what work is told in beside the MACs of forward.
    """
    lines = [Paragraph(text=_target(report)), *(Paragraph(text=said) for said in _measured(report, run))]
    if report.static is not None:
        lines.append(Paragraph(text=_counted(report, report.static, unit)))
        lines.append(Paragraph(text=_convention(report.static)))
    notes = list(dict.fromkeys(_notes(report, run)))
    minor = set(run.notes if run is not None else ()) - set(report.notes)  # on how one run was measured
    lines += [Paragraph(text=n, role="note", detail=n in minor) for n in notes if not n.startswith(WARNING)]
    lines += [Paragraph(text=note.removeprefix(WARNING), role="warning") for note in notes if note.startswith(WARNING)]
    return tuple(lines)


def _convention(static: StaticCount) -> str:
    if static.convention_name == DEFAULT_CONVENTION:
        return static.convention
    return f"Convention {static.convention_name}. {static.convention} Findings rest on the kit's own count."


def _target(report: Report) -> str:
    target = report.target
    inputs = ", ".join(f"{tensor.name} {tensor.text}" for tensor in target.inputs) or "no inputs"
    what = "Training step" if target.mode == "train" else "Inference step"
    parts = [f"{what} on {inputs}"]
    settings = {"loss": target.loss, "optimizer": target.optimizer, "dtype": target.dtype, "autocast to": target.amp}
    parts += [f"{name} {value}" for name, value in settings.items() if value is not None]
    if target.channels_last:
        parts.append("channels_last")
    return f"{', '.join(parts)}."


def _measured(report: Report, run: ConfigRun | None) -> Iterator[str]:
    environment = run.environment if run else next((r.environment for r in report.runs if r.environment), None)
    if environment is not None:
        sampled = ""
        if run is not None:
            many = "" if run.traced_steps == 1 else "s"
            sampled = f"; {len(run.steps_ns):,} timed, {run.traced_steps:,} traced step{many}"
        yield f"{place(environment)}{sampled}."
    if run is not None:
        return
    if report.runs:
        failed = "the one run" if len(report.runs) == 1 else f"all {len(report.runs)} runs"
        yield f"Nothing could be measured, {failed} failed; the figures below are counted."
    else:
        yield f"Counted on {report.static.device if report.static else 'no'} tensors; nothing was run, so there are no times."


def place(environment: Environment) -> str:
    """The machine and the versions, in one line."""
    parts = [environment.device_name or environment.device]
    if environment.threads is not None and environment.device == "cpu":
        parts[0] = f"{environment.device_name or 'CPU'} (cpu, {plural(environment.threads, 'thread')})"
    parts.append(f"torch {environment.torch}")
    if environment.cudnn is not None:
        parts.append(f"cuDNN {_dotted(environment.cudnn)}")
    parts.append(f"Python {environment.python}")
    return ", ".join(parts)


def _dotted(version: str) -> str:
    """A cuDNN version as people write it: 9.19.0 for 91900, 8.9.2 for 8902; anything else as it is."""
    if not version.isdecimal() or len(version) not in (4, 5):
        return version
    unit = 1000 if len(version) == 4 else 10_000
    major, rest = divmod(int(version), unit)
    return f"{major}.{rest // 100}.{rest % 100}"


def steps(run: ConfigRun) -> str:
    """From how many steps the figures of `run` come."""
    timed = f"Median of {plural(len(run.steps_ns), 'timed step')} after {plural(run.warmup_steps, 'warm-up step')}"
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
        yield f"{WARNING}only {plural(len(run.steps_ns), 'timed step')}: a longer --budget gives a narrower interval"
    if report.static is None:
        yield f"{WARNING}the model could be run but not counted"
    elif report.static.uncounted:
        ops = report.static.uncounted
        calls = sum(op.calls for op in ops)
        yield f"{WARNING}{plural(len(ops), 'op')} without a formula ({plural(calls, 'call')}): FLOPs are a lower bound"
    yield from (note for note in report.target.notes if note not in said)
    yield from report.notes
    if report.static is not None:
        yield from report.static.notes
    if run is not None:
        yield from run.notes


def _counted(report: Report, static: StaticCount, unit: WorkUnit) -> str:
    """What one step asks for, in one line; per sample too, where the first input's first dimension is a batch."""
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
        figures += [f"{step} a step", f"{text(static.saved_bytes, 'bytes')} saved for backward"]
    elif unit == "flop":
        figures.append(f"{text(static.forward.flops, 'flops')} FLOPs")
    return f"{', '.join(figures)}."


def findings(listed: tuple[Finding, ...]) -> Section:
    """The findings, or that there are none."""
    return Section(title="Findings", blocks=(FindingList(findings=listed) if listed else Paragraph(text="None."),))


def flags(environment: Environment, has: str) -> Iterator[Paragraph]:
    """torch's flags and the variables that matter; `has`: whether torch has or had them."""
    for title, values in ((f"Flags as torch {has} them", environment.flags), ("Variables", environment.variables)):
        if values:
            yield Paragraph(text=f"{title}: {', '.join(f'{v.name}={v.value}' for v in values)}")


def unsynchronised(run: ConfigRun) -> str:
    """The stopwatch's trap, for the caption of a table that shows it; empty where nothing is queued."""
    if run.clock != "kernel" or not any(timing.phase == "loss" and timing.stopwatch_ns for timing in run.phases):
        return ""
    return "; by stopwatch, .item() in the loss waits for all that was queued"


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
        said.append("operators: self time of the phase's operators")
    elif "kernel" in measured:
        said.append("kernels: the phase's kernels on the device")
    return f"{'; '.join(said)}."


def idle(run: ConfigRun) -> str | None:
    """How much of a traced step the device works; None where its idle time was not measured."""
    if not run.idle or run.span_ns is None:
        return None
    busy_ns = run.span_ns - sum(part.ns for part in run.idle)
    work = f"{text(busy_ns, 'ns')} ({text(100 * busy_ns / run.span_ns, 'percent')})"
    if run.clock == "operator":
        return f"In a traced step of {text(run.span_ns, 'ns')}, operators run for {work}."
    return (
        f"In a traced step of {text(run.span_ns, 'ns')}, the device works for {work}. The profiler slows the host, so without "
        "it the device is idle for less."
    )


def noise(report: Report, run: ConfigRun) -> str | None:
    """What a second fresh process of the same configuration gave; None without one."""
    apart = noise_of(report).own_gap(run)
    if apart is None:
        return None
    return f"{run.config.name} in a second process differs by {percent(apart)}: a smaller difference is noise."


def sweep(time: SweepTime) -> str:
    """How long all the runs took, and how much of it the device was needed."""
    return (
        f"All processes together took {text(time.wall_ns, 'ns')}; for {text(time.needed_ns, 'ns')} of that one of them "
        "needed the device."
    )


def roofline(line: Roofline) -> Iterator[str]:
    """The roof and where it is from, the arithmetic it is used in, and the step's floor."""
    yield f"{_roof(line.roof)}. Contractions in {line.arithmetic}."
    step = line.step
    if step is not None:
        binds = "arithmetic" if step.binds == "compute" else "memory traffic"
        yield f"Layer by layer the step takes at least {text(step.layers_ns, 'ns')}; most of it is for {binds}."


def attained(line: Roofline, run: ConfigRun) -> str | None:
    """How near `run` comes to the roof, on the device and in all; None without a trace."""
    step = line.step
    if step is None or step.attained_percent is None:
        return None
    share = text(step.attained_percent, "percent")
    sentence = f"The layers attain {share} of the roof ({line.roof.source}) in their device time"
    if run.step_ns is not None and run.step_ns.median:
        sentence += f", {text(100 * step.layers_ns / run.step_ns.median, 'percent')} over the timed step"
    return f"{sentence}."


def _roof(roof: Roof) -> str:
    """The roof in one line: ``NVIDIA H200 by its datasheet: fp32 67 TFLOP/s (ridge 14 FLOP/B), ..., 4.8 TB/s``."""
    source = "by its datasheet" if roof.source == "datasheet" else "as measured"
    peaks = [
        f"{peak.math} {text(peak.flops_per_s, 'flops/s')} (ridge {digits(peak.ridge_flops_per_byte, 3)} FLOP/B)"
        for peak in roof.peaks
    ]
    return f"{roof.hardware} {source}: {', '.join(peaks)}; {text(roof.bandwidth_bytes_per_s, 'bytes/s')}"
