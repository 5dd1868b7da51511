"""What the cuDNN flags do: benchmark, deterministic, enabled."""

from __future__ import annotations

import math
from typing import Final

from profiler_kit.records.document import Value
from profiler_kit.records.families import IM2COL
from profiler_kit.units import text
from scripts.case_study.figures import Figures, RunFigures
from scripts.case_study.judgement import Judgement, Verdict, all_or_some, kernel_words, make_table, percent
from scripts.case_study.pairs import pairs

MARKEDLY: Final = 0.10  # "markedly" faster: a tenth of the step or more
NOTICEABLY: Final = 0.02  # less than this is drift of the device's clock
HURTS: Final = 1.2  # a round over new shapes hurts when it takes a fifth longer

BENCHMARK: Final = (("default", "benchmark"), ("no-tf32", "benchmark+no-tf32"))
DETERMINISTIC: Final = (("default", "deterministic"), ("benchmark", "benchmark+deterministic"))
OFF: Final = (("default", "cudnn-off"),)


def judge_benchmark(figures: Figures) -> Judgement:
    """Whether benchmark=True is markedly faster at a fixed shape, for every model and with or without TF32."""
    if not figures.cuda:
        return Judgement(verdict="needs CUDA")
    rows: list[tuple[Value, ...]] = []
    marked = []
    for pair in pairs(figures, BENCHMARK):
        marked.append(pair.faster and pair.saving >= MARKEDLY)
        paid_back = pair.break_even_steps(NOTICEABLY)
        rows.append(
            (pair.before.model, pair.before.config, pair.after.config, pair.before_ns, pair.after_ns,
             percent(pair.saving), percent(pair.noise), pair.after.tuning_ns, "never" if paid_back is None else paid_back)
        )  # fmt: skip
    if not rows:
        return Judgement(verdict="not measured")
    table = make_table(
        "benchmark",
        "Step without and with cudnn.benchmark, and the steps until its tuning is paid back",
        ("model", "off", "on", "step, off", "step, on", "saved", "noise", "tuning", "paid back after steps"),
        rows,
        ("text", "text", "text", "ns", "ns", "percent", "percent", "ns", "count"),
    )
    said = [f"Faster by a tenth or more, beyond noise, in {sum(marked)} of {len(marked)} pairs."]
    for model in figures.models():
        run = figures.run(model, "default")
        data = run.share("data", "stopwatch") if run is not None else None
        if data is not None:
            said.append(f"{model} spends {100 * data:.0f} % of its step preparing data, which no flag changes.")
    return Judgement(verdict=all_or_some(marked), sentences=tuple(said), table=table)


def judge_shapes(figures: Figures) -> Judgement:
    """Whether benchmark=True hurts when shapes vary: rounds over many sizes, in a fresh process per setting."""
    if not figures.cuda:
        return Judgement(verdict="needs CUDA")
    off = next((s for s in figures.shapes if not s.benchmark), None)
    on = next((s for s in figures.shapes if s.benchmark), None)
    if off is None or on is None:
        return Judgement(verdict="not measured")
    rounds = list(zip(off.cycles_ns, on.cycles_ns, strict=True))
    rows: list[tuple[Value, ...]] = [
        (f"round {i}" + (" (every shape new)" if i == 1 else ""), a, b, b / a) for i, (a, b) in enumerate(rounds, 1)
    ]
    rows.append(("a smaller last batch, once", off.tail_ns, on.tail_ns, on.tail_ns / off.tail_ns))
    rows.append(("all rounds", sum(off.cycles_ns), sum(on.cycles_ns), sum(on.cycles_ns) / sum(off.cycles_ns)))
    table = make_table(
        "shapes",
        f"V1, batch {on.batch}, {len(on.sizes)} sizes from {min(on.sizes)} to {max(on.sizes)} per round",
        ("", "off", "on", "on : off"),
        rows,
        ("text", "ns", "ns", "ratio"),
    )
    extra_ns, saved_ns = on.cycles_ns[0] - off.cycles_ns[0], off.cycles_ns[-1] - on.cycles_ns[-1]
    said = [f"A round of new shapes takes {text(on.cycles_ns[0] / off.cycles_ns[0], 'ratio')} as long with it."]
    hurts_new = on.cycles_ns[0] >= HURTS * off.cycles_ns[0]
    helps_seen = saved_ns > NOTICEABLY * off.cycles_ns[-1]
    if hurts_new and helps_seen:
        said.append(
            "Shapes seen before run faster with it: where the same shapes come back, the first round is paid back after "
            f"{math.ceil(extra_ns / saved_ns):,} more rounds."
        )
    verdict: Verdict = "fails"
    if hurts_new:
        verdict = "holds in part" if helps_seen else "holds"
    return Judgement(verdict=verdict, sentences=tuple(said), table=table)


def judge_reproducibility(figures: Figures) -> Judgement:
    """Whether benchmark=True makes results irreproducible that are reproducible without it."""
    if not figures.cuda:
        return Judgement(verdict="needs CUDA")
    rows: list[tuple[Value, ...]] = []
    spoilt: list[bool] = []
    already: list[str] = []
    for model in figures.models():
        held: dict[tuple[str, str], bool] = {}
        for config in ("default", "benchmark", "benchmark+deterministic"):
            runs = _processes(figures, model, config)
            if not runs or runs[0].repeatable_outputs is None:
                continue
            cells: list[Value] = []
            for what in ("outputs", "gradients"):
                inside = [r.repeatable_outputs if what == "outputs" else r.repeatable_gradients for r in runs]
                digests = {r.output_digest if what == "outputs" else r.gradient_digest for r in runs}
                across = len(digests) == 1 if len(runs) > 1 else None
                held[config, what] = all(inside) and across is not False
                cells += [all(inside), across]
            rows.append((model, config, len(runs), *cells))
        for what in ("outputs", "gradients"):
            before, after = held.get(("default", what)), held.get(("benchmark", what))
            if before is None or after is None:
                continue
            if before:
                spoilt.append(not after)
            else:
                already.append(f"{what} of {model}")
    if not rows:
        return Judgement(verdict="not measured")
    table = make_table(
        "bits",
        "Same bits in three passes of one process, and in fresh processes",
        ("model", "configuration", "processes", "outputs, in process", "outputs, across", "gradients, in process",
         "gradients, across"),
        rows,
        ("text", "text", "count", "bool", "bool", "bool", "bool"),
    )  # fmt: skip
    said = [f"Reproducible by default and no longer with benchmark: {sum(spoilt)} of {len(spoilt)} results."]
    if already:
        said.append(f"Not reproducible by default either: {', '.join(already)}.")
    verdict = all_or_some(spoilt) if spoilt else "not measured"
    return Judgement(verdict=verdict, sentences=tuple(said), table=table)


def judge_deterministic(figures: Figures) -> Judgement:
    """Whether deterministic=True costs speed, with benchmark off and on."""
    if not figures.cuda:
        return Judgement(verdict="needs CUDA")
    found = pairs(figures, DETERMINISTIC)
    if not found:
        return Judgement(verdict="not measured")
    slower = [pair.slower and -pair.saving >= NOTICEABLY for pair in found]
    table = make_table(
        "deterministic",
        "Step without and with cudnn.deterministic",
        ("model", "off", "on", "step, off", "step, on", "cost", "noise"),
        [
            (pair.before.model, pair.before.config, pair.after.config, pair.before_ns, pair.after_ns,
             percent(-pair.saving), percent(pair.noise))
            for pair in found
        ],
        ("text", "text", "text", "ns", "ns", "percent", "percent"),
    )  # fmt: skip
    said = f"Slower by 2 % or more, beyond noise, in {sum(slower)} of {len(slower)} pairs."
    return Judgement(verdict=all_or_some(slower), sentences=(said,), table=table)


def judge_fallback(figures: Figures) -> Judgement:
    """Whether enabled=False takes the convolutions away from cuDNN, and what that costs."""
    if not figures.cuda:
        return Judgement(verdict="needs CUDA")
    rows: list[tuple[Value, ...]] = []
    fell = []
    for pair in pairs(figures, OFF):
        before, after = pair.before, pair.after
        fell.append(after.dominant_family == IM2COL)
        kernels = kernel_words(before.dominant_family), kernel_words(after.dominant_family)
        steps = pair.before_ns, pair.after_ns, pair.after_ns / pair.before_ns
        peaks = before.peak_allocated_bytes, after.peak_allocated_bytes
        rows.append(
            (before.model, "(root)" if before.dominant_path == "" else before.dominant_path, *kernels, *steps, *peaks)
        )
    if not rows:
        return Judgement(verdict="not measured")
    table = make_table(
        "fallback",
        "The layer with most work, its kernels in forward, the step and the peak, with cuDNN on and off",
        ("model", "layer", "kernels, on", "kernels, off", "step, on", "step, off", "off : on", "peak, on", "peak, off"),
        rows,
        ("text", "text", "text", "text", "ns", "ns", "ratio", "bytes", "bytes"),
    )
    said = f"The largest convolution runs as im2col and matrix products in {sum(fell)} of {len(fell)} models."
    return Judgement(verdict=all_or_some(fell), sentences=(said,), table=table)


def _processes(figures: Figures, model: str, config: str) -> list[RunFigures]:
    """All runs with samples of `config`, from every fresh process it had, A/A repetitions included."""
    named = (r for r in figures.runs if r.model == model and config in (r.config, r.repeat_of))
    return [r for r in named if r.failure is None]
