"""Classification of kernels by name: algorithm family, operation, arithmetic, layout, library.

There are two vocabularies: the names of device kernels, and on a CPU the names of operators in their place. Both are
tables of patterns; the first match counts. A name without a match has the family ``other``. A property that the name
does not state is None.

Families that begin with ``conv:`` are algorithms for a convolution. The family of a convolution operator is ``conv``.

**Source**: names in cuDNN 9 and cuBLAS 13, in PyTorch's ``aten/src/ATen/native/cuda`` and in traces of V100, H100 and
MI300.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from profiler_kit.traces.names import COLLECTIVE_KERNEL, is_operator, operator_families, operator_family

ConvolutionOp = Literal["fprop", "dgrad", "both gradients"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelName:
    """The properties stated by a name. None means that the name does not state it.

    `op`: ``fprop``, ``dgrad`` or ``wgrad`` of a convolution. `math`: arithmetic of the inputs (``tf32``, ``fp32``,
    ``f16``, ``bf16``, ``f64``, ``fp8``, ``int8``). `tensor_core`: the name states the use of tensor cores; False is
    unknown. `layout`: ``nchw`` or ``nhwc``.
    """

    family: str
    op: str | None = None
    math: str | None = None
    tensor_core: bool = False
    layout: str | None = None
    library: str | None = None


class _Row(NamedTuple):
    value: str
    pattern: re.Pattern[str]


def _table(*rows: tuple[str, str]) -> tuple[_Row, ...]:
    return tuple(_Row(value, re.compile(pattern)) for value, pattern in rows)


def _first(table: tuple[_Row, ...], name: str) -> str | None:
    return next((row.value for row in table if row.pattern.search(name)), None)


# ---- device kernels

_FAMILIES: Final = _table(
    # The profiler's own names of copies and fills: "Memcpy HtoD (Pageable -> Device)", "Memset (Device)".
    ("memcpy/memset", r"\A(Memcpy|Memset)|\[CUDA mem|\ACopy(Host|Device)To|\AFillBuffer"),
    # ncclDevKernel_AllReduce_Sum_f32_RING_LL(...), ncclKernel_AllReduce_...
    ("comm", rf"{COLLECTIVE_KERNEL.pattern}|nvshmem"),
    # pytorch_flash::flash_fwd_kernel<...>, fmha_cutlassF_f32_aligned_64x64_rf_sm80, cudnn_generated_fort_native_sdpa_...
    ("attention", r"flash_(fwd|bwd)|fmha|sdpa|[aA]ttention|\Aattn_(fwd|bwd)"),
    # at::native::(anonymous namespace)::multi_tensor_apply_kernel<..., FusedAdamMathFunctor<...>>: foreach and fused steps
    ("optimizer", r"multi_tensor_apply|Fused(Adam|Sgd|Adagrad)|foreach_tensor"),
    # Conversions between NCHW and NHWC around a kernel that needs the other layout, paddings and folds: overhead.
    # cudnn::engines_precompiled::nchwToNhwcKernel<...>, tensorTransformGeneric<...>, batched_transpose_16x32_half
    # (MIOpen)
    (
        "conv:layout",
        r"nchwToNhwc|nhwcToNchw|nchwToFolded|nhwcToFolded|folded(Nhwc|Nchw)|foldedN|AddPaddingKernel|genericTranspose|"
        r"transpose(Warp|Block|Direct|_readWrite|_kernel)|cubeTranspose|tensorTransform|convertTensor_kernel|"
        r"transformTensor|copyNchw|kcrsTo|krscTo|ToKrsc|ConvertTensor|SliceCKernel|"
        r"\Abatched_transpose_\d|\Atranspose_(NCHW2CNHW|CNHW2NCHW)",
    ),
    # cudnn::winograd_nonfused::winogradForwardData4x4<...>, volta_scudnn_winograd_128x128_ldg1_..., miopenSp3AsmConv_...
    ("conv:winograd", r"[wW]inograd|miopenSp3AsmConv"),
    # fft2d_r2c_32x32<...>, DSE::vector_fft<...>: convolution by Fourier transform, large filters, large workspace
    ("conv:fft", r"fft\dd_(r2c|c2r)|DSE::|flip_filter|compute_gemm_pointers|pointwise_mult_and_sum_complex"),
    # cuFFT, called by torch.fft: regular_fft<...>, vector_fft<...>
    ("fft", r"(regular|vector|multi_bluestein|composite_\dway|radix\w*)_fft|cufft"),
    # ampere_cgemm_32x64_tn: inside a convolution this is the product stage of the FFT algorithm, see `classify`
    ("gemm:complex", r"cgemm|zgemm|cf32|cf64|gauss_gemm"),
    # at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<...>; xmma_depthwise in cuDNN
    ("conv:depthwise", r"depthwise"),
    # cudnn::cnn::wgrad2d_grouped_direct_kernel<...>
    ("conv:grouped", r"grouped_direct|_grouped_conv2?d?_(?!fwd_(xdl|multiple))"),
    # cudnn::cnn::im2col4d_kernel<...> and explicit_convolve_sgemm<...>: cuDNN unfolds the input, then multiplies
    ("conv:explicit_gemm", r"im2col4d|explicit_convolve"),
    # at::native::im2col_kernel<...>, col2im, vol2col: ATen's own convolution, if cuDNN is off or does not support it
    ("conv:im2col(aten)", r"im2col|col2im|vol2col|col2vol|slow_conv|Im2d2Col|Col2Im"),
    # sm80_xmma_fprop_first_layer_...: three or four input channels
    ("conv:first_layer", r"first_layer"),
    ("conv:sparse", r"sparse_conv"),
    # sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_..._execute_kernel__5x_cudnn
    ("conv:xmma_igemm", r"xmma_(fprop|dgrad|wgrad)|xmma.*implicit_gemm|xmma_new.*(fprop|dgrad|wgrad)"),
    # cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<...>, splitKreduce_kernel<...>: sums partial products.
    # Before the CUTLASS rows, as these names contain CUTLASS. "..._execute_segment_k_off_kernel" is not a reduction.
    (
        "gemm:splitk_reduce",
        r"splitK_?[rR]educe|ReduceSplitK|split_?k_reduc|segment_k_reduc|SplitK\w*[rR]educ|GSUReduction|PostGSU",
    ),
    # cutlass_tensorop_s1688dgrad_optimized_tf32_..., _ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolution...
    (
        "conv:cutlass_igemm",
        r"cutlass.*(fprop|dgrad|wgrad|Fprop|Dgrad|Wgrad|[cC]onv\dd|implicit_gemm|ImplicitGemm|::conv::|4conv6kernel)|"
        r"Warp_specialized.*(fprop|dgrad|wgrad)",
    ),
    # volta_scudnn_128x64_relu_small_nn_v1, cask_cudnn_infer::computeOffsetsKernel<...> (prepares the former's indices)
    (
        "conv:legacy_cask",
        r"(maxwell|pascal|volta|turing|ampere|ada|hopper)_[a-z0-9_]*cudnn|cask_\w*cudnn|cask_(plugin|trt)",
    ),
    # implicit_convolve_sgemm<...>, cudnn::detail::dgrad_engine<...>, wgrad_alg0_engine<...> (adds with atomics)
    (
        "conv:legacy_direct",
        r"implicit_convolve|precomputed_convolve|convolve_common_engine|conv\wd_precomputed|convolution_sm|convolve_|"
        r"(wgrad|dgrad)_alg\d|(wgrad|dgrad)\dd_|(wgrad|dgrad)_engine|Kernel_dgrad|dgrad_\dd|convolveNd|reduce_wgrad|conv\dd_|"
        r"computeOffsets|computeWgrad|computeBOffsets|kern_precompute_indices|"
        r"cudnn::cnn::|cudnn::detail::(dgrad|wgrad|implicit|explicit)",
    ),
    # AMD: igemm_fwd_gtcx3_nhwc_bf16_... (MIOpen), ck::tensor_operation::device::kernel_grouped_conv_fwd_xdl_cshuffle_v3
    ("conv:miopen_igemm", r"\Aigemm_(fwd|bwd|wrw)_gtc|grouped_conv_|xdlops_bwd_weight|gridwise_convolution|MIOpenConv"),
    ("conv:naive", r"naive_conv"),
    # triton_poi_fused_relu_0, triton_red_fused_..., triton_tem_fused_mm_...: the name lists the fused operations
    ("gemm", r"\Atriton_(tem|mm)_"),
    ("reduce", r"\Atriton_(red|per)_"),
    ("pointwise", r"\Atriton_poi_"),
    # sm90_xmma_gemm_bf16bf16_..., nvjet_tst_128x64_..., ampere_sgemm_128x64_tn, gemv2T_kernel_val<...>, Cijk_Ailk_Bljk_... (AMD)
    ("gemm", r"(?<!fb)gemm|gemv|nvjet|matmul|_tn_n_|dot_kernel|syrk|trsm|\ACijk_|cublasLtEpilogue"),
    ("rnn", r"RNN|LSTM|GRU|lstm_cell|gru_cell|lstm|elemWiseRNN"),
    # cudnn::bn_fw_tr_1C11_kernel_NCHW<...>, at::native::batch_norm_backward_kernel<...>, vectorized_layer_norm_kernel<...>
    (
        "norm",
        r"batch_?norm|bn_(fw|bw)|layer_norm|rms_?norm|group_?norm|bn_stats|dbn_|bn_?apply|RowwiseMoments|GammaBeta|"
        r"LayerNorm|GroupNorm|ComputeFusedParams|MIOpenBatchNorm",
    ),
    # at::native::(anonymous namespace)::max_pool_forward_nchw<...>, cudnn::pooling_fw_4d_kernel<...>
    ("pool", r"pool"),
    # cunn_SpatialSoftMaxForward<...>, nll_loss2d_forward_kernel<...>, softmax_warp_forward<...>, mse_kernel_cuda
    (
        "loss/softmax",
        r"nll_loss|[sS]oft_?[mM]ax|cross_entropy|NLLCriterion|\bmse_|_loss_|l1_loss|huber|ctc_loss|kl_div",
    ),
    # at::native::indexSelectLargeIndex<...>, vectorized_gather_kernel<...>, embedding_backward_feature_kernel<...>
    ("index", r"index|[eE]mbedding|gather|scatter|masked_|krn_partial"),
    # RadixSort, cub::DeviceRadixSortOnesweepKernel, gatherTopK
    ("sort/scan", r"[rR]adix|[sS]ort|TopK|DeviceScan|_scan_|unique|DeviceSelect|rocprim"),
    # fused_dropout_kernel_vec<...>, distribution_elementwise_grid_stride_kernel<...>
    ("random", r"dropout|distribution_|philox|curand"),
    # CatArrayBatchedCopy_aligned16_contig<...>, direct_copy_kernel_cuda
    ("cat/copy", r"CatArray|copy_kernel|direct_copy|_copy_kernel"),
    ("interpolate", r"upsample|interpolate|grid_sampl"),
    # at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ...>>, cudnn::reduce_1Block_kernel<...>
    ("reduce", r"reduce_kernel|reduce_1Block|full_reduce|reduce_tensor|DeviceReduce|\bdot_"),
    # at::native::vectorized_elementwise_kernel<4, ...>, cudnn::op_generic_tensor_kernel<...>, scalePackedTensor_kernel<...>
    (
        "pointwise",
        r"elementwise|vectorized_|unrolled_|op_tensor_kernel|op_generic_tensor|[aA]ctivation_|add_tensor|FillFunctor|"
        r"scal_kernel|scalePacked|SubTensorOp|OpTensor",
    ),
)

_OPS: Final = _table(
    # Backward names come first: "conv_depthwise2d_backward_kernel" computes the input's gradient, "_grad_weight_" the
    # filter's.
    ("wgrad", r"[wW]grad|grad_weight|backward_weight|bwd_weight|stridedB|_wrw_"),
    ("dgrad", r"[dD]grad|[bB]ackward_?[dD]ata|bwd_data|conv_depthwise\dd_backward|col2im|col2vol|igemm_bwd_"),
    ("fprop", r"[fF]prop|[fF]orward(Data|Filter|Output)?\dx|_fwd|conv_depthwise\dd_forward|im2col|vol2col"),
)

_MATH: Final = _table(
    ("fp8", r"e4m3|e5m2|[fF]loat8"),
    # sm80 "tf32f32_tf32f32_f32", sm90 "f32f32_tf32f32_f32"; on Ampere the shape 16x8x8 without a type is TF32 only
    ("tf32", r"tf32|tfloat32|cutlass_80_tensorop_s1688gemm_\d"),
    ("bf16", r"bf16|[bB][fF]loat16|_BBS_|_BSS_"),
    (
        "f16",
        r"(?<!b)f16f16|fp16|(?<![bt])f16_|__half|c10::Half|half_t|hgemm|h884|h1688|h16816|hcudnn|_half\b|_HHS_|_HSS_",
    ),
    ("f64", r"dgemm|dcudnn|(?<![a-z])f64|<double|double[,>]"),
    ("fp32", r"ffma|_simt|sgemm|scudnn|f32f32_f32f32|<float\b|float[,>]|_SB_"),
)
# MIOpen names a transpose after the size of its elements: "_half" moves bf16 as well as fp16.
_SIZED_TRANSPOSE: Final = re.compile(r"\Abatched_transpose_\d")
_INT8: Final = re.compile(r"i8i8|int8|i8816|imma|uint8")

_TENSOR_CORE: Final = re.compile(
    r"_tensor\d|hmma|imma|dmma|tensorop|MmaTensorOp|gmma|warpgroup|nvjet|tf32|tfloat32|RNN_HMMA|LSTM_HMMA|"
    r"[shi](884|1688|16816|8816|16832)(cudnn|gemm|fprop|dgrad|wgrad|_|x)"
)

_LAYOUTS: Final = _table(
    ("nhwc", r"nhwckrsc_nhwc|nhwc(?!2nchw|To)|NHWC(?!2)"),
    ("nchw", r"nchw(?!2nhwc|To)|NCHW(?!2)"),
)

_LIBRARIES: Final = _table(
    ("nccl", r"nccl"),
    ("triton", r"\Atriton_"),
    ("aten", r"at::native|_ZN2at6native|pytorch_flash|fmha_cutlass"),
    ("cublas", r"cublas|nvjet|\bgemv\w+_kernel|(maxwell|pascal|volta|turing|ampere|hopper)_\w*gemm"),
    ("cudnn", r"cudnn"),
    ("miopen", r"\Aigemm_(fwd|bwd|wrw)_gtc|[mM][iI][oO]pen|\Abatched_transpose_\d|SubTensorOp|\Atranspose_(NCHW|CNHW)"),
    ("composable_kernel", r"_ZN2ck|\bck::"),
    ("tensile", r"\ACijk_"),
)


# Generated names differ in a counter alone: triton_poi_fused_add_10412. A pattern needs such digits only in the shapes of
# instructions: 884, 1688, 8816, 16816, 16832.
_COUNTER: Final = re.compile(r"\d{4,}")
_INSTRUCTION_DIGITS: Final = re.compile(r"88|168")
_MAX_CLASSIFIED_CHARS: Final = 4096  # names state the computation well before


def classify(name: str, convolution: ConvolutionOp | None = None) -> KernelName:
    """Return the properties of the kernel or operator called `name`.

    `convolution`: the operation of the operator that launched the kernel, if it is a convolution. It supplies `op` to
    a kernel whose name lacks one, and separates the product stage of an FFT convolution from a complex matrix
    product.
    """
    return _classify(_COUNTER.sub(_without_counter, name[:_MAX_CLASSIFIED_CHARS]), convolution)


def _without_counter(digits: re.Match[str]) -> str:
    return digits.group() if _INSTRUCTION_DIGITS.search(digits.group()) else "0000"


@lru_cache(maxsize=8192)
def _classify(name: str, convolution: ConvolutionOp | None) -> KernelName:
    if is_operator(name):
        return _classify_operator(name)
    family = _first(_FAMILIES, name) or "other"
    library = _first(_LIBRARIES, name) or ("cudnn" if family in _CUDNN_UNSIGNED else None)
    if family == "gemm:complex" and (convolution is not None or library == "cudnn"):
        family = "conv:fft"
    op = None
    if family.startswith(("conv:", "gemm")) and family != "conv:layout":
        op = _first(_OPS, name) if family.startswith("conv:") else None
        if op is None and convolution in ("fprop", "dgrad"):
            op = convolution
    return KernelName(
        family=family,
        op=op,
        math=_math(name, family),
        tensor_core=bool(_TENSOR_CORE.search(name)),
        layout=_first(_LAYOUTS, name),
        library=library,
    )


# Families of cuDNN alone. Not all of their kernels carry its name.
_CUDNN_UNSIGNED: Final = frozenset(
    {
        "conv:layout", "conv:winograd", "conv:fft", "conv:grouped", "conv:explicit_gemm", "conv:first_layer", "conv:sparse",
        "conv:xmma_igemm", "conv:legacy_cask", "conv:legacy_direct",
    }
)  # fmt: skip


_CONVOLUTION: Final = re.compile(r"\Aaten::\w*conv")


def convolution_op(operator: str) -> ConvolutionOp | None:
    """Return the operation of the convolution operator called `operator`; None for any other operator.

    ``aten::convolution_backward`` launches the kernels of both gradients, so it does not identify one. The forward of
    a transposed convolution is computed as the ``dgrad`` of another one.
    """
    if not _CONVOLUTION.match(operator):
        return None
    if "backward" in operator:
        return "both gradients"
    return "dgrad" if "transpose" in operator else "fprop"


def families() -> frozenset[str]:
    """Return all families that `classify` can return, for kernels and operators."""
    return frozenset({"other", *(row.value for row in _FAMILIES)}) | operator_families()


def _math(name: str, family: str) -> str | None:
    if _SIZED_TRANSPOSE.match(name):
        return None
    if family.startswith("conv:") and _INT8.search(name) and not re.search(r"[fF]loat|f16|f32", name):
        return "int8"
    return _first(_MATH, name)


def _classify_operator(name: str) -> KernelName:
    family = operator_family(name)
    op = None
    if family == "conv" and "backward" not in name:
        op = "dgrad" if "transpose" in name else "fprop"
    return KernelName(family=family, op=op, library="aten" if name.startswith("aten::") else None)
