"""Choices of `inspect`, separate from its results so that `--help` does not load them."""

from __future__ import annotations

from typing import Final, Literal

# The tables that --by shows in full.
TraceView = Literal["phase", "module", "operator", "kernel", "idle", "host", "place", "stream", "step", "sync", "rank"]

# The formats of the table of a trace's events.
EventFormat = Literal["csv", "parquet", "sqlite"]
EVENT_SUFFIXES: Final[dict[str, EventFormat]] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".sqlite": "sqlite",
    ".db": "sqlite",
}
