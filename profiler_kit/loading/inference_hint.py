"""A hint that was tried: ``--mode infer`` for a target whose training step fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.model import Target
from profiler_kit.loading.training_step.meta_trials import MetaTrials
from profiler_kit.records.target import IN_PYTHON
from profiler_kit.user_code.environment import user_code
from profiler_kit.user_code.locations import user_errors
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

_LIMIT_S: Final = 15.0


@contextlib.contextmanager
def inference_as_hint(target: Target) -> Iterator[None]:
    """Let the hint of a TargetError of the block begin with ``--mode infer``, if the model runs without the training step."""
    try:
        yield
    except TargetError as error:
        if target.spec.mode != "train" or target.rebuild is None or target.spec.spec == IN_PYTHON:
            raise
        if not _runs(target):
            raise
        command = next_command(replace(target.spec, loss=None, optimizer=None), add=("--mode", "infer"))
        checked = f"the model runs without a training step: {command}"
        # a hint without a command comes first, because it says how to fix the step
        parts = (checked, error.hint) if error.hint and kit_command() in error.hint else (error.hint, checked)
        changed = TargetError(error.message, where=error.where, hint="; ".join(filter(None, parts)))
        raise changed from error.__cause__


def _runs(target: Target) -> bool:
    """Whether forward runs on meta tensors. A model with lazy layers counts, because it ran when it was loaded."""
    assert target.rebuild is not None
    with contextlib.suppress(KitError, TimeLimitError), time_limit(_LIMIT_S):
        inference = target.rebuild("meta", mode="infer", loss=None, optimizer=None)
        trials = MetaTrials(inference.model, inference.batch, target.spec.seed)
        model, batch = trials.model, trials.batch
        with user_code((Path.cwd(),), target.spec.spec), user_errors("forward", hint="use another model"):
            if model is not None:
                trials.run(lambda: model(*batch.args, **batch.kwargs))
        return True
    return False
