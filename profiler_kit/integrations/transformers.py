"""A callback for the Trainer of Hugging Face: ``Trainer(..., callbacks=[ProfilerKit("out")])``. Needs ``transformers``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError
from profiler_kit.integrations.session import LoopSession, session

if TYPE_CHECKING:
    TrainerCallback = object
else:
    try:
        from transformers import TrainerCallback
    except ModuleNotFoundError as error:
        raise KitError(
            f"the callback needs {error.name}", hint=install_command("transformers", "accelerate")
        ) from error


class ProfilerKit(TrainerCallback):
    """Measures some training steps and writes their report to the folder `out`. `options` are those of `session`.

    A step is one optimizer step, which has several batches with ``gradient_accumulation_steps``.
    """

    def __init__(self, out: str | Path = "profiler_kit_out/loop", **options: Any) -> None:
        self.session: LoopSession | None = None
        self._out = out
        self._options = options

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the session at the first step, on every rank: only then is the model on its device."""
        if self.session is None:
            self.session = session(kwargs["model"], self._out, **self._options)
            self.session.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step."""
        if self.session is not None:
            self.session.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the report if the training ended before all steps were recorded."""
        if self.session is not None:
            self.session.__exit__(None, None, None)
