"""Verdicts on the cuDNN flags: benchmark, deterministic and enabled. They need figures of a CUDA device."""

from __future__ import annotations

import math
from typing import Final

from profiler_kit.records.document import Value
from profiler_kit.records.families import IM2COL
from profiler_kit.units import text
from scripts.case_study.figures import Figures, RunFigures
from scripts.case_study.judgment import Judgment, Verdict, combine_cases, kernel_words, make_table, percent
from scripts.case_study.pairs import make_pairs

MIN_LARGE_SAVING: Final = 0.10  # "much faster" saves a tenth of the step or more
MIN_SAVING: Final = 0.02  # smaller differences can come from drift of the device clock
MIN_SLOWDOWN: Final = 1.2  # a round over new shapes is slower if it takes at least a fifth longer

BENCHMARK_PAIRS: Final = (
    ("default", "benchmark"),
    ("no-tf32", "benchmark+no-tf32"),
    ("amp_bf16", "benchmark+amp_bf16"),
)
DETERMINISTIC_PAIRS: Final = (("default", "deterministic"), ("benchmark", "benchmark+deterministic"))
CUDNN_OFF_PAIRS: Final = (("default", "cudnn-off"),)


def judge_benchmark(figures: Figures) -> Judgment:
    """Judge whether benchmark=True is much faster at a fixed shape, for every model and with and without TF32."""
    rows: list[tuple[Value, ...]] = []
    much_faster = []
    for pair in make_pairs(figures, BENCHMARK_PAIRS):
        much_faster.append(pair.faster and pair.saving >= MIN_LARGE_SAVING)
        steps = pair.break_even_steps(MIN_SAVING)
        rows.append(
            (pair.before.model, pair.before.config, pair.after.config, pair.before_ns, pair.after_ns,
             percent(pair.saving), percent(pair.difference.limit), pair.after.tuning_ns, "never" if steps is None else steps)
        )  # fmt: skip
    if not rows:
        return Judgment(verdict="Not measured")
    table = make_table(
        "benchmark",
        "Step with cudnn.benchmark off and on, and the number of steps after which its algorithm search breaks even",
        (
            "model",
            "off",
            "on",
            "step, off",
            "step, on",
            "time saved",
            "smallest change",
            "algorithm search",
            "break-even steps",
        ),
        rows,
        ("text", "text", "text", "ns", "ns", "percent", "percent", "ns", "count"),
    )
    sentences = [
        f"benchmark=True saves at least 10 % of the step, beyond noise, in {sum(much_faster)} of {len(much_faster)} pairs."
    ]
    for model in figures.models():
        run = figures.run(model, "default")
        data = run.share("data", "stopwatch") if run is not None else None
        if data is not None:
            sentences.append(f"{model} spends {100 * data:.0f} % of its step on data loading. No flag changes that.")
    return Judgment(verdict=combine_cases(much_faster), sentences=tuple(sentences), table=table)


def judge_shapes(figures: Figures) -> Judgment:
    """Judge whether benchmark=True is slower if shapes vary: rounds over many sizes, in a fresh process per setting."""
    off = next((s for s in figures.shapes if not s.benchmark), None)
    on = next((s for s in figures.shapes if s.benchmark), None)
    if off is None or on is None:
        return Judgment(verdict="Not measured")
    rounds = list(zip(off.cycles_ns, on.cycles_ns, strict=True))
    rows: list[tuple[Value, ...]] = [
        (f"round {i}" + (" (all shapes are new)" if i == 1 else ""), off_ns, on_ns, on_ns / off_ns)
        for i, (off_ns, on_ns) in enumerate(rounds, 1)
    ]
    rows.append(("one smaller last batch", off.tail_ns, on.tail_ns, on.tail_ns / off.tail_ns))
    rows.append(("all rounds", sum(off.cycles_ns), sum(on.cycles_ns), sum(on.cycles_ns) / sum(off.cycles_ns)))
    table = make_table(
        "shapes",
        f"Training of V1 at batch {on.batch}; each round uses {len(on.sizes)} sizes from {min(on.sizes)} to {max(on.sizes)}",
        ("", "benchmark off", "benchmark on", "on / off"),
        rows,
        ("text", "ns", "ns", "ratio"),
    )
    extra_ns, saved_ns = on.cycles_ns[0] - off.cycles_ns[0], off.cycles_ns[-1] - on.cycles_ns[-1]
    sentences = [
        f"A round over new shapes takes {text(on.cycles_ns[0] / off.cycles_ns[0], 'ratio')} as long with benchmark=True."
    ]
    slower_when_new = on.cycles_ns[0] >= MIN_SLOWDOWN * off.cycles_ns[0]
    faster_when_repeated = saved_ns > MIN_SAVING * off.cycles_ns[-1]
    if slower_when_new and faster_when_repeated:
        sentences.append(
            "Repeated shapes run faster with benchmark=True. The algorithm search of the first round breaks even after "
            f"{math.ceil(extra_ns / saved_ns):,} more rounds over the same shapes."
        )
    verdict: Verdict = "False"
    if slower_when_new:
        verdict = "Partly" if faster_when_repeated else "True"
    return Judgment(verdict=verdict, sentences=tuple(sentences), table=table)


def judge_reproducibility(figures: Figures) -> Judgment:
    """Judge whether benchmark=True makes results irreproducible that are bitwise reproducible by default."""
    rows: list[tuple[Value, ...]] = []
    became_irreproducible: list[bool] = []
    irreproducible_by_default: list[str] = []
    for model in figures.models():
        reproducible: dict[tuple[str, str], bool] = {}
        for config in ("default", "benchmark", "benchmark+deterministic"):
            runs = _processes(figures, model, config)
            if not runs or runs[0].repeatable_outputs is None:
                continue
            cells: list[Value] = []
            for result in ("outputs", "gradients"):
                within = [r.repeatable_outputs if result == "outputs" else r.repeatable_gradients for r in runs]
                digests = {r.output_digest if result == "outputs" else r.gradient_digest for r in runs}
                across = len(digests) == 1 if len(runs) > 1 else None
                reproducible[config, result] = all(within) and across is not False
                cells += [all(within), across]
            rows.append((model, config, len(runs), *cells))
        for result in ("outputs", "gradients"):
            before, after = reproducible.get(("default", result)), reproducible.get(("benchmark", result))
            if before is None or after is None:
                continue
            if before:
                became_irreproducible.append(not after)
            else:
                irreproducible_by_default.append(f"{result} of {model}")
    if not rows:
        return Judgment(verdict="Not measured")
    table = make_table(
        "reproducibility",
        "Bitwise reproducible results: two passes in one process, and fresh processes",
        ("model", "configuration", "processes", "outputs, one process", "outputs, fresh processes", "gradients, one process",
         "gradients, fresh processes"),
        rows,
        ("text", "text", "count", "bool", "bool", "bool", "bool"),
    )  # fmt: skip
    sentences = [
        f"benchmark=True breaks the reproducibility of {sum(became_irreproducible)} of {len(became_irreproducible)} "
        "results that are reproducible by default."
    ]
    if irreproducible_by_default:
        sentences.append(f"These results are irreproducible by default, too: {', '.join(irreproducible_by_default)}.")
    verdict = combine_cases(became_irreproducible) if became_irreproducible else "Not measured"
    return Judgment(verdict=verdict, sentences=tuple(sentences), table=table)


def judge_deterministic(figures: Figures) -> Judgment:
    """Judge whether deterministic=True makes training slower, with benchmark off and on."""
    pairs = make_pairs(figures, DETERMINISTIC_PAIRS)
    if not pairs:
        return Judgment(verdict="Not measured")
    slower = [pair.slower and -pair.saving >= MIN_SAVING for pair in pairs]
    table = make_table(
        "deterministic",
        "Step with cudnn.deterministic off and on",
        ("model", "off", "on", "step, off", "step, on", "slowdown", "smallest change"),
        [
            (pair.before.model, pair.before.config, pair.after.config, pair.before_ns, pair.after_ns,
             percent(-pair.saving), percent(pair.difference.limit))
            for pair in pairs
        ],
        ("text", "text", "text", "ns", "ns", "percent", "percent"),
    )  # fmt: skip
    sentence = f"deterministic=True is slower by at least 2 %, beyond noise, in {sum(slower)} of {len(slower)} pairs."
    return Judgment(verdict=combine_cases(slower), sentences=(sentence,), table=table)


def judge_fallback(figures: Figures) -> Judgment:
    """Judge whether enabled=False replaces cuDNN's convolution kernels by PyTorch's im2col; the table shows the cost."""
    rows: list[tuple[Value, ...]] = []
    uses_im2col = []
    for pair in make_pairs(figures, CUDNN_OFF_PAIRS):
        before, after = pair.before, pair.after
        uses_im2col.append(after.dominant_family == IM2COL)
        kernels = kernel_words(before.dominant_family), kernel_words(after.dominant_family)
        steps = pair.before_ns, pair.after_ns, pair.after_ns / pair.before_ns
        peaks = before.peak_allocated_bytes, after.peak_allocated_bytes
        rows.append(
            (before.model, "(root)" if before.dominant_path == "" else before.dominant_path, *kernels, *steps, *peaks)
        )
    if not rows:
        return Judgment(verdict="Not measured")
    table = make_table(
        "fallback",
        "Forward kernels of the layer with most MACs, step and peak memory, with cuDNN on and off",
        ("model", "layer", "kernels, on", "kernels, off", "step, on", "step, off", "off / on", "peak, on", "peak, off"),
        rows,
        ("text", "text", "text", "text", "ns", "ns", "ratio", "bytes", "bytes"),
    )
    sentence = f"The largest convolution runs as im2col and matrix products in {sum(uses_im2col)} of {len(uses_im2col)} models."
    return Judgment(verdict=combine_cases(uses_im2col), sentences=(sentence,), table=table)


def _processes(figures: Figures, model: str, config: str) -> list[RunFigures]:
    """Return all successful runs of `config`, one per fresh process, including A/A repeats."""
    runs = (r for r in figures.runs if r.model == model and config in (r.config, r.repeat_of))
    return [r for r in runs if r.failure is None]
