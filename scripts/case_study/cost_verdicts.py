"""Verdicts on time, operations and memory: the claims of the forum answer, and the naive timing loop."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.document import Table, Value
from profiler_kit.records.traces import PhaseTime
from profiler_kit.units import text
from scripts.case_study.figures import Figures, NaiveLoop, RunFigures
from scripts.case_study.judgment import (
    Judgment,
    Verdict,
    combine_cases,
    kernel_words,
    make_table,
    percent,
    percent_range,
)

MOST_TIME_SHARE: Final = 0.5  # a phase takes most of the time from half of the device time upwards
MINOR_TIME_SHARE: Final = 0.1  # the claim is false for a phase below this share
CLAIMED_V0_OPERATIONS, CLAIMED_V1_OPERATIONS = 630_000_000, 270_000_000
COUNT_TOLERANCE: Final = 0.05  # a count matches the claimed count within 5 %
STEP_TOLERANCE: Final = 0.10  # a loop measures the step if it reads within 10 % of the true step


def judge_loss(figures: Figures) -> Judgment:
    """Judge whether the loss takes most of the step, by kernel time (on a CPU: operator time) and by a stopwatch."""
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
        other_shares = [percent(run.share(phase, "kernel")) for phase in ("forward", "backward")]
        rows.append(
            (
                run.model,
                run.config,
                percent(stopwatch),
                percent(run.share("loss", "event")),
                percent(kernel),
                *other_shares,
            )
        )
    if not rows:
        return Judgment(verdict="Not measured")
    device = "device" if figures.cuda else "operator"
    table = make_table(
        "loss",
        f"Share of the loss by three clocks, and share of forward and backward in {device} time",
        (
            "model",
            "configuration",
            "loss by stopwatch",
            "loss by CUDA events",
            f"loss by {device} time",
            f"forward by {device} time",
            f"backward by {device} time",
        ),
        rows,
        ("text", "text", "percent", "percent", "percent", "percent", "percent"),
    )
    sentences = [
        f"The loss takes {percent_range(kernel_shares)} of the {device} time.",
        f"A stopwatch that stops after `loss.item()` attributes {percent_range(stopwatch_shares)} of the step to the loss.",
    ]
    if not figures.cuda:
        sentences.append(
            "On a CPU the two clocks agree, because each operator returns when its work is complete. "
            "The stopwatch misleads on a GPU only."
        )
    if min(kernel_shares) >= MOST_TIME_SHARE:
        return Judgment(verdict="True", sentences=tuple(sentences), table=table)
    verdict: Verdict = "False" if max(kernel_shares) < MINOR_TIME_SHARE else "Partly"
    return Judgment(verdict=verdict, sentences=tuple(sentences), table=table)


def make_ratio_table(figures: Figures) -> Table | None:
    """Return the step ratio V0 / V1 per configuration as work ratio x efficiency ratio; None without both counts."""
    counts = figures.count("v0"), figures.count("v1")
    if counts[0] is None or counts[1] is None:
        return None
    work = (counts[0].macs / counts[0].batch) / (counts[1].macs / counts[1].batch)
    rows: list[tuple[Value, ...]] = []
    for config in _config_names(figures, "v0"):
        v0, v1 = figures.run("v0", config), figures.run("v1", config)
        if v0 is None or v1 is None or v0.step_ns is None or v1.step_ns is None:
            continue
        ratio = v0.step_ns.median / v1.step_ns.median
        rows.append((config, v0.step_ns.median, v1.step_ns.median, ratio, work, ratio / work,
                     kernel_words(v0.dominant_family), kernel_words(v1.dominant_family)))  # fmt: skip
    return make_table(
        "time",
        "Step ratio V0 / V1 = work ratio (forward MACs) x efficiency ratio, with the forward kernels of the largest convolution",
        (
            "configuration",
            "V0 step",
            "V1 step",
            "step ratio",
            "work ratio",
            "efficiency ratio",
            "V0 kernels",
            "V1 kernels",
        ),
        rows,
        ("text", "ns", "ns", "ratio", "ratio", "ratio", "text", "text"),
    )


def judge_operations(figures: Figures) -> Judgment:
    """Judge whether V0 and V1 need the claimed numbers of operations at some input size, as MACs or as FLOPs."""
    sizes = sorted(
        {c.size for c in figures.counts if c.model == "v0"} & {c.size for c in figures.counts if c.model == "v1"}
    )
    if not sizes:
        return Judgment(verdict="Not measured")
    macs = {(c.model, c.size): c.macs / c.batch for c in figures.counts}
    rows = [(size, macs["v0", size], macs["v1", size], macs["v0", size] / macs["v1", size]) for size in sizes]
    matching_sizes = [
        (size, factor)
        for size, v0, v1, _ in rows
        for factor in (1, 2)
        if abs(factor * v0 / CLAIMED_V0_OPERATIONS - 1) <= COUNT_TOLERANCE
        and abs(factor * v1 / CLAIMED_V1_OPERATIONS - 1) <= COUNT_TOLERANCE
    ]
    ratios = [row[3] for row in rows]
    size, v0_macs, v1_macs, _ = next((row for row in rows if row[0] == figures.size), rows[-1])
    near_v0 = min(rows, key=lambda row: abs(row[1] - CLAIMED_V0_OPERATIONS))
    near_v1 = min(rows, key=lambda row: abs(row[2] - CLAIMED_V1_OPERATIONS))
    sentences = [
        f"At {size}x{size}, V0 needs {text(v0_macs, 'macs')} MACs per image and V1 needs {text(v1_macs, 'macs')}.",
        f"V0 is nearest to the claimed number at {near_v0[0]}x{near_v0[0]} ({text(near_v0[1], 'macs')}). "
        f"V1 is nearest at {near_v1[0]}x{near_v1[0]} ({text(near_v1[2], 'macs')}).",
        f"The ratio V0 / V1 is {min(ratios):.2f} to {max(ratios):.2f} at the {len(rows)} counted sizes "
        f"({sizes[0]} to {sizes[-1]}). The claimed ratio is {CLAIMED_V0_OPERATIONS / CLAIMED_V1_OPERATIONS:.2f}.",
    ]
    if matching_sizes:
        sentences.append(f"Both numbers match at size {matching_sizes[0][0]}.")
    else:
        sentences.append("Neither MACs nor FLOPs (2 per MAC) match both numbers at any counted size.")
        if min(ratios) > 1:
            sentences.append("The order is right: V0 needs more operations than V1.")
    table = make_table(
        "operations",
        "MACs of one forward pass, per image",
        ("image size", "V0 MACs", "V1 MACs", "V0 / V1"),
        rows,
        ("count", "macs", "macs", "ratio"),
    )
    return Judgment(verdict="True" if matching_sizes else "False", sentences=tuple(sentences), table=table)


def judge_memory(figures: Figures) -> Judgment:
    """Judge whether V0 uses less memory, by the bytes saved for backward and by the measured peak with its workspace."""
    counts = figures.count("v0"), figures.count("v1")
    if counts[0] is None or counts[1] is None:
        return Judgment(verdict="Not measured")
    saved = counts[0].saved_bytes, counts[1].saved_bytes
    sentences = [
        f"At batch {counts[0].batch}, V0 saves {text(saved[0], 'bytes')} for backward and V1 saves {text(saved[1], 'bytes')}."
    ]
    rows: list[tuple[Value, ...]] = []
    lower = []
    for config in _config_names(figures, "v0"):
        v0, v1 = figures.run("v0", config), figures.run("v1", config)
        if v0 is None or v1 is None or v0.peak_allocated_bytes is None or v1.peak_allocated_bytes is None:
            continue
        lower.append(v0.peak_allocated_bytes < v1.peak_allocated_bytes)
        rows.append((config, *_memory_cells(v0), *_memory_cells(v1)))
        if lower[-1] and v1.workspace_bytes is not None and v1.workspace_bytes > saved[1]:
            sentences.append(
                f"{config}: V1 peaks at {text(v1.peak_allocated_bytes, 'bytes')}. "
                f"The workspace of {v1.workspace_path} takes {text(v1.workspace_bytes, 'bytes')}."
            )
    if not rows:
        sentences.append("Peak memory and workspace require a CUDA device.")
        return Judgment(verdict="Not measured" if figures.cuda else "Needs CUDA", sentences=tuple(sentences))
    saves_less = saved[0] < saved[1]
    sentences.append(f"V0 has the lower peak under {sum(lower)} of {len(lower)} configurations.")
    verdict: Verdict = "Partly"
    if all(lower) and saves_less:
        verdict = "True"
    elif not any(lower) and not saves_less:
        verdict = "False"
    titles = [
        f"{name} {figure}" for name in ("V0", "V1") for figure in ("peak, first step", "peak, later steps", "workspace")
    ]
    table = make_table(
        "memory",
        "Peak allocated memory, and the largest workspace of one op",
        ("configuration", *titles),
        rows,
        ("text", *("bytes",) * 6),
    )
    return Judgment(verdict=verdict, sentences=tuple(sentences), table=table)


def judge_naive(figures: Figures) -> Judgment:
    """Judge whether the naive loop fails to measure the step time."""
    if not figures.naive:
        return Judgment(verdict="Not measured")
    rows: list[tuple[Value, ...]] = []
    wrong = []
    sentences = []
    for loop in figures.naive:
        wrong += [abs(ns / loop.true_ns - 1) > STEP_TOLERANCE for ns in (loop.cold_ns, loop.warm_ns)]
        name = f"{loop.model}, {loop.mode}"
        flag = "on" if loop.benchmark else "off"
        rows.append((name, flag, loop.steps, loop.cold_ns, loop.warm_ns, loop.true_ns, loop.flipped_ns))
    table = make_table(
        "naive",
        "Time per step: without synchronization from the first step (cold) and repeated (warm), with synchronization (true), and "
        "with synchronization after the flag was flipped in the same process",
        ("loop", "benchmark", "steps", "naive, cold", "naive, warm", "true", "true, flag flipped"),
        rows,
        ("text", "text", "count", "ns", "ns", "ns", "ns"),
    )
    for loop in figures.naive:
        if figures.cuda and loop.early and not loop.benchmark:
            sentences.append(
                f"{loop.model}: the true step takes {text(loop.true_ns, 'ns')}. In the first steps, a stopwatch around the "
                f"phases reads launch times: {_format_phases(loop.early)}. In the last steps it reads "
                f"the wait for a place in the full launch queue: {_format_phases(loop.late)}."
            )
    if figures.cuda:
        sentences += _compare_loops(figures)
    else:
        sentences.append("A CPU shows only the missing warm-up. Launch queue and algorithm search require CUDA.")
        return Judgment(verdict="Partly" if any(wrong) else "Needs CUDA", sentences=tuple(sentences), table=table)
    return Judgment(verdict=combine_cases(wrong), sentences=tuple(sentences), table=table)


def _compare_loops(figures: Figures) -> list[str]:
    """Describe the effect of benchmark=True by naive and by true times: one sentence per loop with both settings."""
    by_setting = {(loop.model, loop.mode, loop.benchmark): loop for loop in figures.naive}
    return [
        _compare_loop(off, by_setting[model, mode, True])
        for (model, mode, benchmark), off in by_setting.items()
        if not benchmark and (model, mode, True) in by_setting
    ]


def _compare_loop(off: NaiveLoop, on: NaiveLoop) -> str:
    return (
        f"{off.model}, {off.mode}: benchmark=True changes the naive time by a factor of {on.cold_ns / off.cold_ns:.2f} and the "
        f"true time by {on.true_ns / off.true_ns:.2f}. Flipping the flag for known shapes changes the true time by "
        f"{off.flipped_ns / off.true_ns:.2f}, because cuDNN's plan is already cached."
    )


def _format_phases(phases: tuple[PhaseTime, ...]) -> str:
    return ", ".join(f"{p.phase} {text(p.stopwatch_ns, 'ns')}" for p in phases)


def _config_names(figures: Figures, model: str) -> list[str]:
    return list(dict.fromkeys(r.config for r in figures.runs if r.model == model and r.repeat_of is None))


def _memory_cells(run: RunFigures) -> tuple[Value, ...]:
    return run.first_step_peak_bytes, run.peak_allocated_bytes, run.workspace_bytes
