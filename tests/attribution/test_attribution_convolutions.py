"""Parts of convolutions in traces: their kernels, the main kernel family, and their MACs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from marked_traces import ENGINE, MAIN, TraceText, attribution

from profiler_kit.attribution.convolutions import convolution_timings, with_macs
from profiler_kit.errors import TraceError
from profiler_kit.records import marks
from profiler_kit.records.counts import ZERO, Cost, ModuleNode, StaticCount
from profiler_kit.records.experiments import CONVOLUTION_PARTS, ConvolutionPart, ConvolutionTiming, PartWorkspace

TO_NHWC = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(...)"
)
TO_NCHW = (
    "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>()"
)
XMMA_TF32 = (
    "sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x64_stage1_"
    "warpsize4x1x1_g1_tensor16x8x8_aligna8_alignc4_execute_kernel__5x_cudnn"
)
XMMA_FP32 = (
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x32x8_stage3_warpsize2x2x1_g1_ffma_"
    "aligna4_alignc4_execute_kernel__5x_cudnn"
)
XMMA_DGRAD = (
    "sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_"
    "strided_execute_kernel__5x_cudnn"
)
SPLIT_K = "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<...>>"
BIAS = "void at::native::elementwise_kernel<128, 2, at::native::CUDAFunctor_add<float> >(int, ...)"
CGEMM = "ampere_cgemm_32x64_tn"
FFT_IN, FFT_OUT = "void fft2d_r2c_32x32<float, false, 0u, false>(...)", "void fft2d_c2r_32x32<float, false, ...>(...)"
IM2COL, SGEMM = "void at::native::im2col_kernel<float>(long, float const*, ...)", "ampere_sgemm_128x64_tn"
LEGACY_WGRAD = "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int, float const*, int, float*)"
CUTLASS_GEMM = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x64x32_stage4_warpsize2x2x1_tensor16x8x16_kernel"

Launched = tuple[str, int, int, int]  # name, begin, end, launched at


class Parts:
    """A trace with one marked step (or more), filled with parts one after the other, a thousand ns each."""

    def __init__(self, steps: int = 1) -> None:
        self.trace = TraceText()
        self.now = 0
        for step in range(steps):
            self.trace.step(step + 1, step * 100_000, step * 100_000 + 90_000)

    def part(
        self, part: ConvolutionPart, path: str, *kernels: tuple[str, int], at: int | None = None, tid: int | None = None
    ) -> None:
        """A part whose kernels (name, duration) run long after the host has gone on."""
        start = self.now if at is None else at
        thread = tid if tid is not None else MAIN if part == "fprop" else ENGINE
        self.trace.host("user_annotation", marks.convolution(part, path), start, start + 900, thread)
        self.trace.op("aten::convolution", start + 10, start + 890, tid=thread)
        on_device = start + 5000
        for i, (name, duration) in enumerate(kernels):
            self.trace.kernel(name, on_device, on_device + duration, start + 20 + i, tid=thread)
            on_device += duration
        self.now = max(self.now, on_device) + 1000

    def read(self, folder: Path, *workspaces: PartWorkspace) -> dict[tuple[str, str], ConvolutionTiming]:
        result = convolution_timings(attribution(self.trace.save(folder)), workspaces)
        by_part = {(timing.path, timing.part): timing for timing in result}
        assert len(by_part) == len(result)
        return by_part


def test_a_kernel_belongs_to_the_part_that_launched_it(tmp_path: Path) -> None:
    parts = Parts()
    parts.part("fprop", "conv2", (TO_NHWC, 58), (TO_NHWC, 3), (XMMA_TF32, 8784), (TO_NCHW, 80), (BIAS, 56))
    parts.part("dgrad", "conv2", (TO_NHWC, 124), (XMMA_DGRAD, 9099), (TO_NCHW, 130))
    parts.part("wgrad", "conv2", (LEGACY_WGRAD, 147))
    result = parts.read(tmp_path)
    assert list(result) == [("conv2", part) for part in CONVOLUTION_PARTS]
    forward = result["conv2", "fprop"]
    assert (forward.kernel_ns, forward.layout_ns, forward.calls) == (58 + 3 + 8784 + 80 + 56, 58 + 3 + 80, 1)
    assert (forward.family, forward.math, forward.tensor_core) == ("conv:xmma_igemm", "tf32", True)
    assert forward.kernel == XMMA_TF32
    assert (result["conv2", "dgrad"].kernel_ns, result["conv2", "dgrad"].layout_ns) == (9353, 254)
    weight = result["conv2", "wgrad"]
    assert (weight.family, weight.math, weight.tensor_core) == ("conv:legacy_direct", "fp32", False)


def test_what_is_launched_in_no_part_is_nobody_s(tmp_path: Path) -> None:
    parts = Parts()
    parts.part("fprop", "conv", (XMMA_FP32, 100))
    parts.trace.kernel(BIAS, 80_000, 81_000, 70_000)
    parts.trace.kernel(BIAS, 82_000, 83_000, None)
    assert [timing.kernel_ns for timing in parts.read(tmp_path).values()] == [100]


def test_calls_of_one_part_are_added_up(tmp_path: Path) -> None:
    parts = Parts()
    for ns in (100, 300):
        parts.part("fprop", "shared", (XMMA_FP32, ns))
    result = parts.read(tmp_path)["shared", "fprop"]
    assert (result.calls, result.kernel_ns) == (2, 400)


def test_figures_are_per_step(tmp_path: Path) -> None:
    parts = Parts(steps=2)
    parts.part("fprop", "conv", (TO_NHWC, 10), (XMMA_TF32, 100))
    parts.now = 100_000
    parts.part("fprop", "conv", (TO_NHWC, 20), (XMMA_TF32, 200))
    result = parts.read(tmp_path)["conv", "fprop"]
    assert (result.calls, result.kernel_ns, result.layout_ns) == (1, 165, 15)


def test_kernels_that_run_at_once_are_counted_once(tmp_path: Path) -> None:
    parts = Parts()
    parts.trace.host("user_annotation", marks.convolution("fprop", "conv"), 0, 900)
    parts.trace.kernel(XMMA_FP32, 5000, 5100, 10, stream=7)
    parts.trace.kernel(XMMA_FP32, 5050, 5150, 20, stream=8)
    assert parts.read(tmp_path)["conv", "fprop"].kernel_ns == 150


def test_a_path_may_hold_a_colon_or_be_empty(tmp_path: Path) -> None:
    parts = Parts()
    parts.part("fprop", "", (XMMA_FP32, 1))
    parts.part("fprop", "a:b.0", (XMMA_FP32, 2))
    assert {key: timing.kernel_ns for key, timing in parts.read(tmp_path).items()} == {
        ("", "fprop"): 1,
        ("a:b.0", "fprop"): 2,
    }


@pytest.mark.parametrize(
    ("kernels", "family", "math", "kernel"),
    [
        (
            [(XMMA_FP32, 10), (BIAS, 50)],
            "conv:xmma_igemm",
            "fp32",
            XMMA_FP32,
        ),  # the bias takes longer, and did not do it
        ([(XMMA_TF32, 10), (SPLIT_K, 50)], "conv:xmma_igemm", "tf32", XMMA_TF32),
        ([(FFT_IN, 30), (CGEMM, 90), (FFT_OUT, 20), (TO_NHWC, 200)], "conv:fft", "fp32", CGEMM),
        ([(IM2COL, 60), (SGEMM, 50), (BIAS, 70)], "conv:im2col(aten)", "fp32", IM2COL),
        ([(CUTLASS_GEMM, 60), (TO_NHWC, 90)], "gemm", "f16", CUTLASS_GEMM),  # 1x1: a matrix product
        ([(BIAS, 60), (TO_NHWC, 90)], "pointwise", "fp32", BIAS),
        ([(TO_NHWC, 90)], "conv:layout", "fp32", TO_NHWC),
    ],
    ids=["bias", "split-k", "fft", "im2col", "1x1", "no product", "layout alone"],
)
def test_the_family_is_that_of_what_did_the_work(
    tmp_path: Path, kernels: list[tuple[str, int]], family: str, math: str, kernel: str
) -> None:
    parts = Parts()
    parts.part("fprop", "conv", *kernels)
    result = parts.read(tmp_path)["conv", "fprop"]
    assert (result.family, result.math, result.kernel) == (family, math, kernel)
    assert result.kernel_ns == sum(ns for _, ns in kernels)
    assert result.layout_ns == sum(ns for name, ns in kernels if name in (TO_NHWC, TO_NCHW))


def test_scratch_stands_beside_its_part(tmp_path: Path) -> None:
    parts = Parts()
    parts.part("fprop", "conv", (XMMA_FP32, 10))
    parts.part("wgrad", "conv", (LEGACY_WGRAD, 10))
    result = parts.read(tmp_path, PartWorkspace(path="conv", part="wgrad", bytes=12_345))
    assert result["conv", "wgrad"].workspace_bytes == 12_345
    assert result["conv", "fprop"].workspace_bytes is None


def test_a_part_that_launched_nothing_is_left_out(tmp_path: Path) -> None:
    parts = Parts()
    parts.part("fprop", "empty")
    assert parts.read(tmp_path) == {}


def test_a_trace_without_a_marked_step_is_refused(tmp_path: Path) -> None:
    trace = TraceText()
    trace.op("aten::add", 0, 10)
    with pytest.raises(TraceError, match="pk:step:"):
        convolution_timings(attribution(trace.save(tmp_path)))


@pytest.mark.parametrize("part", CONVOLUTION_PARTS)
def test_marks_are_read_as_they_are_written(part: ConvolutionPart) -> None:
    for path in ("", "a.0.conv", "x:y"):
        assert marks.parse_convolution_mark(marks.convolution(part, path)) == (part, path)
    for other in (marks.module("conv"), f"{marks.CONVOLUTION}both:x", f"{marks.CONVOLUTION}{part}", "pk:conv", part):
        assert marks.parse_convolution_mark(other) is None


# ---- beside the count


def work(macs: int) -> Cost:
    return Cost(macs=macs, flops=2 * macs)


def node(path: str, config: str = "3->4, k3, p1", **words: object) -> ModuleNode:
    parts = ModuleNode(path=path, class_name="Conv2d", config=config, calls=1, forward=work(100))
    return replace(parts, **words)  # type: ignore[arg-type]


def static(*nodes: ModuleNode) -> StaticCount:
    return StaticCount(
        convention="", params=0, trainable_params=0, param_bytes=0, forward=ZERO, loss=ZERO, backward=ZERO, recompute=ZERO,
        saved_bytes=0, uncounted=(), modules=nodes,
    )  # fmt: skip


def timing(path: str, part: ConvolutionPart, calls: int = 1) -> ConvolutionTiming:
    return ConvolutionTiming(
        path=path, part=part, calls=calls, kernel_ns=50, layout_ns=0, family="conv:fft", kernel="fft"
    )


def macs(timings: list[ConvolutionTiming], *nodes: ModuleNode) -> dict[tuple[str, str], int | None]:
    return {(t.path, t.part): t.macs for t in with_macs(timings, static(*nodes))}


def test_each_part_has_the_forward_s_macs() -> None:
    timings = [timing("conv", part) for part in CONVOLUTION_PARTS]
    assert set(macs(timings, node("conv")).values()) == {100}
    assert with_macs(timings, static(node("conv")))[0].flops_per_s == pytest.approx(200 / 50e-9)


def test_forward_done_again_has_its_macs_too() -> None:
    timings = [timing("conv", "fprop", 2), timing("conv", "wgrad")]
    result = macs(timings, node("conv", recompute=work(100)))
    assert result == {("conv", "fprop"): 200, ("conv", "wgrad"): 100}
    # a checkpoint that stops at the last tensor that is needed does not run the convolution again
    assert macs([timing("conv", "fprop")], node("conv", recompute=work(100)))["conv", "fprop"] == 100
    assert macs([timing("conv", "fprop", 2)], node("conv"))["conv", "fprop"] is None


def test_a_gradient_needed_in_some_calls_has_what_backward_s_count_leaves() -> None:
    shared = node("conv", calls=2, forward=work(100), backward=work(150))
    timings = [timing("conv", "fprop", 2), timing("conv", "dgrad", 1), timing("conv", "wgrad", 2)]
    result = macs(timings, shared)
    assert result == {("conv", "fprop"): 100, ("conv", "dgrad"): 50, ("conv", "wgrad"): 100}
    assert sum(result["conv", part] or 0 for part in ("dgrad", "wgrad")) == shared.backward.macs


@pytest.mark.parametrize("config", ["", "8->4", "512, 8 heads"])
def test_a_module_that_is_no_convolution_has_none(config: str) -> None:
    assert macs([timing("attention", "fprop")], node("attention", config)) == {("attention", "fprop"): None}


def test_what_was_not_counted_has_none() -> None:
    assert [t.macs for t in with_macs([timing("conv", "fprop")], None)] == [None]
    assert macs([timing("other", "fprop")], node("conv")) == {("other", "fprop"): None}
