"""The hint of a target that cannot be loaded: the first other model of its file that can, checked by loading it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from torch import nn

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.candidates.building import uses_missing_package
from profiler_kit.loading.command import next_command
from profiler_kit.loading.model import Target
from profiler_kit.loading.scripts.time_limit import TimeLimitError, time_limit
from profiler_kit.loading.source import Source
from profiler_kit.loading.training_step.meta_trials import MetaTrials
from profiler_kit.loading.user_environment import user_code
from profiler_kit.loading.user_locations import user_errors
from profiler_kit.records.target import TargetSpec

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
            command = next_command(source.spec, target=text)
            hint = f"{name} can be counted: {command}; {error.hint}" if error.hint else command
            changed = TargetError(error.message, where=error.where, hint=hint)
            changed.__cause__ = error.__cause__
            return changed
    return error


def _loads(source: Source, load: Callable[[Source], Target], seconds: float) -> bool:
    with contextlib.suppress(KitError, TimeLimitError), time_limit(seconds):
        target = load(source)
        if target.device.type == "meta":
            _run_step(source, target)
        return True
    return False


def _run_step(source: Source, target: Target) -> None:
    """Run one step of `target` on meta tensors. Raises TargetError."""

    def step(model: nn.Module) -> None:
        output = model(*batch.args, **batch.kwargs)
        if target.objective is not None:
            target.loss(output, batch, target.labels_for(output)).backward()

    trials = MetaTrials(target.model, target.batch, target.spec.seed)
    model, batch = trials.model, trials.batch
    if model is not None:  # lazy layers get their shapes later
        with user_code(source.folders, source.name), user_errors("a step", hint="use another model"):
            trials.run(partial(step, model))
