"""Results and times of one configuration that differ: between passes, between processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.pairs import counterpart, measured_runs
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.noise import Noise, noise_of
from profiler_kit.units import percent, text


@dataclass(frozen=True, slots=True)
class PassResult:
    """One result of a pass.

    `repeats`: whether it is bitwise reproducible within the process of a run. `digest`: its hash in a process.
    """

    name: str
    repeats: Callable[[ConfigRun], bool | None]
    digest: Callable[[ConfigRun | Repeat], str | None]


PASS_RESULTS: Final = (
    PassResult("outputs", lambda run: run.repeatable_outputs, lambda run: run.output_digest),
    PassResult("loss", lambda run: run.repeatable_loss, lambda run: run.loss_digest),
    PassResult("gradients", lambda run: run.repeatable_gradients, lambda run: run.gradient_digest),
)


def differs_between_passes(run: ConfigRun) -> bool:
    """Return whether the passes of one process differed in any part."""
    return run.repeatable is False or bool(parts_that_differ(run))


def parts_that_differ(run: ConfigRun) -> tuple[str, ...]:
    """Return the names of the parts that differed between the passes of one process."""
    return tuple(part.name for part in PASS_RESULTS if part.repeats(run) is False)


def parts_that_differ_between_processes(first: ConfigRun, second: ConfigRun | Repeat) -> tuple[PassResult, ...]:
    """Return the parts that are reproducible within each process but differ between the two.

    A second process that is only a `Repeat` has no record of its own reproducibility, and is assumed to be reproducible.
    """
    parts = []
    for part in PASS_RESULTS:
        runs = [run for run in (first, second) if isinstance(run, ConfigRun)]
        # older reports record one value for the run instead of one per part
        repeats = [run.repeatable if part.repeats(run) is None else part.repeats(run) for run in runs]
        digests = (part.digest(first), part.digest(second))
        if all(repeats) and None not in digests and digests[0] != digests[1]:
            parts.append(part)
    return tuple(parts)


def _not_repeatable(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs with the deterministic flag, and one for runs without it."""
    unrepeatable = [run for run in measured_runs(report) if differs_between_passes(run)]
    for deterministic in (True, False):
        runs = [run for run in unrepeatable if (run.config.deterministic is True) is deterministic]
        if runs:
            yield _pass_finding(report, runs, deterministic=deterministic)


def _equal_parts(run: ConfigRun) -> str:
    equal_names = [part.name for part in PASS_RESULTS if part.repeats(run) is True]
    if not equal_names or not parts_that_differ(run):
        return ""
    return f"The {join_list(equal_names)} {'is' if equal_names == ['loss'] else 'are'} equal."


def _pass_finding(report: Report, runs: list[ConfigRun], *, deterministic: bool) -> Finding:
    run = runs[0]
    on_cpu = run.clock == "operator"
    names = join_list([quoted_name(r) for r in runs], most=2)
    remedy = None if deterministic else counterpart(report, run, "deterministic", True)
    remedy_works = remedy is not None and remedy.failure is None and remedy.repeatable is True
    can_try = not deterministic and run is report.baseline() and (remedy is None or remedy_works)
    parts = join_list(parts_that_differ(run)) or "outputs or gradients"
    # the value of the loss does not change the gradients
    matters = any(set(parts_that_differ(r)) != {"loss"} for r in runs)
    return new_finding(
        severity="medium" if deterministic and matters else "info",
        title=f"Not bitwise reproducible: passes over the same batch give different {parts} in {names}"
        + (", although cudnn.deterministic is set" if deterministic else ""),
        explanation=join_sentences(
            "Three passes ran in one process, with the same weights and inputs and no optimizer step between them.",
            _equal_parts(run),
            "The usual cause: threads add partial sums in an order that changes from run to run."
            if on_cpu
            else "The usual cause: kernels add with atomics, in an order that changes from run to run.",
            f"With cudnn.deterministic=True ({quoted_name(remedy)}) all passes are bitwise equal."
            if remedy_works and remedy is not None
            else "",
        ),
        advice=_advice(deterministic, on_cpu),
        evidence=[
            piece
            for r in runs
            for piece in evidence_of(
                r.config.name, *((f"repeatable {p.name}", p.repeats(r), "bool") for p in PASS_RESULTS)
            )
        ]
        or [Evidence(name="repeatable", value=False, unit="bool", where=run.config.name)],
        trials=find_trials(report, run, ("deterministic",) if can_try else ()),
    )


def _advice(deterministic: bool, on_cpu: bool) -> Advice:
    if deterministic:
        return advise(
            "Call {code}: it raises an error that names the operator without a deterministic version. Set the environment "
            "variable CUBLAS_WORKSPACE_CONFIG=:4096:8.",
            _ALL_OPERATORS,
        )
    if on_cpu:
        return advise(
            "No action is needed unless you need bitwise equal results. In that case call {code}.", _ALL_OPERATORS
        )
    return advise(
        f"No action is needed unless you need bitwise equal results. In that case set {{code}}, or call {_ALL_OPERATORS}, which "
        "also covers PyTorch's own operators.",
        "torch.backends.cudnn.deterministic = True",
    )


_ALL_OPERATORS: Final = "torch.use_deterministic_algorithms(True)"


NOT_REPEATABLE = Rule(
    "not_repeatable",
    """
Fires if three forward and backward passes of one process differ in any bit, although they have the same weights and inputs.
Outputs, loss and gradients are compared separately, and the finding names the parts that differ.

- `medium`: `cudnn.deterministic=True` is set, and outputs or gradients differ. The flag covers cuDNN's algorithms only.
- `info`: without the flag, or if only the value of the loss differs.

Some loss functions are not bitwise reproducible (`nll_loss2d`, the cross-entropy of segmentation maps). A loss that differs does
not show a problem of the convolutions. Rule `false_reproducibility` covers differences between processes.
""",
    _not_repeatable,
)


@dataclass(frozen=True, slots=True)
class _DifferingRun:
    """A run, its second process, and the parts that differ between them."""

    first: ConfigRun
    second: ConfigRun | Repeat
    parts: tuple[PassResult, ...]


_COMPARE: Final = "Compare results between processes before you call them reproducible."


def _false_reproducibility(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs with benchmark, and at most one for runs without it."""
    runs = [
        differing_run for run in measured_runs(report) if (differing_run := _differing_run(report, run)) is not None
    ]
    for benchmark in (True, False):
        group = [run for run in runs if (run.first.config.benchmark is True) is benchmark]
        if group:
            yield _process_finding(report, group, benchmark=benchmark)


def _differing_run(report: Report, run: ConfigRun) -> _DifferingRun | None:
    repeat = next((r for r in report.runs if r.config.repeat_of == run.config.name and r.failure is None), None)
    second = repeat or (run.repeat if run.repeat is not None and run.repeat.failure is None else None)
    parts = parts_that_differ_between_processes(run, second) if second is not None else ()
    return _DifferingRun(run, second, parts) if second is not None and parts else None


def _process_finding(report: Report, runs: list[_DifferingRun], *, benchmark: bool) -> Finding:
    first = runs[0].first
    names = join_list([quoted_name(run.first) for run in runs], most=3)
    parts = join_list(list(dict.fromkeys(part.name for run in runs for part in run.parts)))
    is_deterministic = any(run.first.config.deterministic is True for run in runs)
    verb = "is" if len(runs) == 1 else "are"
    deterministic = find_trials(
        report, first, ("deterministic",) if first is report.baseline() and not benchmark else ()
    )
    return new_finding(
        severity="info" if parts == "loss" else "medium" if is_deterministic else "low",
        title=f"{names} {verb} bitwise reproducible only within one process: two processes give different {parts}",
        explanation=join_sentences(
            "Three passes within one process gave bitwise equal results. A second, fresh process of the same configuration and "
            "seed gave different ones.",
            "cudnn.benchmark times each algorithm once or twice, so another one may win in the next process."
            if benchmark
            else "The two processes used different algorithms, or different initial values despite the seed.",
            "cudnn.deterministic=True does not prevent this: each algorithm repeats its own result, but two algorithms differ."
            if benchmark and is_deterministic
            else "",
        ),
        advice=Advice(f"{_COMPARE} Leave cudnn.benchmark at False if the next run must give the same results.")
        if benchmark
        else advise(
            f"{_COMPARE} Set {{code}}, and seed every random number generator that building the model uses.",
            "torch.backends.cudnn.deterministic = True",
        ),
        evidence=tuple(
            item
            for run in runs
            for part in run.parts
            for ordinal, process in (("first", run.first), ("second", run.second))
            for item in evidence_of(
                run.first.config.name, (f"{part.name} digest, {ordinal} process", part.digest(process), "text")
            )
        ),
        trials=deterministic,
    )


FALSE_REPRODUCIBILITY = Rule(
    "false_reproducibility",
    """
Fires when three passes in one process gave bitwise equal results, but a second, fresh process of the same configuration and
seed gave different ones. Outputs, loss and gradients are compared separately.

- `medium`: `cudnn.deterministic=True` was set.
- `low`: it was not set.
- `info`: only the loss differs. Some losses are not bitwise reproducible even if the outputs are.

With `cudnn.benchmark=True`, the search may select another algorithm in the next process, deterministic or not. Without it,
the cause is a choice that depends on free memory, or an initialization that ignores the seed. Runs with benchmark and runs
without it get separate findings.
""",
    _false_reproducibility,
)


# On an idle device, two processes of one configuration differ by less than 1 %. Above this limit, gains of 5 % are uncertain.
MAX_GAP: Final = 0.03
# Two searches that choose the same algorithms differ by less, beyond the noise of the other configurations.
MIN_SEARCH_GAP: Final = 0.01


def _two_processes(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs with benchmark, and one for runs without it."""
    noise = noise_of(report)
    repeated = [run for run in measured_runs(report) if noise.repeat_gap(run) is not None]
    gaps = [(run, noise.like_processes(run), noise.repeat_gap(run) or 0.0) for run in repeated]
    search_limit = MIN_SEARCH_GAP + (noise.gap or 0.0)
    by_search = [case for case in gaps if case[0].config.benchmark and case[2] > search_limit]
    by_noise = [case for case in gaps if not case[0].config.benchmark and case[2] > MAX_GAP]
    for cases in (by_search, by_noise):
        if cases:
            yield _time_finding(sorted(cases, key=lambda case: -case[2]), noise, by_search=cases is by_search)


def _time_finding(
    cases: list[tuple[ConfigRun, tuple[Interval, ...], float]], noise: Noise, *, by_search: bool
) -> Finding:
    run, processes, gap = cases[0]
    times = " and ".join(text(step.median, "ns") for step in _extremes(processes))
    others = [f"{quoted_name(other)} ({percent(share)})" for other, _, share in cases[1:]]
    place = "machine" if run.clock == "operator" else "device"
    return new_finding(
        severity="low" if by_search else "medium",
        title=f"{'Unstable algorithm search' if by_search else f'Noisy {place}'}: two processes of {quoted_name(run)} differ by "
        f"{percent(gap)} ({times} per step)",
        explanation=join_sentences(
            "cudnn.benchmark times each algorithm once or twice and selects the fastest. Another algorithm that is almost as "
            "fast, or that fits into the free memory, may be selected in the next process."
            if by_search
            else "Both processes ran the same code on the same data.",
            noise.sentence() if by_search else "",
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice="Plan with the slower of the two: the choice of the next process cannot be predicted."
        if by_search
        else f"Stop other work on the {place} and run again.",
        evidence=tuple(
            Evidence(name="second process against first", value=100.0 * share, unit="percent", where=other.config.name)
            for other, _, share in cases
        ),
        weight=gap,
    )


def _extremes(processes: tuple[Interval, ...]) -> tuple[Interval, Interval]:
    """The fastest and the slowest process, the earlier one first."""
    fastest, slowest = (pick(processes, key=lambda step: step.median) for pick in (min, max))
    return (fastest, slowest) if processes.index(fastest) < processes.index(slowest) else (slowest, fastest)


TWO_PROCESSES = Rule(
    "two_processes",
    f"""
Fires if the two fresh processes of a configuration take different times.

- `low`: with `cudnn.benchmark=True`, their steps differ by more than {limit_percent(MIN_SEARCH_GAP)} plus the noise of the other
  configurations. The algorithm search times every algorithm once or twice, and it chose differently.
- `medium`: without benchmark, their steps differ by more than {limit_percent(MAX_GAP)}. The device is noisy, and the report
  does not claim smaller differences.
""",
    _two_processes,
    "reading",
)
