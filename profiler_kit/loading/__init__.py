"""TARGET text, or a model in hand, to a Target: the model with its inputs, loss and optimizer."""

from __future__ import annotations

from profiler_kit.loading.batch import Batch
from profiler_kit.loading.failure import NeedsDataError, explain_forward_failure
from profiler_kit.loading.loading import from_model, load
from profiler_kit.loading.model import Target

__all__ = ["Batch", "NeedsDataError", "Target", "explain_forward_failure", "from_model", "load"]
