"""Where a PyTorch model's FLOPs, memory and time go, and why.

The commands of the command line are functions of this package and return the same records. They are imported on first
use: importing the package is cheap, and reading a saved report does not need torch.
"""

from __future__ import annotations

import importlib

from profiler_kit._version import VERSION as __version__

TYPE_CHECKING = False  # without `typing`: `__main__` reports a file of the working directory that has this name
if TYPE_CHECKING:
    from typing import Any

    from profiler_kit.comparison.compare import compare
    from profiler_kit.counting.custom_ops import register_formula
    from profiler_kit.display.plots import plot
    from profiler_kit.display.records import notebook_html, save, summary
    from profiler_kit.integrations.session import session, trace_handler
    from profiler_kit.pipeline.analyze import analyze
    from profiler_kit.pipeline.count import count
    from profiler_kit.pipeline.inspect import inspect
    from profiler_kit.pipeline.packages import env
    from profiler_kit.pipeline.tune import tune
    from profiler_kit.records.serde import read_report
    from profiler_kit.report.frames import dataframe

_MODULES = {
    "analyze": "profiler_kit.pipeline.analyze",
    "compare": "profiler_kit.comparison.compare",
    "count": "profiler_kit.pipeline.count",
    "dataframe": "profiler_kit.report.frames",
    "env": "profiler_kit.pipeline.packages",
    "inspect": "profiler_kit.pipeline.inspect",
    "notebook_html": "profiler_kit.display.records",
    "plot": "profiler_kit.display.plots",
    "read_report": "profiler_kit.records.serde",
    "register_formula": "profiler_kit.counting.custom_ops",
    "save": "profiler_kit.display.records",
    "session": "profiler_kit.integrations.session",
    "summary": "profiler_kit.display.records",
    "trace_handler": "profiler_kit.integrations.session",
    "tune": "profiler_kit.pipeline.tune",
}

__all__ = [
    "__version__",
    "analyze",
    "compare",
    "count",
    "dataframe",
    "env",
    "inspect",
    "notebook_html",
    "plot",
    "read_report",
    "register_formula",
    "save",
    "session",
    "summary",
    "trace_handler",
    "tune",
]


def __getattr__(name: str) -> Any:
    module_name = _MODULES.get(name)
    if module_name is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module_name), name)


def __dir__() -> list[str]:
    return sorted(__all__)
