"""Where the time, the work and the memory go: the claims of the forum answer, and the naive timing loop."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.document import Table, Value
from profiler_kit.records.runs import PhaseTiming
from profiler_kit.units import text
from scripts.case_study.figures import Figures, NaiveLoop, RunFigures
from scripts.case_study.judgement import (
    Judgement,
    Verdict,
    all_or_some,
    kernel_words,
    make_table,
    percent,
    percent_range,
)

TAKES_THE_TIME: Final = 0.5  # a phase "takes the time" with half of the device's time or more
TAKES_NONE: Final = 0.1  # and takes none of it below this
CLAIMED_V0, CLAIMED_V1 = 630_000_000, 270_000_000
SAME_COUNT: Final = 0.05  # a claimed count is met within 5 %
READS_TRUE: Final = 0.10  # a loop measures the step when it is within 10 % of the steady one


def judge_loss(figures: Figures) -> Judgement:
    """Whether the loss takes the step's time: its share by kernels (on a CPU: operators) beside that of a stopwatch."""
    runs = [r for r in figures.runs if r.model in ("v0", "v1") and r.repeat_of is None and r.process == 1]
    rows: list[tuple[Value, ...]] = []
    kernel_shares: list[float] = []
    stopwatch_shares: list[float] = []
    for run in runs:
        kernel, stopwatch = run.share("loss", "kernel"), run.share("loss", "stopwatch")
        if kernel is None or stopwatch is None:
            continue
        kernel_shares.append(kernel)
        stopwatch_shares.append(stopwatch)
        others = [percent(run.share(phase, "kernel")) for phase in ("forward", "backward")]
        rows.append(
            (run.model, run.config, percent(stopwatch), percent(run.share("loss", "event")), percent(kernel), *others)
        )
    if not rows:
        return Judgement(verdict="not measured")
    device = "device" if figures.cuda else "operator"
    table = make_table(
        "loss",
        f"Share of the loss by three clocks, and of forward and backward in {device} time",
        (
            "model",
            "configuration",
            "loss, stopwatch %",
            "loss, events %",
            f"loss, {device} %",
            "forward %",
            "backward %",
        ),
        rows,
        ("text", "text", "percent", "percent", "percent", "percent", "percent"),
    )
    said = [
        f"The loss has {percent_range(kernel_shares)} of the {device} time, and {percent_range(stopwatch_shares)} by a "
        "stopwatch that stops after `loss.item()`."
    ]
    if not figures.cuda:
        said.append(
            "On a CPU the two agree: each operator returns when it is done. The stopwatch misleads on a GPU only."
        )
    if min(kernel_shares) >= TAKES_THE_TIME:
        return Judgement(verdict="holds", sentences=tuple(said), table=table)
    verdict: Verdict = "fails" if max(kernel_shares) < TAKES_NONE else "holds in part"
    return Judgement(verdict=verdict, sentences=tuple(said), table=table)


def time_ratio(figures: Figures) -> Table | None:
    """V0's step over V1's under each configuration, taken apart into work and efficiency; None without both."""
    counts = figures.count("v0"), figures.count("v1")
    if counts[0] is None or counts[1] is None:
        return None
    work = (counts[0].macs / counts[0].batch) / (counts[1].macs / counts[1].batch)
    rows: list[tuple[Value, ...]] = []
    for config in _configs(figures, "v0"):
        v0, v1 = figures.run("v0", config), figures.run("v1", config)
        if v0 is None or v1 is None or v0.step_ns is None or v1.step_ns is None:
            continue
        ratio = v0.step_ns.median / v1.step_ns.median
        rows.append((config, v0.step_ns.median, v1.step_ns.median, ratio, work, ratio / work,
                     kernel_words(v0.dominant_family), kernel_words(v1.dominant_family)))  # fmt: skip
    return make_table(
        "time",
        "The step of V0 over that of V1 = work ratio (forward MACs) x efficiency ratio, and the kernels of the largest "
        "convolution's forward",
        ("configuration", "V0 step", "V1 step", "V0 : V1", "work", "efficiency", "V0 kernels", "V1 kernels"),
        rows,
        ("text", "ns", "ns", "ratio", "ratio", "ratio", "text", "text"),
    )


def judge_operations(figures: Figures) -> Judgement:
    """Whether some input size gives V0 and V1 the claimed numbers of operations, as MACs or as FLOPs."""
    sizes = sorted(
        {c.size for c in figures.counts if c.model == "v0"} & {c.size for c in figures.counts if c.model == "v1"}
    )
    if not sizes:
        return Judgement(verdict="not measured")
    macs = {(c.model, c.size): c.macs / c.batch for c in figures.counts}
    rows = [(size, macs["v0", size], macs["v1", size], macs["v0", size] / macs["v1", size]) for size in sizes]
    met = [
        (size, factor)
        for size, v0, v1, _ in rows
        for factor in (1, 2)
        if abs(factor * v0 / CLAIMED_V0 - 1) <= SAME_COUNT and abs(factor * v1 / CLAIMED_V1 - 1) <= SAME_COUNT
    ]
    ratios = [row[3] for row in rows]
    at = next((row for row in rows if row[0] == figures.size), rows[-1])
    near_v0 = min(rows, key=lambda row: abs(row[1] - CLAIMED_V0))
    near_v1 = min(rows, key=lambda row: abs(row[2] - CLAIMED_V1))
    said = [
        f"At {at[0]}x{at[0]} V0 does {text(at[1], 'macs')} MAC per image and V1 {text(at[2], 'macs')}.",
        f"V0 comes nearest to the claim at {near_v0[0]}x{near_v0[0]} ({text(near_v0[1], 'macs')}), V1 at "
        f"{near_v1[0]}x{near_v1[0]} ({text(near_v1[2], 'macs')}).",
        f"V0 : V1 is between {min(ratios):.2f} and {max(ratios):.2f} at the {len(rows)} sizes counted "
        f"({sizes[0]} to {sizes[-1]}); claimed is {CLAIMED_V0 / CLAIMED_V1:.2f}.",
    ]
    if met:
        said.append(f"Both numbers are met at size {met[0][0]}.")
    else:
        said.append("No size counted gives both numbers, neither as MACs nor as FLOPs (2 per MAC).")
        if min(ratios) > 1:
            said.append("The direction is right: V0 does more.")
    table = make_table(
        "operations",
        "Multiply-accumulates of one forward pass, per image",
        ("image size", "V0 MAC", "V1 MAC", "V0 : V1"),
        rows,
        ("count", "macs", "macs", "ratio"),
    )
    return Judgement(verdict="holds" if met else "fails", sentences=tuple(said), table=table)


def judge_memory(figures: Figures) -> Judgement:
    """Whether V0 needs less memory: by what autograd saves, by the measured peak, and what of it is workspace."""
    counts = figures.count("v0"), figures.count("v1")
    if counts[0] is None or counts[1] is None:
        return Judgement(verdict="not measured")
    saved = counts[0].saved_bytes, counts[1].saved_bytes
    said = [
        f"For backward of a batch of {counts[0].batch} V0 saves {text(saved[0], 'bytes')} and V1 {text(saved[1], 'bytes')}."
    ]
    rows: list[tuple[Value, ...]] = []
    lower = []
    for config in _configs(figures, "v0"):
        v0, v1 = figures.run("v0", config), figures.run("v1", config)
        if v0 is None or v1 is None or v0.peak_allocated_bytes is None or v1.peak_allocated_bytes is None:
            continue
        lower.append(v0.peak_allocated_bytes < v1.peak_allocated_bytes)
        rows.append((config, *_memory(v0), *_memory(v1)))
        if lower[-1] and v1.workspace_bytes is not None and v1.workspace_bytes > saved[1]:
            said.append(
                f"Under {config} V1 peaks at {text(v1.peak_allocated_bytes, 'bytes')}, of which "
                f"{text(v1.workspace_bytes, 'bytes')} are the workspace of {v1.workspace_path}."
            )
    if not rows:
        said.append("Peaks and workspace are those of the CUDA allocator and of cuDNN: they need a CUDA device.")
        return Judgement(verdict="not measured" if figures.cuda else "needs CUDA", sentences=tuple(said))
    saves_less = saved[0] < saved[1]
    said.append(f"V0's peak is the lower one under {sum(lower)} of {len(lower)} configurations.")
    verdict: Verdict = "holds in part"
    if all(lower) and saves_less:
        verdict = "holds"
    elif not any(lower) and not saves_less:
        verdict = "fails"
    heads = [f"{name} {what}" for name in ("V0", "V1") for what in ("peak, first step", "peak, steady", "workspace")]
    table = make_table(
        "memory",
        "Peak of the caching allocator, and the largest workspace of one op within it",
        ("configuration", *heads),
        rows,
        ("text", *("bytes",) * 6),
    )
    return Judgement(verdict=verdict, sentences=tuple(said), table=table)


def judge_naive(figures: Figures) -> Judgement:
    """Whether the naive loop measures something else than the steady step, and what."""
    if not figures.naive:
        return Judgement(verdict="not measured")
    rows: list[tuple[Value, ...]] = []
    wrong = []
    said = []
    for loop in figures.naive:
        wrong += [abs(ns / loop.true_ns - 1) > READS_TRUE for ns in (loop.cold_ns, loop.warm_ns)]
        name = f"{loop.model}, {loop.mode}"
        flag = "on" if loop.benchmark else "off"
        rows.append((name, flag, loop.steps, loop.cold_ns, loop.warm_ns, loop.true_ns, loop.flipped_ns))
    table = make_table(
        "naive",
        "Time per step by the loop's own clock: from the first step, again, with the device waited for, and after the flag "
        "was flipped in the same process",
        ("loop", "benchmark", "steps", "naive, cold", "naive, warm", "true", "true, flag flipped"),
        rows,
        ("text", "text", "count", "ns", "ns", "ns", "ns"),
    )
    for loop in figures.naive:
        if figures.cuda and loop.early and not loop.benchmark:
            said.append(
                f"{loop.model}: a stopwatch around the phases reads {_phases(loop.early)} in the first steps (the time to "
                f"launch) and {_phases(loop.late)} in the last ones (the time until the full launch queue takes more); "
                f"the true step is {text(loop.true_ns, 'ns')}."
            )
    if figures.cuda:
        said += _naive_ratios(figures)
    else:
        said.append("On a CPU only the missing warm-up can show; launch queue and tuning need CUDA.")
        return Judgement(verdict="holds in part" if any(wrong) else "needs CUDA", sentences=tuple(said), table=table)
    return Judgement(verdict=all_or_some(wrong), sentences=tuple(said), table=table)


def _naive_ratios(figures: Figures) -> list[str]:
    """What the naive loops say about benchmark=True, beside the truth: one sentence per loop measured both ways."""
    by_setting = {(loop.model, loop.mode, loop.benchmark): loop for loop in figures.naive}
    return [
        _naive_ratio(off, by_setting[model, mode, True])
        for (model, mode, benchmark), off in by_setting.items()
        if not benchmark and (model, mode, True) in by_setting
    ]


def _naive_ratio(off: NaiveLoop, on: NaiveLoop) -> str:
    return (
        f"{off.model}, {off.mode}: on : off is {on.cold_ns / off.cold_ns:.2f} by the naive loop and "
        f"{on.true_ns / off.true_ns:.2f} in truth; flipping the flag on shapes already seen gives "
        f"{off.flipped_ns / off.true_ns:.2f}, since the plan is already in the cache."
    )


def _phases(readings: tuple[PhaseTiming, ...]) -> str:
    return ", ".join(f"{r.phase} {text(r.stopwatch_ns, 'ns')}" for r in readings)


def _configs(figures: Figures, model: str) -> list[str]:
    return list(dict.fromkeys(r.config for r in figures.runs if r.model == model and r.repeat_of is None))


def _memory(run: RunFigures) -> tuple[Value, ...]:
    return run.first_step_peak_bytes, run.peak_allocated_bytes, run.workspace_bytes
