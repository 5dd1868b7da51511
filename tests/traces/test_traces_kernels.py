# ruff: noqa: E501 -- kernels have long names, and a table of them is read by the line
from __future__ import annotations

import json

import pytest
from published_traces import PUBLISHED, published

from profiler_kit.traces.kernels import KernelName, classify

NVIDIA = "_execute_kernel__5x_cudnn"
XMMA = "_nhwckrsc_nhwc_tilesize128x32x64_stage1_warpsize4x1x1_g1_tensor16x8x8"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"

# A kernel whose mangled name says GEMM a dozen times and is a convolution's weight gradient (cuDNN 9 on an H100).
MANGLED_WGRAD = (
    "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistage"
    "INS_4gemm9GemmShapeILi64ELi128ELi16EEENS4_52Conv2dWgradOutputGradientTileAccessIteratorOptimizedINS_11MatrixShape"
    "ILi64ELi16EEENS_10tfloat32_tENS_9transform29PitchLinearWarpRakedThreadMap"
)

# name, family, op, math, library (None: the name does not say)
NAMES: list[tuple[str, str, str | None, str | None, str | None]] = [
    # H100, torch 2.11, cuDNN 9.19
    (f"sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_strided{NVIDIA}",
     "conv:xmma_igemm", "dgrad", "tf32", "cudnn"),
    (f"sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32{XMMA}_aligna8_alignc4{NVIDIA}",
     "conv:xmma_igemm", "fprop", "tf32", "cudnn"),
    (f"sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32{XMMA}{NVIDIA}", "conv:xmma_igemm", "wgrad", "tf32", "cudnn"),
    ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x32x8_stage3_warpsize2x2x1_g1_ffma_aligna4"
     f"_alignc4{NVIDIA}", "conv:xmma_igemm", "fprop", "fp32", "cudnn"),
    ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1"
     "_execute_segment_k_off_kernel__5x_cudnn", "conv:xmma_igemm", "fprop", "tf32", "cudnn"),
    (f"sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32{XMMA}{NVIDIA}", "conv:xmma_igemm", "fprop", "bf16", "cudnn"),
    (f"sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32{XMMA}{NVIDIA}", "conv:xmma_igemm", "dgrad", "f16", "cudnn"),
    (MANGLED_WGRAD, "conv:cutlass_igemm", "wgrad", "tf32", "cudnn"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x5_nhwc_unity_stride_align4>("
     "cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x5_nhwc_unity_stride_align4::Params)",
     "conv:cutlass_igemm", "dgrad", "tf32", "cudnn"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>()",
     "conv:cutlass_igemm", "fprop", "bf16", "cudnn"),
    ("void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<cutlass__5x_cudnn::MatrixShape<4, 128>"
     ", cutlass__5x_cudnn::epilogue::thread::LinearCombination<float, 4, float, float>>>",
     "gemm:splitk_reduce", None, "fp32", "cudnn"),
    ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>("
     "cudnn::engines_precompiled::nchw2nhwc_params_t<float>, float const*, float*)", "conv:layout", None, "fp32", "cudnn"),
    ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>("
     "cudnn::engines_precompiled::nchw2nhwc_params_t<float>, float const*, float*)", "conv:layout", None, "fp32", "cudnn"),
    ("void cudnn::engines_precompiled::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true>", "conv:layout", None, "bf16", "cudnn"),
    ("void foldedNhwcToNchwKernel<float, float, float, true, (cudnnKernelDataType_t)0>(int)", "conv:layout", None, "fp32", "cudnn"),
    ("void tensorTransformGeneric<float, float, float, true, false, false, (cudnnKernelDataType_t)0>(cudnnTensorTransformStruct)",
     "conv:layout", None, "fp32", "cudnn"),
    ("void cudnn::engines_precompiled::scalePackedTensor_kernel<float, float>(long, float*, float)", "pointwise", None, "fp32", "cudnn"),
    ("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int, float const*, int, float*, float const*, "
     "kernel_grad_params, unsigned long long, int, float, int, int, int, int)", "conv:legacy_direct", "wgrad", "fp32", "cudnn"),
    ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", "conv:legacy_direct", "dgrad", "fp32", "cudnn"),
    ("Memset (Device)", "memcpy/memset", None, None, None),
    ("Memcpy HtoD (Pageable -> Device)", "memcpy/memset", None, None, None),
    ("Memcpy DtoH (Device -> Pinned)", "memcpy/memset", None, None, None),
    # cuDNN's other algorithms
    ("void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)", "conv:legacy_direct", None, "fp32", "cudnn"),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<float, float>", "conv:grouped", None, "fp32", "cudnn"),
    ("void cudnn::cnn::wgrad2d_grouped_direct_kernel<float>", "conv:grouped", "wgrad", "fp32", "cudnn"),
    ("void explicit_convolve_sgemm<float, int, 1024, 5, 5, 3, 3, 3, 0, false>(int)", "conv:explicit_gemm", None, "fp32", "cudnn"),
    ("void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params)", "conv:explicit_gemm", "fprop", "fp32", "cudnn"),
    ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*, int)", "conv:fft", None, "fp32", "cudnn"),
    ("void fft2d_c2r_32x32<float, false, false, 1u, false, false>(float*, float2 const*)", "conv:fft", None, "fp32", "cudnn"),
    ("void DSE::vector_fft<0, 1, 256, 16, 16, 1, float, float, float2>(float2*)", "conv:fft", None, "fp32", "cudnn"),
    ("void flip_filter<float, float>(float*, float const*, int)", "conv:fft", None, "fp32", "cudnn"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataParams<float, float>)",
     "conv:winograd", "fprop", "fp32", "cudnn"),
    ("void cudnn::winograd_nonfused::winogradWgradDelta4x4<float, float>()", "conv:winograd", "wgrad", "fp32", "cudnn"),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv:winograd", None, "fp32", "cudnn"),
    ("volta_scudnn_128x64_relu_small_nn_v1", "conv:legacy_cask", None, "fp32", "cudnn"),
    ("cudnn_infer_volta_scudnn_128x64_stridedB_interior_nn_v1", "conv:legacy_cask", "wgrad", "fp32", "cudnn"),
    ("turing_h1688cudnn_128x128_ldg8_relu_exp_small_nhwc_tn_v1", "conv:legacy_cask", None, "f16", "cudnn"),
    ("cask_cudnn_infer::computeBOffsetsKernel(cask_cudnn_infer::ComputeBOffsetsParams)", "conv:legacy_cask", None, None, "cudnn"),
    ("sm80_xmma_fprop_first_layer_f32f32_f32_f32_nhwckrsc", "conv:first_layer", "fprop", None, "cudnn"),
    # ATen's own convolutions
    ("void at::native::im2col_kernel<float>(long, float const*, long)", "conv:im2col(aten)", "fprop", "fp32", "aten"),
    ("void at::native::col2im_kernel<float, float>(long, float const*)", "conv:im2col(aten)", "dgrad", "fp32", "aten"),
    ("void at::native::vol2col_kernel<float>(long)", "conv:im2col(aten)", "fprop", "fp32", "aten"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>()", "conv:depthwise", "fprop", "fp32", "aten"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<3, 1, float, int>()", "conv:depthwise", "dgrad", "fp32", "aten"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<float, int>()", "conv:depthwise", "wgrad", "fp32", "aten"),
    # matrix products
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
     "gemm", None, "bf16", "cublas"),
    ("nvjet_tst_128x64_64x8_1x2_h_bz_TNT", "gemm", None, None, "cublas"),
    ("ampere_sgemm_128x64_tn", "gemm", None, "fp32", "cublas"),
    ("volta_dgemm_64x64_nn", "gemm", None, "f64", "cublas"),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", "gemm", None, "f16", "cublas"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>()", "gemm", None, "bf16", None),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>()", "gemm", None, "tf32", None),
    ("void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, cublasGemvParams<float>>", "gemm", None, "fp32", "cublas"),
    ("ampere_cgemm_32x64_tn", "gemm:complex", None, None, "cublas"),
    ("void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(cublasSplitKParams<float>)",
     "gemm:splitk_reduce", None, "fp32", "cublas"),
    ("Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT64x32x64_MI16x16x1_SN_LDSB0", "gemm", None, "bf16", "tensile"),
    # PyTorch's own kernels
    ("void at::native::(anonymous namespace)::cunn_SpatialSoftMaxForward<float, float, float, int, at::native::"
     "(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*)", "loss/softmax", None, "fp32", "aten"),
    ("void at::native::(anonymous namespace)::nll_loss2d_forward_kernel<float, float, int>(float*)", "loss/softmax", None, "fp32", "aten"),
    (ELEMENTWISE + "mse_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}>", "loss/softmax", None, None, "aten"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, "
     "at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>>", "optimizer", None, "fp32", "aten"),
    (ELEMENTWISE + "BinaryFunctor<float, float, float, at::native::(anonymous namespace)::threshold_kernel_impl<float>>>",
     "pointwise", None, "fp32", "aten"),
    (ELEMENTWISE + "FillFunctor<float>, std::array<char*, 1ul> >(int)", "pointwise", None, "fp32", "aten"),
    (ELEMENTWISE + "fbgemm_gpu::_float_to_hfp8_gpu(at::Tensor const&)>", "pointwise", None, None, "aten"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::"
     "sum_functor<float, float, float>>, unsigned int, float, 4, 4> >", "reduce", None, "fp32", "aten"),
    ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)", "pool", None, "fp32", "aten"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)", "norm", None, "bf16", "aten"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct)", "norm", None, "fp32", "cudnn"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)", "cat/copy", None, "fp32", "aten"),
    ("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>()",
     "index", None, "bf16", "aten"),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>",
     "attention", None, "bf16", "aten"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)", "attention", None, "fp32", "aten"),
    ("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>", "sort/scan", None, None, None),
    # other writers of kernels
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "comm", None, None, "nccl"),
    ("triton_poi_fused__unsafe_view_mul_silu_2", "pointwise", None, None, "triton"),
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "reduce", None, None, "triton"),
    ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x32x32_wt16x16x16", "conv:miopen_igemm", "wgrad", "bf16", "miopen"),
    ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8", "conv:miopen_igemm", "dgrad", "bf16", "miopen"),
    ("batched_transpose_16x32_half", "conv:layout", None, None, "miopen"),
    ("transpose_CNHW2NCHW_V2_2D_WG_off64", "conv:layout", None, None, "miopen"),
    ("my_own_kernel", "other", None, None, None),
    ("", "other", None, None, None),
]  # fmt: skip

OPERATORS = [
    ("aten::mkldnn_convolution", "conv", "fprop"),
    ("aten::convolution_backward", "conv", None),
    ("aten::slow_conv_transpose2d", "conv", "dgrad"),
    ("aten::addmm", "gemm", None),
    ("aten::linear", "gemm", None),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention", None),
    ("aten::native_batch_norm_backward", "norm", None),
    ("aten::max_pool2d_with_indices", "pool", None),
    ("aten::_log_softmax_backward_data", "loss/softmax", None),
    ("aten::mse_loss", "loss/softmax", None),
    ("aten::nll_loss2d_forward", "loss/softmax", None),
    ("aten::embedding_dense_backward", "index", None),
    ("aten::lstm", "rnn", None),
    ("aten::native_dropout", "random", None),
    ("aten::copy_", "cat/copy", None),
    ("aten::_to_copy", "cat/copy", None),
    ("aten::as_strided", "view", None),
    ("aten::resize_", "alloc", None),
    ("aten::empty_strided", "alloc", None),
    ("aten::sum", "reduce", None),
    ("aten::threshold_backward", "pointwise", None),
    ("aten::add_", "pointwise", None),
    ("aten::relu", "pointwise", None),
    ("aten::_foreach_add_", "optimizer", None),
    ("aten::_fused_adamw_", "optimizer", None),
    ("aten::_local_scalar_dense", "sync", None),
    ("autograd::engine::evaluate_function: ConvolutionBackward0", "autograd", None),
    ("ConvolutionBackward0", "autograd", None),
    ("torch::autograd::AccumulateGrad", "autograd", None),
    ("detach", "view", None),
    ("aten::some_new_thing", "other", None),
]


@pytest.mark.parametrize(("name", "family", "op", "math", "library"), NAMES, ids=lambda v: str(v)[:40])
def test_what_a_kernels_name_says(
    name: str, family: str, op: str | None, math: str | None, library: str | None
) -> None:
    properties = classify(name)
    assert (properties.family, properties.op, properties.math, properties.library) == (family, op, math, library)


@pytest.mark.parametrize(("name", "family", "op"), OPERATORS)
def test_what_an_operators_name_says(name: str, family: str, op: str | None) -> None:
    assert (classify(name).family, classify(name).op) == (family, op)


def test_tensor_cores_and_layout() -> None:
    tensor = {name for name, *_ in NAMES if classify(name).tensor_core}
    assert MANGLED_WGRAD in tensor
    assert all(classify(name).tensor_core for name, _, _, math, _ in NAMES if math == "tf32")
    assert not any(
        classify(name).tensor_core for name in ("ampere_sgemm_128x64_tn", "volta_scudnn_128x64_relu_small_nn_v1")
    )
    layouts = {family: classify(name).layout for name, family, *_ in NAMES[:4]}
    assert layouts["conv:xmma_igemm"] == "nchw"  # the last of the four, plain fp32
    assert classify(NAMES[0][0]).layout == "nhwc"


def test_the_launching_convolution_fills_in_what_the_name_lacks() -> None:
    plain = "void implicit_convolve_sgemm<float, float>"
    assert classify(plain, "fprop").op == "fprop"
    assert classify(plain, "both gradients").op is None
    assert classify("wgrad_alg0_engine<float>", "fprop").op == "wgrad"  # the name wins
    assert classify("ampere_cgemm_32x64_tn", "both gradients").family == "conv:fft"
    assert classify("ampere_sgemm_128x64_tn", "fprop") == KernelName(
        family="gemm", op="fprop", math="fp32", tensor_core=False, layout=None, library="cublas"
    )
    assert classify("Memset (Device)", "fprop").op is None
    assert classify("void nchwToNhwcKernel<float, float>", "fprop").op is None  # moves data for it, computes none of it


@published
def test_nearly_all_device_time_of_a_published_trace_has_a_family() -> None:
    truth = json.loads((PUBLISHED / "h100" / "convnet_v0.truth.json").read_text())
    top = [(name, ns) for name, ns, _ in truth["v0"]["top"] if not name.startswith("ProfilerStep")]
    assert {classify(name).family for name, _ in top} <= {
        "conv:xmma_igemm", "conv:cutlass_igemm", "conv:layout", "conv:legacy_direct", "memcpy/memset",
    }  # fmt: skip
