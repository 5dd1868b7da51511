"""Records of `check`: budgets, the result for one target, and the result for several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.comparison import Comparison
from profiler_kit.records.saved import Saved
from profiler_kit.records.views import Views
from profiler_kit.units import Unit, plural

BudgetSeverity = Literal["error", "warn", "off"]
BudgetOutcome = Literal["ok", "broken", "warned", "not_comparable"]
CheckStatus = Literal["compared", "new", "deleted", "failed"]
CheckSide = Literal["base", "change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on one metric. Exactly one of `increase`, `increase_by` and `limit` is set.

    - `module`: the modules that it limits, as a pattern of paths (``encoder.*``); empty for the whole model.
    - `written`: the limit as written by its author. `where`: the file or option it comes from.
    - `increase`: the allowed increase as a fraction of the base. `increase_by`, `limit`: in the metric's unit.
    - `accepted`: a value in the metric's unit that is allowed whatever the base is, next to an increase.
    """

    metric: str
    written: str
    where: str
    severity: BudgetSeverity = "error"
    increase: float | None = None
    increase_by: int | None = None
    limit: int | None = None
    accepted: int | None = None
    module: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What it limits. A budget replaces earlier ones of the same key."""
        return self.metric, self.module


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """The result of one budget.

    - `base`, `head`: the values; None where unknown. `change`: head divided by base, minus one; None where base is 0 or unknown.
    - `allowed`: the largest value within the budget.
    - `module`: the modules that it limits, as a pattern of paths; empty for the whole model.
    - `why`: what the change did to the metric, the edit first; empty where it is unchanged or nothing explains it.
    """

    metric: str
    title: str
    unit: Unit
    base: int | None
    head: int | None
    change: float | None
    allowed: int | None
    limit: str
    severity: BudgetSeverity
    outcome: BudgetOutcome
    reason: str
    where: str
    module: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeCheck:
    """The measured step time of both sides, from interleaved fresh processes.

    - `outcome`: ``pass`` if the change is surely within the budget, ``fail`` if it is surely beyond, else ``inconclusive``.
    - `base_ns`, `head_ns`: the median over processes. `processes`: their number on each side.
    - `change`, `low`, `high`: the relative change of the step with its 95 % interval; None where unknown.
    - `smallest_visible`: the smallest relative change that these processes could show; None where unknown.
    - `allowed`: the budget as a relative change. `device`: where it was measured. `reason`: why there is no verdict.
    """

    outcome: Literal["pass", "fail", "inconclusive"]
    device: str
    processes: int
    base_ns: int | None
    head_ns: int | None
    change: float | None
    low: float | None
    high: float | None
    smallest_visible: float | None
    allowed: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Views, Saved, kind="check"):
    """The result of `check` for one target.

    - `exit_code`: 1 if a budget is broken; otherwise 4 if a budget of severity ``error`` cannot be judged, or if nothing
      is comparable; 3 if a side could not be counted; otherwise 0.
    - `verdict`: the result in a few words.
    - `comparison`: the comparison behind the result; None where nothing is comparable.
    - `name`: the target's name in pyproject.toml. `spec`: the TARGET text.
    - `status`: ``new`` if the base has no such target, ``deleted`` if the change has none, ``failed`` if a side could not be
      counted; else ``compared``.
    - `failed_side`, `reason`, `hint`: of a status other than ``compared``: the side, what happened, and what to do.
    - `renamed_from`: the TARGET text at the base, if the file or the class was renamed.
    - `base`: how the base was chosen.
    - `posts`: whether a comment on the pull request is useful: False if nothing changed and every budget is kept; None in
      older files.
    - `time`: the measured step time; None without ``--time``.
    - `accept`: the command that raises the broken budgets to the values of this change; empty where there is none.
    """

    target: str
    exit_code: int
    verdict: str
    budgets: tuple[BudgetRow, ...]
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    name: str = ""
    spec: str = ""
    status: CheckStatus = "compared"
    failed_side: CheckSide | None = None
    reason: str = ""
    hint: str = ""
    renamed_from: str = ""
    base: str = ""
    posts: bool | None = None
    time: StepTimeCheck | None = None
    accept: str = ""

    def __repr__(self) -> str:
        return f"<CheckResult {self.target}: {self.verdict}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResults(Views, Saved, kind="checks"):
    """The results of `check` for several targets, in the order of the configuration.

    - `exit_code`: the gravest of the results: 1 before 3 before 4 before 0. `posts`: whether any result is worth a comment.
    """

    exit_code: int
    verdict: str
    results: tuple[CheckResult, ...]
    posts: bool | None = None

    def __repr__(self) -> str:
        return f"<CheckResults {plural(len(self.results), 'target')}: {self.verdict}>"
