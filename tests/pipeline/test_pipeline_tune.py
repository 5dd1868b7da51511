"""What the pipeline of `tune` decides itself: the goal, the time, and the savings that findings expect."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.pipeline.tune import DEFAULT_TUNING_BUDGET_S, budget_for, expected_savings  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.report import Finding  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.samples import Interval  # noqa: E402
from profiler_kit.records.traces import Saving  # noqa: E402
from profiler_kit.records.tuning import TuningOptions  # noqa: E402


def finding(tries: tuple[str, ...], saving: float | None) -> Finding:
    saved = None if saving is None else Saving(median=saving, low=0.5 * saving, high=2 * saving)
    return Finding(
        rule="x", severity="low", title="", explanation="", advice="", evidence=(), tries=tries, saving=saved
    )


def test_the_savings_of_findings_order_the_changes() -> None:
    findings = [
        finding(("cuda_graph", "compile"), 0.4),
        finding(("compile",), 0.1),
        finding(("amp_bf16",), None),
        finding((), 0.9),
    ]
    assert expected_savings(findings) == {"cuda_graph": 0.4, "compile": 0.4, "cuda_graph=step": 0.4}


@pytest.mark.parametrize(
    ("device", "step_ms", "stated_s", "budget_s"),
    [("cpu", 1, None, 40), ("cpu", 8, None, 80), ("cpu", 500, None, 120), ("cuda", 1, None, 120), ("cpu", 1, 90, 90)],
)
def test_short_steps_of_a_cpu_need_less_time(
    device: str, step_ms: int, stated_s: float | None, budget_s: float
) -> None:
    ns = step_ms * 1_000_000
    busy = (9 * ns, ns, 9 * ns)  # other work lengthens most steps
    run = ConfigRun(
        config=RunConfig(name="default"), steps_ns=busy, step_ns=Interval(median=9 * ns, low=ns, high=9 * ns)
    )
    options = TuningOptions(budget_s=stated_s or DEFAULT_TUNING_BUDGET_S)
    assert budget_for(options, run, device) == budget_s
