"""Loading of targets: a TARGET text or a model object becomes a `Target` with inputs, loss and optimizer."""

from __future__ import annotations

from profiler_kit.loading.failure import NeedsDataError, explain_forward_failure
from profiler_kit.loading.model import Target
from profiler_kit.loading.targets import from_model, load
from profiler_kit.meta.batch import Batch, example_count

__all__ = ["Batch", "NeedsDataError", "Target", "example_count", "explain_forward_failure", "from_model", "load"]
