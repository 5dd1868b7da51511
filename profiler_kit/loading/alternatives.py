"""Hints that were checked: another model of the file for a target that cannot be loaded, inference for a step that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from torch import nn

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.candidates.building import uses_missing_package
from profiler_kit.loading.command import next_command
from profiler_kit.loading.model import Target
from profiler_kit.loading.source import Source
from profiler_kit.loading.training_step.meta_trials import MetaTrials
from profiler_kit.records.target import IN_PYTHON, TargetSpec
from profiler_kit.user_code.environment import user_code
from profiler_kit.user_code.locations import user_errors
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

_MAX_TRIALS: Final = 4
_LIMIT_S: Final = 15.0  # of all trials together; a backstop


def may_suggest(spec: TargetSpec, error: TargetError) -> bool:
    """Whether another model of the file could help: the user chose neither a model, nor arguments, nor inputs."""
    is_free = ":" not in spec.spec and not (spec.inputs or spec.kwargs or spec.pinned)
    return is_free and spec.sliced and not uses_missing_package(error)


def with_working_hint(
    error: TargetError, source: Source, names: Iterable[str], load: Callable[[Source], Target]
) -> TargetError:
    """`error`, whose hint begins with the command for the first of `names` that `load` loads and whose step runs.

    The error does not change if there is none.
    """
    deadline = time.monotonic() + _LIMIT_S
    for name in islice(names, _MAX_TRIALS):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        text = f"{source.name}:{name}"
        other = replace(source, attr=name, spec=replace(source.spec, spec=text))
        if _loads(other, load, remaining):
            return _with_hint(error, f"{name} can be counted: {next_command(source.spec, target=text)}")
    return error


@contextlib.contextmanager
def inference_as_hint(target: Target) -> Iterator[None]:
    """Let the hint of a TargetError of the block begin with ``--mode infer``, if the model runs without the training step."""
    try:
        yield
    except TargetError as error:
        if target.spec.mode != "train" or target.rebuild is None or target.spec.spec == IN_PYTHON:
            raise
        if not _runs_inference(target.rebuild):
            raise
        command = next_command(replace(target.spec, loss=None, optimizer=None), add=("--mode", "infer"))
        raise _with_hint(error, f"the model runs without a training step: {command}") from error.__cause__


def _runs_inference(rebuild: Callable[..., Target]) -> bool:
    with contextlib.suppress(KitError, TimeLimitError), time_limit(_LIMIT_S):
        _run_step(rebuild("meta", mode="infer", loss=None, optimizer=None), (Path.cwd(),))
        return True
    return False


def _with_hint(error: TargetError, checked: str) -> TargetError:
    """`error` with a hint whose first command is that of `checked`; at the end if the hint has no other."""
    parts = (checked, error.hint) if error.hint and kit_command() in error.hint else (error.hint, checked)
    hint = "; ".join(filter(None, parts))
    changed = TargetError(error.message, where=error.where, hint=hint)
    changed.__cause__ = error.__cause__
    return changed


def _loads(source: Source, load: Callable[[Source], Target], seconds: float) -> bool:
    with contextlib.suppress(KitError, TimeLimitError), time_limit(seconds):
        target = load(source)
        if target.device.type == "meta":
            _run_step(target, source.folders)
        return True
    return False


def _run_step(target: Target, folders: tuple[Path, ...]) -> None:
    """Run one step of `target` on meta tensors. `folders` are those of its imports. Raises TargetError."""

    def step(model: nn.Module) -> None:
        output = model(*batch.args, **batch.kwargs)
        if target.objective is not None:
            target.loss(output, batch, target.labels_for(output)).backward()

    trials = MetaTrials(target.model, target.batch, target.spec.seed)
    model, batch = trials.model, trials.batch
    if model is not None:  # lazy layers get their shapes later
        with user_code(folders, target.spec.spec), user_errors("a step", hint="use another model"):
            trials.run(partial(step, model))
