"""Findings are ranked by the share of the step that they explain, and their shares do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sample_reports import v0_cuda

from profiler_kit.diagnosis.account import account_of, step_account
from profiler_kit.diagnosis.ranking import rank
from profiler_kit.diagnosis.registry import all_rules
from profiler_kit.records.claims import claim_of_text
from profiler_kit.records.counts import Phase
from profiler_kit.records.report import Finding, Report, Severity, Tool, TraceReport, Trial
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import IdleTime, PhaseTime, Saving, TraceKernel, TraceModule, TraceSummary


def finding(rule: str, weight: float, *claims: str, severity: Severity = "medium") -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        title=rule,
        explanation="",
        advice="",
        evidence=(),
        weight=weight,
        claims=tuple(map(claim_of_text, claims)),
    )


def phase(name: Phase, ns: int) -> PhaseTime:
    return PhaseTime(phase=name, host_ns=None, kernel_ns=ns, sum_ns=ns, idle_ns=0, wait_ns=0, events=1)


def trace(file: str = "a.json") -> TraceSummary:
    """1000 ns: 400 idle (300 for data, 100 for Python), 600 busy: 400 forward (300 of them in net.a), 200 optimizer."""
    return TraceSummary(
        file=file, clock="device", events=9, device_events=9, span_ns=1000, busy_ns=600, idle_ns=400, sum_ns=600,
        linked=9, unlinked_ns=0, aligned_ns=0, unattributed_ns=0, moduleless_ns=0, step_ns=None, host_step_ns=None,
        idle=(IdleTime(cause="waiting for data", ns=300, gaps=1), IdleTime(cause="python", ns=100, gaps=1)),
        phases=(phase("forward", 400), phase("optimizer", 200)),
        modules=(
            TraceModule(path="net.a.conv", class_name="", phase="forward", kernel_ns=300, events=1),
            TraceModule(path="net.b", class_name="", phase="forward", kernel_ns=100, events=1),
        ),
        kernels=(
            TraceKernel(name="gemm", family="", op=None, math=None, calls=1, kernel_ns=300, sum_ns=300),
            TraceKernel(name="add", family="", op=None, math=None, calls=1, kernel_ns=300, sum_ns=300),
        ),
    )  # fmt: skip


def report(*traces: TraceSummary) -> TraceReport:
    return TraceReport(tool=Tool(name="t", version="1"), created="", traces=traces or (trace(),))


def shares(*findings: Finding, of: TraceReport | Report | None = None) -> list[tuple[str, float | None]]:
    ranked = rank(of if of is not None else report(), findings)
    return [(f.rule, round(f.share, 6) if f.share is not None else None) for f in ranked]


def test_cells_sum_to_one() -> None:
    claims = finding("x", 1, "busy:module:net.a", "busy:kernel:gemm", "busy:phase:optimizer")
    for whole in (report(), report(trace(), trace("b.json")), v0_cuda()):
        cells = step_account(whole, [claims]).cells
        assert sum(cell.share for cell in cells) == pytest.approx(1.0)
    assert step_account(replace(v0_cuda(), runs=()), [claims]).cells == []


def test_serious_and_largest_share_first_then_peak_then_no_claims() -> None:
    assert shares(
        finding("reading", 0.9, severity="high"),
        finding("peak", 0.9, "peak", severity="high"),
        finding("python", 0.1, "idle:python", severity="high"),
        finding("loader", 0.3, "idle:waiting for data", severity="low"),
        finding("layer", 0.25, "busy:module:net.a"),
    ) == [("layer", 0.25), ("python", 0.1), ("loader", 0.3), ("peak", 0.9), ("reading", None)]


def test_a_finding_that_others_mostly_explain_is_low_and_ranks_last() -> None:
    cause = finding("cause", 0.3, "busy:kernel:gemm", severity="high")
    consequence = finding("consequence", 0.3, "busy:module:net.a", "busy:kernel:gemm", severity="high")
    other = finding("other", 0.1, "idle:python")
    ranked = rank(report(), [consequence, cause, other], topics={"cause": "cause", "consequence": "place"})
    assert [(f.rule, f.severity) for f in ranked] == [("cause", "high"), ("other", "medium"), ("consequence", "low")]


def test_a_kind_of_work_ranks_after_the_place_that_contains_most_of_it() -> None:
    topics = {rule.name: rule.topic for rule in all_rules()}
    kind, place = (
        finding("dominant_operator", 0.3, "busy:kernel:gemm"),
        finding("costly_place", 0.3, "busy:module:net.a"),
    )
    ranked = rank(report(), [kind, place], topics=topics)
    assert [item.rule for item in ranked] == ["costly_place", "dominant_operator"]


@pytest.mark.parametrize(("weight", "severity"), [(0.02, "low"), (0.04, "high")])
def test_a_finding_that_explains_little_of_a_trace_is_low(weight: float, severity: Severity) -> None:
    (ranked,) = rank(report(), [finding("small", weight, "idle:python", severity="high")])
    assert ranked.severity == severity


def test_much_time_left_keeps_the_severity() -> None:
    data = finding("data", 0.3, "idle:waiting for data", severity="high")
    everything = finding("everything", 1.0, "busy", "idle", severity="high")
    ranked = rank(report(), [data, everything], topics={"data": "cause", "everything": "bound"})
    assert [(f.rule, f.severity, f.share) for f in ranked] == [
        ("data", "high", 0.3),
        ("everything", "high", pytest.approx(0.7)),
    ]


def test_about_the_same_share_keeps_the_order() -> None:
    first, second = finding("first", 0.2, "busy:phase:optimizer"), finding("second", 0.205, "busy:module:net.a")
    assert [rule for rule, _ in shares(first, second)] == ["first", "second"]


def test_overlaps_count_once() -> None:
    """All idle time contains the wait for data; a module contains its submodules."""
    assert shares(finding("data", 0.3, "idle:waiting for data"), finding("all", 0.4, "idle")) == [
        ("all", 0.4), ("data", 0.0),
    ]  # fmt: skip
    assert shares(finding("inner", 0.3, "busy:module:net.a.conv"), finding("outer", 0.4, "busy:module:net")) == [
        ("outer", 0.4), ("inner", 0.0),
    ]  # fmt: skip
    assert shares(finding("forward", 0.4, "busy:phase:forward"), finding("outer", 0.4, "busy:module:net")) == [
        ("forward", 0.4), ("outer", 0.0),
    ]  # fmt: skip


def test_parts_of_one_cell_overlap_as_far_as_possible() -> None:
    assert shares(finding("a", 0.3, "busy"), finding("b", 0.2, "busy"), finding("c", 0.2, "busy:phase:optimizer")) == [
        ("a", 0.3), ("c", 0.1), ("b", 0.0),
    ]  # fmt: skip


def test_kernels_spread_over_modules() -> None:
    """Half of the busy time is one kernel, so half of the layer's time is assumed to be that kernel."""
    assert shares(finding("kernel", 0.3, "busy:kernel:gemm"), finding("layer", 0.3, "busy:module:net.a")) == [
        ("kernel", 0.3), ("layer", 0.15),
    ]  # fmt: skip


def test_no_more_than_the_pool() -> None:
    assert shares(finding("a", 0.9, "idle:python"), finding("b", 1.0, "host")) == [("b", 0.4), ("a", 0.0)]
    assert shares(finding("absent", 0.5, "idle:synchronization")) == [("absent", 0.0)]


def test_peak_adds_up_over_rules() -> None:
    assert shares(
        finding("workspace", 0.5, "peak"), finding("workspace", 0.4, "peak"), finding("activations", 0.7, "peak")
    ) == [("activations", 0.7), ("workspace", 0.3), ("workspace", 0.0)]


def test_every_order_gives_disjoint_shares() -> None:
    findings = [
        finding("a", 0.35, "idle"), finding("b", 0.3, "idle:waiting for data"), finding("c", 0.5, "busy", "idle:python"),
        finding("d", 0.3, "busy:kernel:add"), finding("e", 0.2, "busy:phase:optimizer"), finding("f", 0.1, "host"),
    ]  # fmt: skip
    for order in itertools.islice(itertools.permutations(findings), 0, None, 7):
        whole = report()
        ranked = rank(whole, order)
        account = account_of(replace(whole, findings=ranked))
        explained = sum(f.share or 0.0 for f in ranked)
        assert all(0.0 <= (f.share or 0.0) <= f.weight + 1e-9 for f in ranked)
        assert explained + account.unexplained(idle=True) + account.unexplained(idle=False) == pytest.approx(1.0)


def test_without_times_a_share_is_unknown() -> None:
    counted = replace(v0_cuda(), runs=())
    assert shares(finding("layer", 0.5, "busy"), finding("peak", 0.5, "peak"), of=counted) == [
        ("layer", None), ("peak", 0.5),
    ]  # fmt: skip


@pytest.mark.parametrize(("severity", "order"), [("medium", ["cause", "symptom"]), ("low", ["symptom", "cause"])])
def test_an_uncertain_cause_does_not_precede_its_symptom(severity: Severity, order: list[str]) -> None:
    findings = (finding("symptom", 0.5, "busy"), finding("cause", 0.3, "busy", severity=severity))
    ranked = rank(report(), findings, topics={"cause": "cause", "symptom": "place"})
    assert [item.rule for item in ranked] == order


# ---- with a replay


class Replayed:
    """Savings by rule. `overlaps`: the part of a rule's saving that goes with an earlier one. `claimed`: by rule, by others."""

    def __init__(
        self,
        savings: dict[str, tuple[float, float, float]],
        overlaps: dict[tuple[str, str], float] | None = None,
        claimed: dict[str, float] | None = None,
    ) -> None:
        self.savings, self.overlaps, self.claimed = savings, overlaps or {}, claimed or {}

    def claimed_share(self, finding: Finding, others: Sequence[Finding]) -> float:
        return self.claimed.get(finding.rule, 0.0)

    def saving(self, finding: Finding) -> Saving:
        low, median, high = self.savings[finding.rule]
        return Saving(median=median, low=low, high=high)

    def one_repair(self, first: Finding, others: Sequence[Finding]) -> tuple[Finding, list[Finding]]:
        return first, [first]

    def shares(self, findings: Sequence[Finding], after: Sequence[Finding] = ()) -> list[float]:
        overlap = [sum(self.overlaps.get((earlier.rule, item.rule), 0.0) for earlier in after) for item in findings]
        return [(1 - gone) * self.savings[item.rule][1] for item, gone in zip(findings, overlap, strict=True)]


TOPICS = {"launches": "bound", "python": "place", "copies": "cause", "layer": "cause", "casts": "cause"}


def replayed(findings: list[Finding], **options: Any) -> list[tuple[str, str]]:
    ranked = rank(report(), findings, savings=Replayed(**options), topics=TOPICS)
    return [(f.rule, f.severity) for f in ranked]


def test_a_large_share_that_saves_nothing_is_low_and_last() -> None:
    findings = [finding("layer", 0.3, "busy:module:net.a", severity="high"), finding("casts", 0.1, "busy:kernel:add")]
    savings = {"layer": (0.0, 0.02, 0.1), "casts": (0.2, 0.3, 0.4)}
    assert replayed(findings, savings=savings) == [("casts", "medium"), ("layer", "low")]
    ranked = rank(report(), findings, savings=Replayed(savings), topics=TOPICS)
    assert [(f.rule, f.share, f.saving.median) for f in ranked] == [("casts", 0.3, 0.3), ("layer", 0.02, 0.02)]


@pytest.mark.parametrize(
    ("saving", "severity"),
    [((0.25, 0.3, 0.4), "high"), ((0.1, 0.3, 0.4), "medium"), ((0.05, 0.3, 0.4), "low"), ((0.0, 0.05, 0.4), "low")],
)
def test_the_severity_follows_the_saving_at_the_low_end(saving: tuple[float, float, float], severity: str) -> None:
    findings = [finding("copies", 0.3, "busy:kernel:add", severity="high")]
    assert replayed(findings, savings={"copies": saving}) == [("copies", severity)]


def test_a_sure_saving_of_a_cause_is_not_minor() -> None:
    findings = [finding("copies", 0.04, "busy:kernel:add", severity="low")]
    assert replayed(findings, savings={"copies": (0.21, 0.3, 0.4)}) == [("copies", "medium")]
    assert replayed(findings, savings={"copies": (0.19, 0.3, 0.4)}) == [("copies", "low")]


@pytest.mark.parametrize(
    ("place", "saving", "overlap", "first"),
    [
        ("python", 0.4, 0.5, "copies"),  # it explains half of the place
        ("python", 0.4, 0.2, "python"),  # most of the place is something else
        ("launches", 0.2, 0.0, "copies"),  # what limits the machine follows all that is serious
        ("launches", 0.05, 0.0, "launches"),
    ],
)
def test_a_cause_precedes_the_place_of_which_it_explains_a_part(
    place: str, saving: float, overlap: float, first: str
) -> None:
    findings = [finding(place, 0.1, "idle:python", severity="high"), finding("copies", 0.3, "busy:kernel:add")]
    savings = {place: (0.5, 0.6, 0.7), "copies": (saving, saving, saving)}
    assert replayed(findings, savings=savings, overlaps={("copies", place): overlap})[0][0] == first


def test_a_place_that_causes_explain_is_low() -> None:
    findings = [finding("launches", 0.1, "idle:python", severity="high"), finding("copies", 0.3, "busy:kernel:add")]
    savings = {"launches": (0.5, 0.6, 0.7), "copies": (0.3, 0.4, 0.5)}
    apart, together = {}, {("copies", "launches"): 0.5}
    assert dict(replayed(findings, savings=savings, overlaps=apart)) == {"copies": "medium", "launches": "high"}
    assert dict(replayed(findings, savings=savings, overlaps=together)) == {"copies": "medium", "launches": "low"}
    for claimed, severity in ((0.4, "high"), (0.6, "low")):
        assert dict(replayed(findings, savings=savings, claimed={"launches": claimed}))["launches"] == severity


def test_of_savings_that_are_about_the_same_the_first_one_stays_first() -> None:
    findings = [finding("layer", 0.3, "busy:module:net.a"), finding("casts", 0.1, "busy:kernel:add")]
    savings = {"casts": (0.3, 0.32, 0.4), "layer": (0.3, 0.3, 0.4)}
    assert [rule for rule, _ in replayed(findings, savings=savings)] == ["layer", "casts"]
    savings["casts"] = (0.3, 0.4, 0.4)
    assert [rule for rule, _ in replayed(findings, savings=savings)] == ["casts", "layer"]


def test_a_replayed_report_ranks_as_a_trace_does_except_what_was_tried() -> None:
    findings = [finding("layer", 0.3, "busy:module:net.a"), finding("copies", 0.1, "busy:kernel:add")]
    model = Replayed({"layer": (0.3, 0.4, 0.5), "copies": (0.2, 0.2, 0.2)}, overlaps={("layer", "copies"): 0.9})
    step = Interval(low=9, median=10, high=11)
    tried = [findings[0], replace(findings[1], trial=Trial(config="x", before_ns=step, after_ns=step, verdict="same"))]
    for of, listed, severity in (
        (report(), findings, "low"), (v0_cuda(), findings, "low"), (v0_cuda(), tried, "medium"),
    ):  # fmt: skip
        ranked = rank(of, listed, savings=model, topics=TOPICS)
        assert {item.rule: item.severity for item in ranked} == {"layer": "medium", "copies": severity}
