"""What the rules read off a report: pairs, families, shares, convolutions, peaks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import FFT, IM2COL, V0_STATIC, all_failed, conv, cpu, layer, v0, v1
from torch import nn
from traced_runs import traced_run

from profiler_kit.counting.modules import config_text, layer_sizes
from profiler_kit.diagnosis.convolution import convolution_of
from profiler_kit.diagnosis.facts import Facts
from profiler_kit.diagnosis.pairs import counterpart, flag_pairs, measured_runs
from profiler_kit.diagnosis.phrases import join_list, plural
from profiler_kit.diagnosis.recorded import measured_trace
from profiler_kit.diagnosis.step_work import StepWork
from profiler_kit.diagnosis.timing import phase_shares, ratio
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import Cost, LayerSizes, ModuleNode
from profiler_kit.records.families import family_name, is_convolution, main_algorithm
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import PhaseTime, TraceKernel


def test_counterparts_are_found_by_flags_whatever_their_names() -> None:
    report = v0()
    renamed = replace(
        report, runs=tuple(replace(r, config=replace(r.config, name=f"#{i}")) for i, r in enumerate(report.runs[:-1]))
    )
    found = counterpart(renamed, renamed.runs[0], "benchmark", True)
    assert found is renamed.runs[1]
    found = counterpart(renamed, renamed.runs[1], "allow_tf32", False)
    assert found is renamed.runs[5]


def test_a_run_has_no_counterpart_in_a_flag_it_already_has_or_cannot_have() -> None:
    report = v0()
    assert counterpart(report, report.runs[1], "benchmark", True) is None
    off = report.run("cudnn-off")
    assert off is not None
    assert counterpart(report, off, "benchmark", True) is None
    assert counterpart(cpu(), cpu().runs[0], "benchmark", True) is None


def test_pairs_start_with_the_baselines_and_leave_out_repetitions() -> None:
    names = [(p.off.config.name, p.on.config.name) for p in flag_pairs(v0(), "benchmark")]
    assert names == [
        ("default", "benchmark"),
        ("deterministic", "benchmark+deterministic"),
        ("no-tf32", "benchmark+no-tf32"),
    ]
    turned = replace(v0(), runs=v0().runs[::-1])
    first = flag_pairs(turned, "deterministic")[0]
    assert turned.baseline() is not None
    assert (first.off.config.deterministic, first.on.config.deterministic) == (False, True)


def test_failed_runs_and_repetitions_are_not_measured() -> None:
    assert measured_runs(all_failed()) == ()
    assert [r.config.name for r in measured_runs(v1())] == [
        "default",
        "benchmark",
        "no-tf32",
        "benchmark+no-tf32",
        "cudnn-off",
    ]


def test_a_complex_product_beside_fft_is_fft() -> None:
    found = main_algorithm(layer("c", "forward", 1000, FFT).kernels)
    assert found is not None
    assert (found.family, found.math) == (FFT, "fp32")
    alone = main_algorithm((TraceKernel(name="cgemm", family="gemm:complex", calls=1, kernel_ns=5),))
    assert alone is not None
    assert alone.family == "gemm:complex"


def test_the_product_of_im2col_belongs_to_it() -> None:
    found = main_algorithm(layer("c", "forward", 1000, IM2COL).kernels)
    assert found is not None
    assert found.family == IM2COL


def test_no_kernels_are_no_algorithm() -> None:
    assert main_algorithm(()) is None


def test_layout_conversion_is_no_convolution() -> None:
    assert is_convolution("conv:fft")
    assert not is_convolution("conv:layout")
    assert not is_convolution("gemm")


def test_an_unknown_family_keeps_its_name() -> None:
    assert family_name("conv:new") == "conv:new"
    assert family_name("conv:fft") == "FFT"


def test_recomputation_counts_as_backward() -> None:
    run = traced_run(
        config=RunConfig(name="x"),
        phases=(
            PhaseTime(phase="forward", stopwatch_ns=1, kernel_ns=25),
            PhaseTime(phase="backward", stopwatch_ns=3, kernel_ns=50),
            PhaseTime(phase="recompute", kernel_ns=25),
        ),
    )
    assert phase_shares(run, "kernel") == {"forward": 0.25, "backward": 0.75}
    assert phase_shares(run, "stopwatch") == {"forward": 0.25, "backward": 0.75}
    assert phase_shares(run, "event") == {}


def test_the_median_kernel_weighs_by_calls() -> None:
    many = TraceKernel(name="a", family="pointwise", calls=100, kernel_ns=300_000)
    one = TraceKernel(name="b", family="gemm", calls=1, kernel_ns=9_000_000)
    run = traced_run(config=RunConfig(name="x"), clock="kernel", kernels=(one, many), unattributed_ns=9_300_000)
    trace = measured_trace(run)
    assert trace is not None
    assert StepWork(trace=trace, name="x", facts=Facts(), is_measured=True).median_kernel_ns == 3_000
    assert measured_trace(ConfigRun(config=RunConfig(name="x"))) is None


def test_shares_of_nothing_are_unknown() -> None:
    assert ratio(1, 0) is None
    assert ratio(None, 1) is None
    assert ConfigRun(config=RunConfig(name="x")).busy_share is None


@pytest.mark.parametrize(
    ("module", "groups"),
    [
        (nn.Conv2d(30, 50, 16, padding=7), 1),
        (nn.Conv2d(8, 16, (3, 5), stride=2, groups=4, bias=False), 4),
        (nn.Conv1d(6, 6, 3, dilation=2, groups=6), 6),
        (nn.Conv3d(4, 8, 3, padding="same"), 1),
    ],
)
def test_reads_a_convolution_as_the_count_writes_it(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, groups: int) -> None:
    grid = (5, 7, 9)[: len(module.kernel_size)]
    macs = 2 * module.weight.numel()
    for size in grid:
        macs *= size
    node = ModuleNode(
        path="c",
        class_name=type(module).__name__,
        config=config_text(module),
        calls=1,
        forward=Cost(macs=macs, flops=2 * macs),
        output_shape=(2, module.out_channels, *grid),
    )
    found = convolution_of(node)
    assert found is not None
    assert (found.channels_in, found.channels_out, found.groups) == (module.in_channels, module.out_channels, groups)
    assert found.kernel == module.kernel_size
    assert found.macs_per_image * found.images == macs
    assert convolution_of(replace(node, config="", sizes=layer_sizes(module))) == found
    assert found.is_strided == (module.stride[0] > 1)


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (nn.Linear(3, 5), LayerSizes(inputs=3, outputs=5)),
        (nn.LSTM(7, 2), LayerSizes(inputs=7, outputs=2)),
        (nn.BatchNorm2d(4), None),
    ],
)
def test_the_count_gives_the_sizes_of_a_layer_that_older_reports_have_as_text(
    module: nn.Module, sizes: LayerSizes | None
) -> None:
    assert layer_sizes(module) == sizes
    assert ModuleNode(path="", class_name="", config=config_text(module)).layer_sizes == sizes


@pytest.mark.parametrize(
    "change",
    [
        {"config": ""},
        {"config": "k16"},
        {"class_name": "ConvTranspose2d"},
        {"output_shape": None},
        {"output_shape": (50, 256, 256)},
        {"calls": 0},
        {"forward": Cost(macs=1, flops=2)},
    ],
)
def test_no_closed_form_is_claimed_where_the_count_differs(change: dict[str, object]) -> None:
    assert convolution_of(conv("c", 30, 50, 16, 256)) is not None
    assert convolution_of(replace(conv("c", 30, 50, 16, 256), **change)) is None  # type: ignore[arg-type]


def test_the_networks_of_the_case_study_have_the_known_macs() -> None:
    assert V0_STATIC.forward.macs == 8 * 25_327_125_920
    assert v1().static is not None
    assert v1().static.forward.macs == 8 * 7_619_297_280  # type: ignore[union-attr]


def test_listing() -> None:
    assert join_list([]) == ""
    assert join_list(["a"]) == "a"
    assert join_list(["a", "b", "c"]) == "a, b and c"
    assert join_list(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
    assert (plural(1, "step"), plural(1241, "step")) == ("1 step", "1,241 steps")
