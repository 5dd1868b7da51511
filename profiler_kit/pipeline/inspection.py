"""Traces inspected: the report, and the files again for questions that it does not answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit.errors import TraceError, UsageError
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import TraceSummary

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What `inspect` gives: the `report`, the `files` of its traces in the same order, and the `errors` of files that are none.

    `interrupted`: Ctrl-C came before all files were read.
    """

    report: TraceReport
    files: tuple[Path, ...]
    errors: tuple[TraceError, ...] = ()
    interrupted: bool = False

    @property
    def traces(self) -> tuple[TraceSummary, ...]:
        """The summary of each trace."""
        return self.report.traces

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules found, the gravest first."""
        return self.report.findings

    def events(self, file: str | Path | int | None = None) -> pandas.DataFrame:
        """The events of one trace with their owners as a data frame (docs/events.md). The file is read again.

        `file`: one of `files`, by path, name or position; None where there is only one.

        Raises UsageError for a file that is none of these, TraceError, KitError where pandas is not installed.
        """
        from profiler_kit.pipeline.event_export import events_frame

        return events_frame(self._file(file))

    def _file(self, wanted: str | Path | int | None) -> Path:
        if wanted is None and len(self.files) == 1:
            return self.files[0]
        if isinstance(wanted, int) and -len(self.files) <= wanted < len(self.files):
            return self.files[wanted]
        named = [
            file for file in self.files if isinstance(wanted, (str, Path)) and Path(wanted) in (file, Path(file.name))
        ]
        if len(named) == 1:
            return named[0]
        asked = "which file?" if wanted is None else f"no file {str(wanted)!r} among those inspected"
        raise UsageError(asked, hint=f"one of: {', '.join(map(str, self.files))}")
