"""A Lightning callback that measures the training loop: ``Trainer(callbacks=[ProfilerKit("out")])``.

Needs ``lightning`` or ``pytorch_lightning``, whichever the training uses.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError
from profiler_kit.integrations.session import LoopSession, session

if TYPE_CHECKING:
    Callback = object
else:
    # a training that uses one of the two packages has imported it; their classes are different
    _NAMES = ("lightning.pytorch", "pytorch_lightning")
    _PACKAGE = next((name for name in _NAMES if name in sys.modules), None) or next(
        (name for name in _NAMES if importlib.util.find_spec(name.partition(".")[0]) is not None), None
    )
    if _PACKAGE is None:
        raise KitError("the callback needs Lightning", hint=install_command("lightning"))
    Callback = importlib.import_module(_PACKAGE).Callback


class ProfilerKit(Callback):
    """Measures some training steps and writes their report to the folder `out`. `options` are those of `session`.

    A step is one batch. With ``accumulate_grad_batches``, it is the batches between two optimizer steps.
    """

    def __init__(self, out: str | Path = "profiler_kit_out/loop", **options: Any) -> None:
        self.session: LoopSession | None = None
        self._out = out
        self._options = options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the session, on every rank."""
        self.session = session(pl_module, self._out, **self._options)
        self.session.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step where the optimizer has stepped."""
        if self.session is not None and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.session.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the report if the training ended before all steps were recorded."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write the report of the steps so far."""
        self._close()

    def _close(self) -> None:
        if self.session is not None:
            self.session.__exit__(None, None, None)
