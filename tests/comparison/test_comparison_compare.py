from __future__ import annotations

from dataclasses import replace

import pytest
from gate_reports import GPU, MIB, node, peak, report, run, static
from traced_runs import with_traced

from profiler_kit.comparison.compare import compare
from profiler_kit.errors import NotComparableError
from profiler_kit.records.comparison import Comparison, MetricRow
from profiler_kit.records.counts import UncountedOp
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import Failure
from profiler_kit.records.target import InputInfo
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report.comparison import comparison_document

# The case of the slow small network, in small: V0 does 3.32 times V1's work, saves more, and peaks lower.
V0_LAYERS = [node("conv2", config="30, 50", macs=332_000_000, params=384_050, saved_bytes=177 * MIB)]
V1_LAYERS = [node("conv_r1", config="50, 40", macs=100_000_000, params=450_040, saved_bytes=69 * MIB)]


def v0(**options: object) -> Report:
    memory = peak(433 * MIB, parameters=2 * MIB, saved_activations=177 * MIB)
    return report(V0_LAYERS, name="convnet_v0", runs=[run("no-tf32", ms=49.54, memory=memory)], **options)  # type: ignore[arg-type]


def v1(**options: object) -> Report:
    memory = peak(1508 * MIB, parameters=2 * MIB, saved_activations=69 * MIB, workspace=1212 * MIB)
    return report(V1_LAYERS, name="convnet_v1", runs=[run("no-tf32", ms=12.23, memory=memory)], **options)  # type: ignore[arg-type]


def row(comparison: Comparison, metric: str, config: str | None = None) -> MetricRow:
    return next(one for one in comparison.metrics if (one.metric, one.config) == (metric, config))


def test_counted_metrics_are_exact() -> None:
    found = compare(v0(), v1())
    assert (row(found, "params").a, row(found, "params").b, row(found, "params").verdict) == (384_050, 450_040, "worse")
    assert row(found, "macs").verdict == "better"
    assert row(found, "macs").ratio == pytest.approx(100 / 332)
    assert row(found, "flops").a == 6 * 332_000_000


def test_a_report_beside_itself_is_the_same_everywhere() -> None:
    found = compare(v0(), v0())
    assert {one.verdict for one in found.metrics} == {"same"}
    assert {one.kind for one in found.layers} == {"same"}
    assert found.a.label != found.b.label
    assert found.times[0].time_ratio == found.times[0].work_ratio == found.times[0].efficiency_ratio == 1


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        (("nets/old.py", "nets/new.py"), ("old.py", "new.py")),
        (("old/net.py:Net", "new/net.py:Net"), ("old/net.py:Net", "new/net.py:Net")),
        (("/srv/a/nets/net.py", "nets/net.py"), ("a/nets/net.py", "nets/net.py")),
        (("net.py", "net.py"), ("A", "B")),
    ],
)
def test_sides_of_one_class_are_told_apart_by_their_files(specs: tuple[str, str], told: tuple[str, str]) -> None:
    a, b = (report(V0_LAYERS, name="Net", spec=spec) for spec in specs)
    found = compare(a, b)
    assert (found.a.label, found.b.label) == (f"Net ({told[0]})", f"Net ({told[1]})")


def test_a_failed_side_is_named() -> None:
    failure = Failure(kind="crash", message="the process crashed (SIGSEGV)")
    found = compare(v0(), report(V1_LAYERS, name="convnet_v1", runs=[run("no-tf32", failure=failure)]))
    reason = row(found, "step_ns", "no-tf32").reason
    assert reason.startswith("convnet_v1 failed (crash)")
    assert failure.message in reason
    assert any("no-tf32" in note and reason in note for note in found.notes)


def test_on_a_cpu_the_layers_time_is_operator_time() -> None:
    """A CPU is no device beside the host: what the trace adds up there is the operators' own time."""
    kernel = [report(V0_LAYERS, name=name, runs=[run(layers=[("conv2", 8.0)])]) for name in "ab"]
    operator = [replace(one, runs=(with_traced(one.runs[0], clock="operator"),)) for one in kernel]
    for reports, words in ((kernel, "device time"), (operator, "operator time")):
        found = compare(*reports)
        assert row(found, "device_ns", "default").title == f"{words.capitalize()}, step"
        text = renderer_by_name("terminal").render(comparison_document(found), RenderOptions(detail=True))
        other = {"device time": "operator time", "operator time": "device time"}[words]
        assert words in text.lower()
        assert other not in text.lower()


def test_swapping_the_sides_swaps_the_verdicts() -> None:
    swapped = {"better": "worse", "worse": "better"}
    there, back = compare(v0(), v1()), compare(v1(), v0())
    assert [swapped.get(one.verdict, one.verdict) for one in there.metrics] == [one.verdict for one in back.metrics]


def test_the_time_ratio_is_work_over_efficiency() -> None:
    time = compare(v0(), v1()).times[0]
    assert time.time_ratio == pytest.approx(12.23 / 49.54)
    assert time.work_ratio == pytest.approx(100 / 332)
    assert time.time_ratio == pytest.approx(time.work_ratio / time.efficiency_ratio)
    assert time.a_flops_per_s == pytest.approx(6 * 332e6 / 49.54e-3, rel=1e-6)


@pytest.mark.parametrize("sides", [(v0, v1), (v1, v0)])
def test_the_sentence_is_told_from_the_slower_side(sides: tuple) -> None:  # type: ignore[type-arg]
    told = compare(sides[0](), sides[1]()).times[0].sentence
    assert told.startswith("convnet_v0 takes 4.05x the time of convnet_v1: 3.32x the work at 0.82x the efficiency (")
    assert compare(sides[0](), sides[1]()).times[0].per_sample_ratio is None


def test_other_batch_sizes_are_told_per_sample() -> None:
    half = v1(inputs=(InputInfo(name="x", shape=(4, 3, 16, 16), dtype="float32"),))
    found = compare(v0(), half)
    assert (found.a.samples, found.b.samples) == (8, 4)
    per_sample = found.times[0].per_sample_ratio
    assert per_sample is not None
    assert per_sample == pytest.approx(2 * found.times[0].time_ratio)
    assert "convnet_v0 takes 2.03x the time" in found.times[0].sentence
    assert row(found, "flops").verdict == row(found, "step_ns", "no-tf32").verdict == "not_comparable"
    assert any("different inputs" in note and "FLOPs, step" in note for note in found.notes)
    assert row(found, "params").verdict == "worse"


def test_more_saved_but_a_lower_peak_is_explained_by_the_workspace() -> None:
    for found in (compare(v0(), v1()), compare(v1(), v0())):
        (explanation,) = [one for one in found.explanations if (one.key, one.config) == ("activations", "no-tf32")]
        assert explanation.verdict == "wrong"
        assert any(explanation.sentence in sentence for sentence in found.sentences)
        for words in ("convnet_v1 has a higher peak", "(1.473 GiB, 433 MiB)", "although", "(69 MiB, 177 MiB)"):
            assert words in explanation.sentence
        assert "1.184 GiB at its peak in conv_r1's forward" in explanation.sentence


def test_no_such_sentence_where_both_point_the_same_way() -> None:
    small = report(V1_LAYERS, name="convnet_v1", runs=[run("no-tf32", memory=peak(200 * MIB))])
    found = compare(v0(), small)
    wrong = [one.sentence for one in found.explanations if one.key == "activations" and one.verdict == "wrong"]
    assert not any(sentence in line for sentence in wrong for line in found.sentences)


def test_memory_parts_make_the_peak_on_both_sides() -> None:
    found = compare(v0(), v1())
    assert [one.config for one in found.memory] == ["no-tf32", None]
    for split in found.memory:
        assert sum(part.a or 0 for part in split.parts) == split.a_peak_bytes
        assert sum(part.b or 0 for part in split.parts) == split.b_peak_bytes
    workspace = {
        split.config: next(part.b for part in split.parts if part.part == "workspace") for split in found.memory
    }
    assert workspace == {"no-tf32": 1212 * MIB, None: None}  # unknown is no zero


def step(ms_a: float, ms_b: float, *, again: float | None = None, spread_ms: float = 0.01) -> MetricRow:
    """The step-time row of two runs in four processes each; `again` is another process of the first side."""
    if again is None:
        sides = [run(ms=ms, spread_ms=spread_ms, further_repeats=()) for ms in (ms_a, ms_b)]
    else:
        repeats = [Repeat(step_ns=run(ms=ms, spread_ms=spread_ms).step_ns) for ms in (again, ms_a, again)]
        sides = [run(ms=ms_a, spread_ms=spread_ms, further_repeats=tuple(repeats)), run(ms=ms_b, spread_ms=spread_ms)]
    found = compare(*(report(V0_LAYERS, runs=[side]) for side in sides))
    return row(found, "step_ns", "default")


@pytest.mark.parametrize(
    ("ms_a", "ms_b", "again", "spread_ms", "verdict"),
    [
        (10.0, 12.0, 10.1, 0.01, "worse"),
        (12.0, 10.0, 12.1, 0.01, "better"),
        (10.0, 12.0, 10.1, 1.5, "noise"),  # the intervals overlap
        (10.0, 12.0, 13.0, 0.01, "noise"),  # the same configuration differs from itself by more
        (10.0, 10.1, 10.0, 0.01, "noise"),  # a pair that agrees by luck proves no precision
        (10.0, 10.4, None, 0.01, "unknown"),  # one process a side: the noise of processes is unknown
        (10.0, 20.0, None, 0.01, "unknown"),
        (10.0, 11.0, 10.1, 0.01, "worse"),
        (10.0, 10.0, None, 0.01, "same"),
    ],
)
def test_a_time_differs_only_beyond_the_noise(
    ms_a: float, ms_b: float, again: float | None, spread_ms: float, verdict: str
) -> None:
    found = step(ms_a, ms_b, again=again, spread_ms=spread_ms)
    assert found.verdict == verdict
    assert bool(found.reason) == (verdict in ("noise", "unknown"))


def test_a_failed_run_is_a_verdict_and_the_rest_stands() -> None:
    failed = run(failure=Failure(kind="out_of_memory", message="needs 9 GiB"))
    found = compare(report(V0_LAYERS, runs=[run()]), report(V1_LAYERS, name="b", runs=[failed]))
    step_row = row(found, "step_ns", "default")
    assert (step_row.verdict, step_row.b) == ("failed", None)
    assert "out_of_memory" in step_row.reason
    assert row(found, "flops").verdict == "better"
    assert not found.times
    assert any("needs 9 GiB" in note for note in found.notes)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"device_name": "A100"}, "A100"),
        ({"torch": "2.12"}, "2.12"),
        ({"cudnn": "8"}, "cuDNN"),
        ({"threads": 4}, "threads"),
    ],
)
def test_another_environment_does_not_compare_but_is_shown(change: dict[str, object], named: str) -> None:
    there = run(environment=replace(GPU, **change), ms=20)  # type: ignore[arg-type]
    found = compare(report(V0_LAYERS, runs=[run(ms=10)]), report(V0_LAYERS, name="b", runs=[there]))
    step_row = row(found, "step_ns", "default")
    assert (step_row.verdict, step_row.ratio) == ("not_comparable", 2.0)
    assert named in step_row.reason
    assert not found.times


def test_mode_dtype_and_convention_are_told_apart() -> None:
    base = report(V0_LAYERS, runs=[run()])
    mode = compare(base, report(V0_LAYERS, name="b", mode="infer", runs=[run()]))
    assert row(mode, "flops").verdict == row(mode, "step_ns", "default").verdict == "not_comparable"
    assert row(mode, "params").verdict == "same"
    dtype = compare(base, report(V0_LAYERS, name="b", dtype="bfloat16", runs=[run()]))
    assert row(dtype, "saved").verdict == row(dtype, "step_ns", "default").verdict == "not_comparable"
    assert row(dtype, "flops").verdict == "same"
    convention = compare(base, report(count=static(V0_LAYERS, convention="MAC = 1 FLOP"), name="b"))
    assert row(convention, "flops").verdict == "not_comparable"
    assert row(convention, "saved").verdict == "same"
    version = compare(
        report(count=static(V0_LAYERS, torch="2.12")), report(count=static(V0_LAYERS, torch="2.13"), name="b")
    )
    assert "2.13" in row(version, "flops").reason


def test_nothing_comparable_is_an_error() -> None:
    with pytest.raises(NotComparableError):
        compare(report(None), report(None, name="b"))
    failed = run(failure=Failure(kind="crash", message="gone"))
    with pytest.raises(NotComparableError, match="gone"):
        compare(report(None, runs=[failed]), report(None, name="b", runs=[run()]))


def test_runs_alone_compare_without_a_count() -> None:
    found = compare(report(None, runs=[run(ms=10)]), report(None, name="b", runs=[run(ms=20)]))
    assert row(found, "step_ns", "default").verdict == "worse"
    assert found.layers == ()


def test_uncounted_ops_and_guessed_shapes_are_noted() -> None:
    blind = static(V0_LAYERS, uncounted=(UncountedOp(op="aten.fft", calls=2, paths=("conv2",)),))
    found = compare(report(count=blind), report(V0_LAYERS, name="b", inputs_from="guess"))
    assert any("aten.fft" in note for note in found.notes)
    assert any("guessed" in note for note in found.notes)


def test_the_baseline_comes_first_and_repetitions_stay_out() -> None:
    runs = [
        run("benchmark", failure=Failure(kind="crash", message="x")),
        run("default"),
        run("again", repeat_of="default"),
    ]
    found = compare(report(V0_LAYERS, runs=runs), report(V0_LAYERS, name="b", runs=runs))
    assert [one.config for one in found.metrics if one.metric == "step_ns"] == ["default", "benchmark"]
