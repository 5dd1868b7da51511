"""The time between two steps by layer: parts that sum to the whole, and the layer that is named."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import examples
import pytest
from gate_reports import GPU, node, report
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_runs import traced_run

from profiler_kit.comparison.compare import compare
from profiler_kit.comparison.efficiency import apportion
from profiler_kit.comparison.sentences import WITHIN_NOISE
from profiler_kit.records.comparison import Comparison, EfficiencySplit
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.counts import Phase
from profiler_kit.records.document import Table
from profiler_kit.records.experiments import ConvolutionTiming, Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.serde import read_report
from profiler_kit.records.traces import TraceKernel, TraceModule
from profiler_kit.report.comparison import comparison_document

MEASURED = Path(__file__).resolve().parents[2] / "docs" / "measured"


def layer(
    path: str, ms: float, phase: Phase = "forward", family: str = "conv:xmma_igemm", calls: int = 1
) -> TraceModule:
    kernel = TraceKernel(name=f"{family} kernel", family=family, calls=calls, kernel_ns=round(ms * 1e6), math="fp32")
    return TraceModule(path=path, phase=phase, kernel_ns=round(ms * 1e6), kernels=(kernel,))


def timed(ms: float, layers: list[TraceModule], **fields: object) -> ConfigRun:
    median = round(ms * 1e6)
    step_ns = Interval(median=median, low=median, high=median)
    given: dict[str, object] = {
        "config": RunConfig(name="default"),
        "environment": GPU,
        "step_ns": step_ns,
        "further_repeats": (Repeat(step_ns=step_ns),) * 3,
        "clock": "kernel",
        "modules": tuple(layers),
        "unattributed_ns": 0,
    }
    return traced_run(**{**given, **fields})  # type: ignore[arg-type]


def net(name: str, macs: dict[str, int], one: ConfigRun) -> Report:
    return report([node(path, macs=count) for path, count in macs.items()], name=name, runs=[one])


def only(found: Comparison) -> EfficiencySplit:
    assert len(found.efficiencies) == 1
    return found.efficiencies[0]


def assert_sums(split: EfficiencySplit) -> None:
    for side in (split.a, split.b):
        assert sum(one.device_ns for one in side.layers) + side.rest_ns == side.step_ns
        assert sum(one.beyond_ns for one in side.layers) + side.rest_ns == side.beyond_ns
        assert all(one.beyond_ns == one.device_ns - one.at_reference_ns for one in side.layers)
        assert sum(one.flops for one in side.layers) == side.flops
    slow, fast = split.slower_first
    assert fast.beyond_ns == 0
    assert slow.step_ns - fast.step_ns == split.work_ns + slow.beyond_ns


WHOLE = st.integers(min_value=0, max_value=10**12)


@settings(max_examples=examples.count(60))
@given(WHOLE, st.lists(st.integers(min_value=1, max_value=10**15), min_size=1, max_size=30))
def test_shares_are_whole_and_sum_to_the_whole(whole: int, weights: list[int]) -> None:
    owners = {(str(i), "forward"): Fraction(weight) for i, weight in enumerate(weights)}
    shares = apportion(whole, owners)  # type: ignore[arg-type]
    assert sum(shares.values()) == whole
    for owner, weight in owners.items():
        assert abs(shares[owner] - whole * weight / sum(weights)) < 1  # type: ignore[index]


TIMES = st.lists(st.floats(min_value=0.001, max_value=50), min_size=2, max_size=2)
MACS = st.lists(st.integers(min_value=1, max_value=10**12), min_size=2, max_size=2)


@settings(max_examples=examples.count(40))
@given(TIMES, TIMES, MACS, MACS)
def test_parts_sum_to_the_difference_to_the_nanosecond(
    a_ms: list[float], b_ms: list[float], a_macs: list[int], b_macs: list[int]
) -> None:
    a = net("a", {"x": a_macs[0], "y": a_macs[1]}, timed(sum(a_ms) + 0.1, [layer("x", a_ms[0]), layer("y", a_ms[1])]))
    b = net("b", {"x": b_macs[0], "z": b_macs[1]}, timed(sum(b_ms) * 2, [layer("x", b_ms[0]), layer("z", b_ms[1])]))
    found = compare(a, b)
    for split in found.efficiencies:
        assert_sums(split)
    back = compare(b, a)
    assert [one.work_ns for one in found.efficiencies] == [one.work_ns for one in back.efficiencies]


def test_the_layer_that_makes_the_difference_is_named_with_its_algorithm() -> None:
    slow = net("old", {"conv": 10**9}, timed(10, [layer("conv", 9, family="conv:legacy_direct")]))
    fast = net("new", {"conv": 10**9}, timed(5, [layer("conv", 4, family="conv:fft")]))
    for found in (compare(slow, fast), compare(fast, slow)):
        split = only(found)
        assert_sums(split)
        assert split.work_ns == 0
        assert "The forward pass of old's conv adds 5 ms, with direct convolution in fp32" in split.sentence
        assert "(new's conv: FFT in fp32 at an effective " in split.sentence
        assert found.sentences.index(split.sentence) == 1, "the first sentence is the ratio of the times alone"


def test_the_measured_parts_of_a_convolution_come_before_its_kernels() -> None:
    parts = tuple(
        ConvolutionTiming(
            path="conv", part=part, calls=1, kernel_ns=ns, layout_ns=0, family=family, kernel="k", math="tf32", macs=10**9
        )
        for part, ns, family in (("dgrad", 10**6, "conv:fft"), ("wgrad", 6 * 10**6, "conv:winograd"))
    )  # fmt: skip
    slow = timed(10, [layer("conv", 8, "backward", "conv:legacy_direct")], convolutions=parts)
    found = compare(
        net("old", {"conv": 10**9}, slow), net("new", {"conv": 10**9}, timed(5, [layer("conv", 4, "backward")]))
    )
    uses = next(one for one in only(found).a.layers if one.path == "conv" and one.phase == "backward").algorithms
    assert [(use.part, use.family, use.math) for use in uses] == [
        ("wgrad", "conv:winograd", "tf32"),
        ("dgrad", "conv:fft", "tf32"),
    ]
    assert uses[0].flops_per_s == pytest.approx(2e9 / 6e-3)
    assert "Winograd in TF32" in only(found).sentence


def test_time_outside_of_kernels_is_named_where_it_is_most() -> None:
    slow = net("old", {"conv": 10**9}, timed(20, [layer("conv", 4, calls=2)]))
    fast = net("new", {"conv": 10**9}, timed(5, [layer("conv", 4)]))
    split = only(compare(slow, fast))
    assert (split.a.rest_ns, split.b.rest_ns) == (16_000_000, 1_000_000)
    assert "16 ms" in split.sentence
    assert "(new: 1 ms)" in split.sentence


def test_what_both_sides_lose_alike_is_no_reason() -> None:
    """A slow layer that is as slow on the other side explains nothing; the one that changed does."""
    macs = {"conv": 10**9, "norm": 10}
    slow = net(
        "old", macs, timed(20, [layer("conv", 7, family="conv:legacy_direct"), layer("norm", 12, family="norm")])
    )
    fast = net("new", macs, timed(15, [layer("conv", 2), layer("norm", 12, family="norm")]))
    split = only(compare(slow, fast))
    assert max(split.a.layers, key=lambda one: one.beyond_ns).path == "norm"
    assert "The forward pass of old's conv adds 5 ms" in split.sentence


def test_a_loss_spread_over_many_layers_blames_none() -> None:
    macs = {f"block.{i}": 10**9 for i in range(10)}
    slow = net("old", macs, timed(20, [layer(path, 2) for path in macs]))
    fast = net("new", macs, timed(10, [layer(path, 1) for path in macs]))
    sentence = only(compare(slow, fast)).sentence
    assert "10 layers" in sentence
    assert "10 ms" in sentence
    assert "1 ms in the forward pass of old's block.0" in sentence


def test_recomputation_counts_as_backward() -> None:
    slow = timed(20, [layer("conv", 4), layer("conv", 6, "backward"), layer("conv", 7, "recompute")])
    found = only(compare(net("a", {"conv": 10**9}, slow), net("b", {"conv": 10**9}, timed(5, [layer("conv", 4)]))))
    times = {one.phase: one.device_ns for one in found.a.layers if one.path == "conv"}
    assert times == {"forward": 4_000_000, "backward": 13_000_000}
    assert_sums(found)


def test_nothing_is_explained_where_nothing_differs() -> None:
    same = net("a", {"conv": 10**9}, timed(10, [layer("conv", 8)]))
    other = net("b", {"conv": 10**9}, timed(10.1, [layer("conv", 8)]))
    found = compare(same, other)
    assert found.efficiencies == ()
    assert WITHIN_NOISE in found.sentences[0]


@pytest.mark.parametrize("missing", ["trace", "count", "clock"])
def test_no_split_without_its_numbers(missing: str) -> None:
    a = net("a", {"conv": 10**9}, timed(10, [layer("conv", 8)]))
    one = {
        "trace": timed(20, [], unattributed_ns=None, clock=None),
        "count": timed(20, [layer("conv", 8)]),
        "clock": timed(20, [layer("conv", 8)], clock="operator"),
    }[missing]
    b = report(None, name="b", runs=[one]) if missing == "count" else net("b", {"conv": 10**9}, one)
    assert compare(a, b).efficiencies == ()


def test_work_follows_the_batch_that_a_configuration_runs() -> None:
    """Twice the examples in a step are twice the work: the same time for it is twice the efficiency."""
    batch = RunConfig(name="batch=2x", settings=(NamedValue(name="batch", value="2x"),))
    a = net("a", {"conv": 10**9}, timed(10, [layer("conv", 8)], config=batch, samples=8))
    b = net("b", {"conv": 10**9}, timed(10.7, [layer("conv", 8, calls=2)], config=batch, samples=16))
    found = compare(a, b)
    assert found.times[0].work_ratio == 2
    assert found.times[0].per_sample_ratio == pytest.approx(1.07 / 2)
    assert (found.times[0].a_samples, found.times[0].b_samples) == (8, 16)
    assert "a takes 1.87x the time" in found.times[0].sentence
    assert any("batch=2x" in note and "8 examples of a and 16 of b" in note for note in found.notes)
    split = only(found)
    assert_sums(split)
    assert split.b.flops == 2 * split.a.flops


def test_configurations_of_one_name_with_other_settings_do_not_compare() -> None:
    configs = [RunConfig(name="mine", settings=(NamedValue(name="batch", value=value),)) for value in ("2x", "4x")]
    a, b = (
        net(name, {"conv": 10**9}, timed(ms, [], config=c)) for name, ms, c in zip("ab", (10, 20), configs, strict=True)
    )
    row = next(one for one in compare(a, b).metrics if one.metric == "step_ns")
    assert row.verdict == "not_comparable"
    assert "configuration mine" in row.reason


@pytest.fixture(scope="module")
def measured() -> Comparison:
    return compare(*(read_report(MEASURED / f"convnet_{name}_h100.json") for name in ("v0", "v1")))


def test_the_measured_networks_are_taken_apart_exactly(measured: Comparison) -> None:
    assert set(measured.telling) == {one.config for one in measured.efficiencies}
    for split in measured.efficiencies:
        assert_sums(split)
        time = next(one for one in measured.times if one.config == split.config)
        slow, fast = split.slower_first
        assert slow.step_ns / fast.step_ns == pytest.approx(
            1 / time.work_ratio + slow.beyond_ns / fast.step_ns, abs=1e-6
        )


def test_in_plain_fp32_direct_convolution_meets_fft(measured: Comparison) -> None:
    split = next(one for one in measured.efficiencies if one.config == "no-tf32")
    assert "The forward pass of ConvNetV0's conv2 adds " in split.sentence
    assert ", with direct convolution in fp32" in split.sentence
    assert "(ConvNetV1's conv_r1: FFT in fp32 at an effective " in split.sentence
    forward = {one.path: one for side in (split.a, split.b) for one in side.layers if one.phase == "forward"}
    assert forward["conv_r1"].flops_per_s is not None
    assert forward["conv2"].flops_per_s is not None
    assert forward["conv_r1"].flops_per_s > 3 * forward["conv2"].flops_per_s


def test_the_tables_rows_sum_to_the_step(measured: Comparison) -> None:
    section = next(one for one in comparison_document(measured).sections if one.title == "Efficiency by layer")
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert len(tables) == len(measured.efficiencies)
    for table, split in zip(tables, measured.efficiencies, strict=True):
        for label, side in ((measured.a.label, split.a), (measured.b.label, split.b)):
            rows = [row for row in table.rows if row[0] == label]
            keys = [head.key for head in table.heads]
            ns = keys.index("device_ns")
            *parts, whole = [int(row[ns] or 0) for row in rows]
            assert sum(parts) == whole == side.step_ns
            assert rows[-1][keys.index("beyond")] == side.beyond_ns


@pytest.mark.parametrize(("layer_ms", "is_said"), [(4, False), (12, True)])
def test_layers_that_take_longer_than_the_step_have_a_remark(layer_ms: int, is_said: bool) -> None:
    slow = net("old", {"conv": 10**9}, timed(20, [layer("conv", 4, calls=2)]))
    fast = net("new", {"conv": 10**9}, timed(5, [layer("conv", layer_ms)]))
    tables = [
        block
        for section in comparison_document(compare(slow, fast)).sections
        for block in section.blocks
        if isinstance(block, Table) and block.name.startswith("efficiency")
    ]
    assert tables
    assert all(("Other time of new is negative" in table.caption) == is_said for table in tables)
