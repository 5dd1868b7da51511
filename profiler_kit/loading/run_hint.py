"""A hint of last resort: a training script can be run, which needs no guess about its model and inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import TargetError
from profiler_kit.loading.program.model_use import trains
from profiler_kit.loading.scripts.source import Source


@contextlib.contextmanager
def run_as_hint(source: Source) -> Iterator[None]:
    """Let the hint of a TargetError of the block end with ``run``, if the file of `source` trains and could be imported."""
    try:
        yield
    except TargetError as error:
        if source.file is None or source.failures or source.tree is None or not trains(source.tree):
            raise
        command = kit_command("run", source.name)
        hint = f"or record the program while it runs, which needs no guess: {command}"
        changed = TargetError(error.message, where=error.where, hint="; ".join(filter(None, (error.hint, hint))))
        raise changed from error.__cause__
