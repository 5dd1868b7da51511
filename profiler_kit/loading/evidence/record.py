"""Evidence for an unknown of a target, and its sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from profiler_kit.loading.evidence.loader import Loader
from profiler_kit.meta.batch import Batch
from profiler_kit.records.notes import Certainty, Choice, Note

if TYPE_CHECKING:
    from profiler_kit.loading.evidence.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A value for an unknown of a target: the batch for the unknown ``inputs``, on the host or on meta.

    - `where`: the line, option or name that it comes from. `source`: see `TargetInfo.inputs_from`.
    - `notes`: for the report. `loader`: the file's data loader, whose first batch it is.
    - `pinned`: texts of ``-i`` that give the same value to later loads of the target. `choices`: the searched inputs.
    """

    unknown: Literal["inputs"] = "inputs"
    value: Batch
    where: str
    strength: Certainty
    source: str
    notes: tuple[Note, ...] = ()
    loader: Loader | None = None
    pinned: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()


# A source of evidence: a function that returns what it has about a target, or None. Raises TargetError or UsageError.
Provider = Callable[["Subject"], Evidence | None]
