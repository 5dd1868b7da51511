"""Runs that do not give the same bits twice, in one process or from one process to the next."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnose.noise import noise_of, trial
from profiler_kit.diagnose.pairs import counterpart, measured
from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.words import listing, quoted, sentences
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun

DOC = """
Two forward and backward passes from the same weights and inputs are compared bit by bit, outputs and gradients apart.

- They differ within one process: `info`, with the part that differs; `medium` where `cudnn.deterministic=True` was set and
  they differ nevertheless, as the flag covers cuDNN's algorithms only.
- They agree within a process but not between two fresh processes of one configuration (the A/A pair): `low`. The run looks
  repeatable and is not: a search that times algorithms, or a choice that depends on free memory, may end otherwise next time.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once per kind."""
    differing = [run for run in measured(report) if _differs(run)]
    plain = [run for run in differing if run.config.deterministic is not True]
    strict = [run for run in differing if run.config.deterministic is True]
    if strict:
        yield _finding(report, strict, deterministic=True)
    if plain:
        yield _finding(report, plain, deterministic=False)
    yield from _across(report)


def _differs(run: ConfigRun) -> bool:
    return run.repeatable is False or run.repeatable_outputs is False or run.repeatable_gradients is False


def _part(run: ConfigRun) -> str:
    parts = []
    if run.repeatable_outputs is False:
        parts.append("outputs")
    if run.repeatable_gradients is False:
        parts.append("gradients")
    return " and ".join(parts) or "outputs or gradients"


def _same_part(run: ConfigRun) -> str:
    if run.repeatable_outputs is True and run.repeatable_gradients is False:
        return "The outputs are the same."
    if run.repeatable_outputs is False and run.repeatable_gradients is True:
        return "The gradients are the same."
    return ""


def _finding(report: Report, runs: list[ConfigRun], *, deterministic: bool) -> Finding:
    run = runs[0]
    names = listing([quoted(r) for r in runs], most=2)
    cure = None if deterministic else counterpart(report, run, "deterministic", True)
    cures = cure is not None and cure.failure is None and cure.repeatable is True
    title = f"Two passes over the same batch give different {_part(run)} in {names}"
    return Finding(
        rule=RULE.name,
        severity="medium" if deterministic else "info",
        title=title + (", although deterministic is set" if deterministic else ""),
        explanation=sentences(
            "The two passes ran in one process, from the same weights and inputs, with no optimizer step between.",
            _same_part(run),
            "The usual cause is kernels that add with atomics, in an order that changes from run to run.",
            f"With cudnn.deterministic=True ({quoted(cure)}) both passes give the same bits."
            if cures and cure is not None
            else "",
        ),
        advice=_advice(deterministic),
        evidence=tuple(
            Evidence(name=f"repeatable {what}", value=value, unit="bool", where=r.config.name)
            for r in runs
            for what, value in (("outputs", r.repeatable_outputs), ("gradients", r.repeatable_gradients))
            if value is not None
        )
        or (Evidence(name="repeatable", value=False, unit="bool", where=run.config.name),),
        config=cure.config.name if cures and cure is not None else None,
        trial=trial(run, cure, noise_of(report)) if cures else None,
    )


def _advice(deterministic: bool) -> str:
    if deterministic:
        return (
            "Use torch.use_deterministic_algorithms(True), which names the operator that has no deterministic version, and "
            "set the variable CUBLAS_WORKSPACE_CONFIG=:4096:8."
        )
    return (
        "Nothing to do unless you need equal bits from run to run; then set torch.backends.cudnn.deterministic = True, or "
        "torch.use_deterministic_algorithms(True) for PyTorch's own operators too."
    )


def _across(report: Report) -> Iterator[Finding]:
    for again in report.runs:
        first = report.run(again.config.repeat_of) if again.config.repeat_of is not None else None
        if (
            first is None
            or first.failure is not None
            or again.failure is not None
            or _differs(first)
            or _differs(again)
        ):
            continue
        if first.repeatable is not True:
            continue
        pairs = (
            ("outputs", first.output_digest, again.output_digest),
            ("gradients", first.gradient_digest, again.gradient_digest),
        )
        parts = [name for name, a, b in pairs if a is not None and b is not None and a != b]
        if not parts:
            continue
        yield Finding(
            rule=RULE.name,
            severity="low",
            title=f"{quoted(first)} repeats within a process, but two processes give different {' and '.join(parts)}",
            explanation="Within one process two passes gave the same bits. A second, fresh process of the same configuration, "
            "from the same seed, gave other ones: the algorithms, or the seeded start itself, were not the same.",
            advice="Do not take equal results within one run for reproducibility. Turn cudnn.benchmark off, set "
            "cudnn.deterministic, and seed everything that draws random numbers when the model is built.",
            evidence=tuple(
                Evidence(name=f"{name} digest", value=value, unit="text", where=run.config.name)
                for name, a, b in pairs
                for run, value in ((first, a), (again, b))
                if name in parts and value is not None
            ),
        )


RULE = Rule("not_repeatable", DOC, check)
