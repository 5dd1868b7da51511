"""The place without which a step saves most: which places count, and what the finding claims."""

from __future__ import annotations

from typing import Any

import pytest
from diagnose_cases import texts
from published_traces import PUBLISHED, published
from trace_reports import kernel, trace, traces

import profiler_kit
from profiler_kit.diagnosis.rules.data import HOST_COPIES
from profiler_kit.diagnosis.rules.launches import LAUNCH_BOUND
from profiler_kit.diagnosis.rules.places import COSTLY_PLACE, REPEATED_WORK
from profiler_kit.records.report import Finding
from profiler_kit.records.traces import Saving, TraceOperator, WorkSite
from profiler_kit.simulation.repeated_work import REPEATED


def site(saving: float, *, source: str = "train.py(3): clip", operator: str = "", **more: Any) -> WorkSite:
    fields: dict[str, Any] = {"phase": "other", "launches": 100.0, "launch_share": 0.5, "product_share": 0.0} | more
    return WorkSite(
        source="" if operator else source,
        operator=operator,
        saving=Saving(median=saving, low=saving, high=saving),
        **fields,
    )


def findings(*sites: WorkSite) -> list[Finding]:
    return list(COSTLY_PLACE.findings(traces(trace(sites=sites))))


@pytest.mark.parametrize(("saving", "severity"), [(0.14, None), (0.16, "medium"), (0.39, "medium"), (0.41, "high")])
def test_a_function_by_its_saving(saving: float, severity: str | None) -> None:
    assert [f.severity for f in findings(site(saving))] == ([severity] if severity else [])


@pytest.mark.parametrize(("saving", "fires"), [(0.39, False), (0.41, True)])
def test_an_operator_has_to_be_a_large_part_of_the_step(saving: float, fires: bool) -> None:
    assert bool(findings(site(saving, operator="aten::to"))) is fires


@pytest.mark.parametrize(("more", "fires"), [
    ({"product_share": 0.26}, False), ({"product_share": 0.24}, True),
    ({"launch_share": 0.99}, False), ({"launch_share": 0.97}, True),
])  # fmt: skip
def test_the_model_and_the_whole_step_are_no_places(more: dict[str, float], fires: bool) -> None:
    assert bool(findings(site(0.5, **more))) is fires


def test_the_largest_place_is_claimed_and_the_function_comes_before_its_operator() -> None:
    (place,) = findings(site(0.5, operator="aten::to"), site(0.502), site(0.3, source="train.py(9): log"))
    assert texts(place.claims) == ("site:function:train.py(3): clip",)
    assert place.weight == 0.502
    assert {e.name: e.value for e in place.evidence} == {"saving without it": 50.2, "launches per step": 100.0}
    (place,) = findings(site(0.9, operator="aten::to"), site(0.5))
    assert texts(place.claims) == ("site:operator:aten::to",)


def test_a_function_or_a_loop_that_saves_most_of_what_has_no_backward_pass_is_the_place() -> None:
    apart = site(0.25, source="", has_gradient=False)
    (place,) = findings(apart, site(0.2))
    assert texts(place.claims) == ("site:function:train.py(3): clip",)
    (place,) = findings(apart, site(0.18))
    assert texts(place.claims) == ("site:gradient:none",)
    (place,) = findings(apart, site(0.2, source="", loop="aten::mul_, aten::add_"))
    assert texts(place.claims) == ("site:loop:aten::mul_, aten::add_",)


def test_a_row_of_operators_is_a_place_unless_a_function_saves_most_of_it() -> None:
    row = site(0.3, source="", row="aten::sub, aten::pow, aten::sum")
    (place,) = findings(row)
    assert texts(place.claims) == ("site:row:aten::sub, aten::pow, aten::sum",)
    (place,) = findings(row, site(0.25))
    assert texts(place.claims) == ("site:function:train.py(3): clip",)


@pytest.mark.parametrize("phase", ["data", "optimizer"])
def test_phases_with_rules_of_their_own_have_no_places(phase: str) -> None:
    assert not findings(site(0.5, phase=phase))
    assert not findings(loop(0.5, phase=phase))


def loop(saving: float, **more: Any) -> WorkSite:
    return site(saving, source="", loop="aten::mul_, aten::add_, aten::mul_", rounds=75.0, **more)


@pytest.mark.parametrize(("saving", "severity"), [(0.14, None), (0.16, "medium"), (0.41, "high")])
def test_a_loop_by_its_saving(saving: float, severity: str | None) -> None:
    assert [f.severity for f in findings(loop(saving))] == ([severity] if severity else [])


def test_the_largest_loop_has_its_place_and_its_rounds() -> None:
    (finding,) = findings(loop(0.2), loop(0.3, within="train.py(3): clip"), site(0.25))
    assert texts(finding.claims) == ("site:loop:aten::mul_, aten::add_, aten::mul_",)
    values = {e.name: e.value for e in finding.evidence}
    assert values == {"saving without it": 30.0, "rounds per step": 75.0, "launches per step": 100.0}
    assert "75 rounds of aten::mul_ and aten::add_ in train.py(3): clip" in finding.title
    (around,) = findings(loop(0.3), site(0.3))
    assert texts(around.claims) == ("site:function:train.py(3): clip",), "of about the same, the function"


def test_whether_a_network_without_gradients_is_needed_is_a_matter_of_words() -> None:
    (apart,) = findings(site(0.39, source="", has_gradient=False, operators=("aten::conv2d",)))
    assert apart.severity == "medium"
    assert "the outputs of a teacher" in apart.advice


def test_a_call_that_goes_as_a_whole_precedes_work_that_has_to_be_done() -> None:
    call = site(0.2, source="", call="train.py(9): accuracy")
    (place,) = findings(site(0.3), call)
    assert texts(place.claims) == ("site:call:train.py(9): accuracy",)
    (place,) = findings(site(0.5), call)
    assert texts(place.claims) == ("site:function:train.py(3): clip",)


def test_an_operator_without_launches_computes_on_the_cpu() -> None:
    (place,) = findings(site(0.2, operator="aten::randn", launches=0.0))
    assert texts(place.claims) == ("site:operator:aten::randn",)


def test_modules_are_no_places() -> None:
    assert not findings(site(0.5, source="", module="net"))


@pytest.mark.parametrize(
    ("more", "is_place"), [({"operators": ("aten::to",)}, True), ({"operators": ("aten::mul", "aten::to")}, False)]
)
def test_copies_name_the_function_that_mostly_copies(more: dict[str, Any], is_place: bool) -> None:
    copies = kernel("memcpy/memset", 40.0, 10, name="Memcpy DtoH (Device -> Pageable)")
    step = trace(phases={"forward": (100.0, 100.0, 0.0)}, kernels=[copies], sites=(site(0.3, **more),))
    (finding,) = HOST_COPIES.findings(traces(step))
    assert ("train.py(3): clip" in finding.explanation) is is_place


def test_a_row_of_several_layers_is_no_place() -> None:
    assert not findings(site(0.5, source="", row="aten::sub, aten::pow, aten::sum", rounds=12.0))


@pytest.mark.parametrize(("saving", "severity"), [(0.04, None), (0.06, "low"), (0.11, "medium"), (0.31, "high")])
@pytest.mark.parametrize("repeated", REPEATED)
def test_repeated_work_by_its_saving(repeated: str, saving: float, severity: str | None) -> None:
    found = list(REPEATED_WORK.findings(traces(trace(sites=(site(saving, source="", repeated=repeated),)))))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert [texts(finding.claims) for finding in found] == ([(f"site:repeated:{repeated}",)] if severity else [])


def test_no_replay_no_place() -> None:
    assert findings() == []


def test_a_launch_bound_step_names_the_place_of_most_launches() -> None:
    """Two thirds of the step are idle before launches; the function causes half of that, or launches half of the work."""
    idle = {("op dispatch", "forward"): 200.0}

    def title(*sites: WorkSite) -> str:
        return next(iter(LAUNCH_BOUND.findings(traces(trace(idle=idle, sites=sites))))).title

    assert "most come from train.py(3): clip" in title(site(0.5))
    assert title(site(0.2)).endswith("50.0 % of the launches come from train.py(3): clip")
    assert "train.py(3): clip" not in title(site(0.2, launch_share=0.3))
    assert "net.heads" in title(site(0.2, source="", module="net.heads", launch_share=0.6))
    assert "net" not in title(site(0.2, source="", module="net", launch_share=0.99)), "it is the step"


@published
def test_the_large_layer_precedes_its_padding() -> None:
    """The replay saves 40 % with half of the layer, and 13 % without its padding."""
    report = profiler_kit.inspect([PUBLISHED / "h100" / "convnet_v0.json.gz"]).report
    severities = {finding.rule: finding.severity for finding in report.findings}
    assert report.findings[0].rule == "dominant_layer"
    assert (severities["dominant_layer"], severities["channels_multiple"]) == ("high", "low")


def test_the_advice_on_a_place_follows_the_families_of_its_operators() -> None:
    operators = [
        TraceOperator(name=name, family=family, calls=9, kernel_ns=1, host_self_ns=1)
        for name, family in (("aten::contiguous", "cat/copy"), ("aten::sort", "sort/scan"), ("aten::mm", "gemm"))
    ]
    place = site(0.5, operators=("aten::mm", "aten::sort", "SortBackward0", "aten::contiguous"))
    (finding,) = COSTLY_PLACE.findings(traces(trace(sites=(place,), operators=operators)))
    assert "topk" in finding.advice
    assert "contiguous()" in finding.advice
    (finding,) = findings(place)
    assert "topk" not in finding.advice, "nothing tells the families"
