"""Findings that one repair removes are one finding: hand-made traces of a loop with a metric on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from inspection_traces import ENGINE, Event, call, copy, kernel, launch, mark, node, op, table

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.summary import summarize
from profiler_kit.diagnosis.step_savings import StepSavings, change_of
from profiler_kit.records.claims import claim_of_text
from profiler_kit.records.report import Finding, Severity
from profiler_kit.records.traces import WorkSite
from profiler_kit.simulation.from_trace import trace_graph
from profiler_kit.simulation.profiler_cost import ProfilerCost
from profiler_kit.simulation.replayed_trace import replayed
from profiler_kit.simulation.step_model import StepModel, step_model

FREE = ProfilerCost(operator_ns=0, frame_ns=0, range_ns=0, call_ns=0, shapes_ns=0, kept_share=1.0)
TOPICS = {"waits": "cause", "copies": "cause", "cpu": "cause", "product": "cause", "place": "site", "launches": "bound"}
STEP_US = 10_000


def metric_steps() -> list[Event]:
    """Four steps of 10 ms: a product of 1 ms with its backward pass of 1 ms; `metric` copies its result to the host in 2 ms, and
    works there for 6 ms: 3 ms in an operator, 3 ms in Python."""
    events = []
    for i in range(4):
        at, number = i * STEP_US, 10 * i + 1
        events += [
            mark(f"ProfilerStep#{i + 1}", at, at + STEP_US),
            op("aten::mm", at, at + 100, sequence=10 + i),
            launch(number, at + 90, at + 95),
            kernel("gemm", at + 100, at + 1_100, number),
            call("train.py(3): metric", at + 100, at + 9_100),
            op("aten::to", at + 110, at + 3_100),
            launch(number + 1, at + 120, at + 3_090, name="cudaMemcpyAsync"),
            copy("Memcpy DtoH (Device -> Pageable)", at + 1_100, at + 3_080, number + 1),
            op("aten::argmax", at + 3_100, at + 6_100),
            node("MmBackward0", at + 9_100, at + 9_200, 10 + i),
            launch(number + 2, at + 9_190, at + 9_195, thread=ENGINE),
            kernel("gemm", at + 9_200, at + 10_000, number + 2),
        ]
    return events


def finding(rule: str, weight: float, *claims: str, severity: Severity = "medium", keeps: float = 0.0) -> Finding:
    return Finding(
        rule=rule, severity=severity, title=rule, explanation="", advice="", evidence=(), weight=weight, keeps=keeps,
        claims=tuple(map(claim_of_text, claims)),
    )  # fmt: skip


class Steps:
    """The steps of `metric_steps`, and their savings."""

    def __init__(self, tmp_path: Path) -> None:
        attribution = attribute(table(tmp_path, metric_steps()))
        self.model: StepModel = step_model(attribution, trace_graph(attribution), FREE)
        self.sites: tuple[WorkSite, ...] = replayed(attribution, summarize(attribution))[0].sites
        self.savings = StepSavings([self.model], self.sites, TOPICS)

    def repair(self, *findings: Finding) -> tuple[Finding, list[str]]:
        """The finding about the repair of the first of `findings`, and the rules of those that it consists of."""
        with_savings = [self.with_saving(item) for item in findings]
        whole, parts = self.savings.one_repair(with_savings[0], with_savings[1:])
        return whole, [item.rule for item in parts]

    def with_saving(self, item: Finding) -> Finding:
        return replace(item, saving=self.savings.saving(item))


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path)


COPIES = finding("copies", 0.2, "busy:kernel:Memcpy DtoH (Device -> Pageable)", "idle:synchronization")
CPU = finding("cpu", 0.6, "host:long:op dispatch", "host:long:python")
PRODUCT = finding("product", 0.18, "busy:kernel:gemm", keeps=0.5)
PLACE = finding("place", 0.8, "site:function:train.py(3): metric")
LAUNCHES = finding("launches", 0.6, "idle:op dispatch", "idle:python")


def test_parts_of_one_place_are_one_finding_with_the_saving_of_the_place(steps: Steps) -> None:
    whole, parts = steps.repair(CPU, COPIES, PRODUCT)
    assert (whole.rule, sorted(parts)) == ("cpu", ["copies", "cpu"])
    assert whole.title.startswith("cpu, in train.py(3): metric")
    assert whole.saving is not None
    assert whole.saving.median == pytest.approx(0.8, abs=0.03), "two products of 1 ms of 10 ms are left"
    assert whole.saving.median > max(steps.savings.shares([item])[0] for item in (CPU, COPIES)) + 0.15
    assert [symptom.title.split(" (")[0] for symptom in whole.symptoms if not symptom.rule] == ["train.py(3): metric"]


def test_a_finding_whose_advice_can_be_tried_stays_apart(steps: Steps) -> None:
    assert "copies" in steps.repair(CPU, COPIES)[1]
    assert "copies" not in steps.repair(CPU, replace(COPIES, tries=("compile",)))[1]


def test_a_place_has_the_name_of_the_finding_that_says_why(steps: Steps) -> None:
    whole, parts = steps.repair(PLACE, PRODUCT, COPIES, CPU, LAUNCHES)
    assert whole.rule == "cpu"
    assert sorted(parts) == ["copies", "cpu", "launches", "place"]
    assert {symptom.rule for symptom in whole.symptoms} == {"copies", "launches", "place"}
    minor = (COPIES, finding("cpu", 0.6, "host:long:op dispatch", "host:long:python", severity="low"))
    assert steps.repair(PLACE, PRODUCT, *minor)[0].rule == "copies", "an uncertain finding gives no name"


def test_a_limit_of_the_machine_is_a_symptom(steps: Steps) -> None:
    alone, with_limit = steps.repair(PLACE)[0], steps.repair(PLACE, LAUNCHES)[0]
    assert [symptom.rule for symptom in with_limit.symptoms] == ["launches"]
    assert steps.savings.shares([with_limit])[0] == pytest.approx(steps.savings.shares([alone])[0])
    assert steps.repair(LAUNCHES, CPU) == (steps.with_saving(LAUNCHES), ["launches"]), (
        "no single repair removes a limit"
    )


def test_findings_of_which_less_is_inside_stay_apart(steps: Steps) -> None:
    whole, parts = steps.repair(PRODUCT, CPU, COPIES)
    assert (whole.symptoms, parts) == ((), ["product"])
    faster = finding("copies", 0.09, "busy:kernel:gemm", keeps=0.0)
    assert steps.repair(PRODUCT, faster)[1] == ["product"], "two ways to make the same kernels faster"


def test_a_small_part_of_a_place_is_not_the_place(steps: Steps) -> None:
    assert steps.repair(CPU)[0].symptoms != ()
    assert steps.repair(COPIES)[0].symptoms == (), "the copies save 20 % of 80 %"


def test_symptoms_go_with_the_change_of_the_finding(steps: Steps) -> None:
    whole, _ = steps.repair(PLACE, COPIES, CPU)
    assert steps.model.saving(change_of(whole)) == pytest.approx(steps.savings.shares([whole])[0])
    assert steps.savings.shares([COPIES], [whole])[0] == pytest.approx(0.0, abs=0.01)
