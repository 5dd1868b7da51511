"""What can be asked of `inspect`. Apart from what it answers, so that `--help` loads none of that."""

from __future__ import annotations

from typing import Final, Literal

# What it can show whole, instead of a summary of all.
TraceView = Literal["phase", "module", "operator", "kernel", "idle", "stream", "step", "sync", "rank"]

# In which it writes the table of a trace's events.
EventFormat = Literal["csv", "parquet", "sqlite"]
EVENT_SUFFIXES: Final[dict[str, EventFormat]] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".sqlite": "sqlite",
    ".db": "sqlite",
}
