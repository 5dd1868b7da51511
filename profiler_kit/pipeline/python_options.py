"""Texts for users of the Python functions: options of the command line become arguments."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler_kit.errors import KitError
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Remedy, Report
from profiler_kit.records.runs import ConfigRun

_EXPERIMENTS: Final = {  # fields of ExperimentOptions
    "also": "also", "memory-limit": "memory_limit_bytes", "shapes": "shapes", "try": "trials",
}  # fmt: skip
_ARGUMENTS: Final = {"budget": "budget_s", "timeout": "timeout_s", "hardware": "hardware", "convention": "convention"}
_FLAGS: Final = {"channels-last": "channels_last=True", "strict": "strict=True", "cross-check": "cross_check=True"}
_OPTION: Final = re.compile(r"(?<![\w-])--(?P<name>[a-z]+(?:-[a-z]+)*)(?P<value> \S*[^\s.,;:)(])?")
_VALUES: Final = {  # a word after these options is their value if it matches; other words continue the sentence
    "mode": r"train|infer",
    "loss": r"sum|mean|output\S*|\w+_\w+|mse|l1|bce|nll|huber",
    "optimizer": r"sgd|sgd_momentum|adamw?|adamax|[nr]adam|rmsprop|ada\w+",
    "dtype": r"b?float\d+",
    "amp": r"b?float\d+",
    "device": r"auto|cpu|mps|cuda(:\d+)?",
    "batch": r"\d+",
    "seed": r"\d+",
    "budget": r"[\d.]+s?",
}


def python_text(text: str) -> str:
    """`text` with options of the command line replaced by arguments: ``--mode infer`` becomes ``mode='infer'``."""
    return _OPTION.sub(_argument, text)


def _argument(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"] or ""
    if name in _FLAGS:
        return _FLAGS[name] + value
    if name in _EXPERIMENTS:
        return f"experiments=ExperimentOptions({_EXPERIMENTS[name]}=...){value}"
    argument = _ARGUMENTS.get(name, name.replace("-", "_"))
    if name not in _VALUES:
        return argument + value if name in _ARGUMENTS else match[0]
    word = value.strip()
    if re.fullmatch(_VALUES[name], word) is None:
        return argument + value
    return f"{argument}={word.removesuffix('s')}" if word[0].isdigit() else f"{argument}={word!r}"


def for_python(report: Report) -> Report:
    """`report` with the advice of its findings, its notes and its failures in terms of Python arguments."""
    report = replace(
        report,
        target=replace(report.target, notes=_notes_for_python(report.target.notes)),
        notes=_notes_for_python(report.notes),
        runs=tuple(map(_run_for_python, report.runs)),
        findings=tuple(
            replace(
                finding,
                explanation=python_text(finding.explanation),
                advice=python_text(finding.advice),
                remedy=_remedy_for_python(finding.remedy) if finding.remedy is not None else None,
            )
            for finding in report.findings
        ),
        verdict=None,
    )
    return with_verdict(report)


def _remedy_for_python(remedy: Remedy) -> Remedy:
    return replace(remedy, code=python_text(remedy.code), text=python_text(remedy.text))


def _notes_for_python(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    return tuple(replace(note, text=python_text(note.text)) for note in notes)


def _run_for_python(run: ConfigRun) -> ConfigRun:
    failure = run.failure
    if failure is not None:
        failure = replace(failure, message=python_text(failure.message), hint=python_text(failure.hint))
    return replace(run, failure=failure, notes=tuple(map(python_text, run.notes)))


@contextlib.contextmanager
def python_errors() -> Iterator[None]:
    """Raise expected errors of the block with hints in terms of Python arguments."""
    try:
        yield
    except KitError as error:
        error.hint = python_text(error.hint) if error.hint is not None else None
        error.where = python_text(error.where) if error.where is not None else None
        error.message = python_text(error.message)
        error.args = (error.message,)
        raise
