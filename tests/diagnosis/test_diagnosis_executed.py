"""Work executed against work counted: on V1's measured counters, on both sides of each limit, and without numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import CUTLASS, FFT, conv, of_rule, static, v1, value
from traced_runs import with_traced

from profiler_kit.diagnosis import diagnose
from profiler_kit.diagnosis.rules import executed_work
from profiler_kit.records.experiments import ConvolutionPart, ConvolutionTiming, KernelCounters
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun

V1 = v1()
CONV_R1_MACS = 8 * 50 * 40 * 15**2 * 128**2
BUSY = 0.97  # the share of the step in which the device is busy: weights are shares of the step


def timing(
    run: ConfigRun,
    path: str,
    flops: int,
    *,
    share: float = 0.3,
    part: ConvolutionPart = "fprop",
    macs: int | None = CONV_R1_MACS,
    family: str = CUTLASS,
    complete: bool = True,
    workspace_bytes: int | None = None,
) -> ConvolutionTiming:
    """A part that takes `share` of the run's device time and executes `flops`."""
    assert run.device_ns is not None
    return ConvolutionTiming(
        path=path,
        part=part,
        calls=1,
        kernel_ns=round(share * run.device_ns),
        layout_ns=0,
        family=family,
        kernel="a kernel",
        macs=macs,
        workspace_bytes=workspace_bytes,
        counters=KernelCounters(
            flops=flops, dram_read_bytes=1_900_000_000, dram_write_bytes=290_000_000, kernels=5, complete=complete
        ),
    )


def with_parts(*parts: ConvolutionTiming, name: str = "default", source: Report = V1) -> Report:
    runs = tuple(replace(run, convolutions=parts) if run.config.name == name else run for run in source.runs)
    return replace(source, runs=runs)


DEFAULT, NO_TF32 = V1.run("default"), V1.run("no-tf32")
assert DEFAULT is not None
assert NO_TF32 is not None


def executed(source: Report) -> tuple[Finding, ...]:
    return of_rule(diagnose(source), "executed_work")


def one(source: Report) -> Finding:
    (finding,) = executed(source)
    return finding


def times_counted(factor: float, **rest: object) -> Report:
    return with_parts(timing(DEFAULT, "conv_r1", round(factor * 2 * CONV_R1_MACS), **rest))  # type: ignore[arg-type]


def test_v1s_tf32_tiles_are_explained_by_its_channels() -> None:
    """The kernel executed 241,639,808,464 operations on an H100, cutlass tiles of 256x64."""
    finding = one(with_parts(timing(DEFAULT, "conv_r1", 241_639_808_464)))
    assert finding.severity == "medium"
    assert all(words in finding.title for words in ("conv_r1", "2.05x", '"default"'))
    assert "50 input and 40 output channels, computed as 64 and 64" in finding.explanation
    assert all(words in finding.explanation for words in ("118 GFLOP", "241.6 GFLOP"))
    assert all(words in finding.advice for words in ("64 -> 64", "32 -> 32", "25.0 %", "1.12x", "not measured"))
    assert finding.computed
    assert value(finding, "factor in tiles of 64 channels").value == pytest.approx(2.048)
    assert finding.weight == pytest.approx(BUSY * 0.3 * (1 - 1 / 2.048), abs=0.001)


def test_fft_does_a_fraction_and_moves_more() -> None:
    part = timing(NO_TF32, "conv_r1", 10_600_000_000, family=FFT, workspace_bytes=1_212_000_000)
    finding = one(with_parts(part, name="no-tf32"))
    assert finding.severity == "info"
    assert all(words in finding.title for words in ("conv_r1", "0.0899x", '"no-tf32"', "FFT"))
    assert "2.04 GiB" in finding.explanation
    assert "workspace" in finding.advice
    assert "1.129 GiB" in finding.advice
    assert not finding.computed


@pytest.mark.parametrize(
    ("family", "name", "does_less"),
    [
        ("conv:winograd", "Winograd", True),
        ("gemm:complex", "FFT", True),  # the product between the transforms takes most of the time
        ("conv:legacy_direct", "direct convolution", False),
    ],
)
def test_only_algorithms_with_fewer_operations_are_said_to_do_less(family: str, name: str, does_less: bool) -> None:
    finding = one(times_counted(0.5, family=family))
    assert name in finding.title
    assert ("less arithmetic" in finding.explanation) is does_less


@pytest.mark.parametrize(("factor", "fires"), [(0.69, True), (0.71, False), (1.0, False), (1.49, False), (1.51, True)])
def test_between_the_limits_there_is_nothing_to_say(factor: float, fires: bool) -> None:
    assert bool(executed(times_counted(factor))) is fires


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.051, True)])
def test_a_part_that_takes_no_time_is_left_alone(share: float, fires: bool) -> None:
    assert bool(executed(times_counted(2.05, share=share))) is fires


@pytest.mark.parametrize(("share", "severity"), [(0.19, "low"), (0.21, "medium")])
def test_time_spent_on_padding_sets_the_severity(share: float, severity: str) -> None:
    assert one(times_counted(2.0, share=share)).severity == severity


def test_the_parts_of_a_layer_are_one_finding() -> None:
    parts = [
        timing(DEFAULT, "conv_r1", round(factor * 2 * CONV_R1_MACS), part=part, share=share)
        for part, factor, share in (("fprop", 2.05, 0.2), ("dgrad", 2.0, 0.4), ("wgrad", 1.6, 0.2))
    ]
    finding = one(with_parts(*parts))
    assert finding.weight == pytest.approx(BUSY * (0.2 * (1 - 1 / 2.05) + 0.4 / 2 + 0.2 * (1 - 1 / 1.6)), abs=0.001)
    assert finding.evidence[0].where == "conv_r1, dgrad, default"  # what loses most comes first
    assert all(factor in finding.explanation for factor in ("2.05x", "1.6x"))


def test_other_runs_are_named_for_comparison() -> None:
    source = with_parts(timing(DEFAULT, "conv_r1", round(2.05 * 2 * CONV_R1_MACS)))
    benchmark = source.run("benchmark")
    assert benchmark is not None
    both = with_parts(timing(benchmark, "conv_r1", round(1.12 * 2 * CONV_R1_MACS)), name="benchmark", source=source)
    assert '1.12x in "benchmark"' in one(both).explanation


@pytest.mark.parametrize(
    ("cin", "cout", "factor", "computed_as"),
    [
        (40, 25, 4.109, "64 and 64"),  # conv_r2, as counted on an H100
        (50, 15, 5.477, "64 and 64"),  # conv_b1
        (50, 40, 1.6, "50 and 64"),  # only one side of the product is in channels
        (64, 64, 1.8, None),
        (3, 50, 1.707, None),
    ],
)
def test_the_tiles_that_fit_the_measurement_are_named(
    cin: int, cout: int, factor: float, computed_as: str | None
) -> None:
    node = conv("layer", cin, cout, 3, 64)
    source = replace(V1, static=static(node, conv("other", 8, 8, 3, 64)))
    part = timing(DEFAULT, "layer", round(factor * 2 * node.forward.macs), macs=None)  # counted by the module then
    explanation = one(with_parts(part, source=source)).explanation
    assert f"{cin} input and {cout} output channels" in explanation
    assert ("computed as" in explanation) is (computed_as is not None)
    assert f"computed as {computed_as}" in explanation or computed_as is None


def test_an_images_channels_are_not_to_be_changed() -> None:
    node = conv("layer", 3, 50, 4, 128)
    source = replace(V1, static=static(node, conv("other", 8, 8, 3, 64)))
    part = timing(DEFAULT, "layer", round(8 / 3 * 56 / 50 * 2 * node.forward.macs), macs=None)
    finding = one(with_parts(part, source=source))
    assert "3 -> 56" in finding.advice


def test_what_the_device_cannot_count_is_not_called_less() -> None:
    assert executed(times_counted(0.1, complete=False)) == ()
    assert len(executed(times_counted(2.0, complete=False))) == 1  # what was counted is too much already


def test_without_counters_count_or_times_there_is_no_finding() -> None:
    part = timing(DEFAULT, "conv_r1", 10**12)
    assert len(executed(with_parts(part))) == 1
    assert executed(with_parts(replace(part, counters=None))) == ()
    assert executed(replace(with_parts(replace(part, macs=None)), static=None)) == ()
    assert executed(with_parts(replace(part, path="elsewhere", macs=None))) == ()
    source = with_parts(part)
    blind = tuple(with_traced(run, unattributed_ns=None) for run in source.runs)
    assert executed(replace(source, runs=blind)) == ()


@pytest.mark.parametrize(("cin", "cout"), [(1, 1), (3, 50), (50, 40), (64, 64), (100, 129)])
def test_wider_tiles_never_execute_less(cin: int, cout: int) -> None:
    node = conv("layer", cin, cout, 3, 64)
    source = replace(V1, static=static(node, conv("other", 8, 8, 3, 64)))
    part = timing(DEFAULT, "layer", 2 * 2 * node.forward.macs, macs=None)
    evidence = one(with_parts(part, source=source)).evidence
    factors = [float(e.value) for e in evidence if e.name.startswith("factor in tiles")]
    assert len(factors) == len(executed_work.MULTIPLES)
    assert factors == sorted(factors)
    assert factors[0] >= 1
