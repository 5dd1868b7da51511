"""Phases by number, as the columns hold them, and by name, as records do."""

from __future__ import annotations

from typing import Literal

from profiler_kit.records.traces import TRACE_PHASES, TracePhase
from profiler_kit.traces.table import NONE


def phase_name(number: int) -> TracePhase | Literal[""]:
    """The phase numbered `number`, "" for NONE."""
    return TRACE_PHASES[number] if number != NONE else ""
