"""Targets of the Python functions, and texts for their users: options of the command line become arguments."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from profiler_kit.errors import KitError, UsageError
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Remedy, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import IN_PYTHON, TargetSpec

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


def refuse_loss_and_labels(loss_fn: Callable[..., Any] | None, labels: Any) -> None:
    """Raise UsageError for arguments of a model beside a TARGET text."""
    if loss_fn is not None or len(labels):
        raise UsageError("loss_fn and labels need a model", hint="define loss_fn in the file, or pass the model itself")


@contextlib.contextmanager
def target_in_python(
    target: Any,
    inputs: Any,
    *,
    kwargs: Any,
    labels: Any,
    loss_fn: Callable[..., Any] | None,
    optimizer: Any,
    options: Mapping[str, Any],
) -> Iterator[TargetSpec]:
    """The spec of `target`, as `analyze` describes it. A model of this process is in a file during the block.

    Raises:
        TargetError: a model cannot be sent to another process.
        UsageError: an argument is invalid. Errors of a model's block have hints in terms of Python arguments.
    """
    if isinstance(target, (str, TargetSpec)):
        refuse_loss_and_labels(loss_fn, labels)
        texts = {"inputs": tuple(inputs or ()), "kwargs": tuple(kwargs or ()), "optimizer": optimizer}
        yield target if isinstance(target, TargetSpec) else TargetSpec(spec=target, **texts, **options)
        return
    require_torch()
    from profiler_kit.loading.live import live_models

    name = optimizer if isinstance(optimizer, str) else None
    with python_errors():
        live = live_models.live_model(
            target, inputs, kwargs=kwargs, labels=labels, loss_fn=loss_fn, optimizer=None if name else optimizer
        )
        with live_models.written_model(live) as file:
            yield TargetSpec(spec=IN_PYTHON, optimizer=name, live=str(file), **options)
