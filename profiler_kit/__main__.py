"""``python -m profiler_kit``, the same as the console script ``profiler-kit``."""

from profiler_kit.cli import entry

entry()
