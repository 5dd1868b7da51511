"""A candidate: a model, or a class or function with the arguments that build one, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from profiler_kit.loading.candidates.sites import CallSite
from profiler_kit.loading.forms import is_model
from profiler_kit.loading.program.programs import TRIAL, program_rank

# Roughly in the order of trust; `ranking` has the exact order.
Evidence = Literal[
    "explicit", "instance", "convention", "script", "library", "importer", "factory", "class", "export", "usage",
    "plausible", "part", "loss",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model, or a class or function that builds one.

    - `line`: the line where the target's file defines `name`.
    - `site`: the call whose arguments build it; None to call it without, or with assumed arguments.
    - `others`: calls in other programs, in their order, for arguments that `site` does not state.
    - `value`: None if only the expression of the site names the callee.
    - `args`, `kwargs`: the arguments that built it, and `bound` the same by parameter name; empty before it is built.
    """

    name: str
    value: Any
    line: int | None
    site: CallSite | None = None
    others: tuple[CallSite, ...] = field(default=(), compare=False)
    evidence: Evidence = "explicit"
    args: tuple[Any, ...] = field(default=(), compare=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    bound: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def is_model(self) -> bool:
        """Whether `value` is a model, and not a class or function that builds one."""
        return is_model(self.value)

    @property
    def is_trial(self) -> bool:
        """Whether the target's own file builds it and trains nothing: such models may be small."""
        site = self.site
        if site is None or site.document.kind != "target" or site.role not in ("main", "script", "test"):
            return False
        return program_rank(site.document) == TRIAL

    @property
    def key(self) -> str:
        """A text that names the same candidate in another process: ``net.py:41:10 ResNet18``."""
        return self.name if self.site is None else f"{self.site.where}:{self.site.call.col_offset} {self.name}"
