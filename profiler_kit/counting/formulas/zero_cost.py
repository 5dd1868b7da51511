"""Ops without floating-point arithmetic. Views and factories are recognized by their schema and need no entry.

Every op is listed by name, so that an unknown op is reported as uncounted instead of zero.
"""

from __future__ import annotations

from typing import Any

from profiler_kit.counting.arithmetic import free
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost

# Copies of data.
formula(
    "aten.pixel_shuffle", "aten.pixel_unshuffle", "aten.channel_shuffle", "aten.block_diag", "aten.alias_copy",
    "aten.as_strided_copy", "aten.diagonal_copy", "aten.squeeze_copy", "aten.t_copy", "aten.transpose_copy",
    "aten.unbind_copy", "aten.unsqueeze_copy", "aten.select_copy", "aten.slice_copy", "aten.detach_copy",
    "aten._unsafe_masked_index", "aten.clone", "aten._to_copy", "aten.cat", "aten.stack", "aten.repeat",
    "aten.repeat_interleave", "aten.roll", "aten.flip", "aten.rot90", "aten.tril", "aten.triu", "aten.diag_embed",
    "aten.constant_pad_nd", "aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d",
    "aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d",
    "aten.upsample_nearest1d", "aten.upsample_nearest2d",
    "aten.upsample_nearest3d", "aten._upsample_nearest_exact1d", "aten._upsample_nearest_exact2d",
    "aten._upsample_nearest_exact3d", "aten.max_unpool2d", "aten.max_unpool3d", "aten.slice_scatter",
    "aten.select_scatter", "aten.diagonal_scatter", "aten.as_strided_scatter", "aten.masked_select",
    "aten.masked_scatter", "aten._pack_padded_sequence", "aten._pad_packed_sequence", "aten.lift",
    "aten.split_copy", "aten.split_with_sizes_copy", "aten.view_copy", "aten.permute_copy", "aten.expand_copy",
    "aten.unfold_copy", "aten.narrow_copy", "aten.where", "aten.masked_fill",
    "aten._chunk_cat", "aten.unsafe_chunk", "aten._nested_tensor_from_mask", "aten.copysign", "aten.resolve_conj",
    "aten.resolve_neg", "aten._conj_physical", "aten.conj_physical", "aten.scatter.src", "aten.scatter.value",
    "aten.index_copy", "aten.index_fill", "aten.to_padded_tensor", "aten.copy", "aten.fill", "aten.zero",
    "aten._reshape_copy", "aten._stack", "aten._neg_view_copy", "aten._conj_copy", "aten._fw_primal_copy",
    "aten._make_dual_copy", "aten._reshape_alias_copy", "aten.lift_fresh_copy", "aten.view_as_complex_copy",
    "aten.view_as_real_copy", "aten._lazy_clone", "aten._pin_memory", "aten._copy_from", "aten._copy_from_and_resize",
    "aten._cudnn_rnn_flatten_weight",
    "aten._nested_from_padded", "aten._nested_from_padded_tensor", "aten._nested_from_padded_and_nested_example",
    "aten._nested_tensor_from_tensor_list", "aten._nested_get_values_copy", "aten._nested_select_backward",
    "aten._nested_sum_backward", "aten._nested_view_from_buffer_copy", "aten._nested_view_from_jagged_copy",
    "aten._jagged_to_padded_dense_forward", "aten._padded_dense_to_jagged_forward",
)(free)  # fmt: skip
# Gradients copied into zeros. Not counted: the additions of overlapping windows (unfold, padding).
formula(
    "aten.slice_backward", "aten.select_backward", "aten.diagonal_backward", "aten.unfold_backward",
    "aten.trace_backward", "aten.masked_scatter_backward", "aten.reflection_pad1d_backward",
    "aten.reflection_pad2d_backward", "aten.reflection_pad3d_backward", "aten.replication_pad1d_backward",
    "aten.replication_pad2d_backward", "aten.replication_pad3d_backward", "aten.value_selecting_reduction_backward",
    "aten.masked_select_backward", "aten.index_select_backward", "aten.gather_backward",
    "aten.embedding_sparse_backward",
)(free)  # fmt: skip
# The first operand is overwritten and not read.
formula(
    "aten.copy_", "aten.fill_", "aten.zero_", "aten.normal_", "aten.uniform_", "aten.bernoulli_", "aten.random_",
    "aten.exponential_", "aten.log_normal_", "aten.geometric_", "aten.cauchy_", "aten.set_data", "aten.normal_functional",
    "aten.uniform", "aten.exponential", "aten.log_normal", "aten.geometric", "aten.cauchy", "aten.random",
    "aten._fill_mem_eff_dropout_mask_", "aten._philox_normal",
    "aten._philox_uniform", "aten._philox_key_split", "aten._philox_key_fold_in", "aten._amp_update_scale",
    moves="overwrite",
)(free)  # fmt: skip


@formula(
    "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.rand_like", "aten.randn_like", "aten.randint_like",
    "aten.new_zeros", "aten.new_ones", "aten.new_full",
    moves="own",
)  # fmt: skip
def factories_like(*args: Any, out: Any, **kwargs: Any) -> Cost:
    """A new tensor with the shape of another one, which is not read."""
    return Cost(write_bytes=out.nbytes)


# Random or evenly spaced numbers. Not counted: generating them.
formula(
    "aten.bernoulli", "aten.normal", "aten.multinomial", "aten.poisson", "aten.binomial", "aten._sample_dirichlet",
    "aten._standard_gamma", "aten.randperm", "aten.linspace", "aten.logspace",
)(free)  # fmt: skip
# Comparisons, sorting and logic: the results are booleans and indices.
formula(
    "aten.eq", "aten.ne", "aten.lt", "aten.le", "aten.gt", "aten.ge", "aten.isnan", "aten.isinf", "aten.isfinite",
    "aten.isclose", "aten.isin", "aten.signbit", "aten.logical_and", "aten.logical_or", "aten.logical_not",
    "aten.logical_xor", "aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor", "aten.bitwise_not",
    "aten.bitwise_left_shift", "aten.bitwise_right_shift", "aten.__and__", "aten.__or__", "aten.__xor__",
    "aten.__lshift__", "aten.__rshift__", "aten.any", "aten.all", "aten.equal", "aten.allclose", "aten.nonzero",
    "aten.nonzero_static", "aten.count_nonzero", "aten.argmax", "aten.argmin", "aten.sort", "aten.argsort",
    "aten.topk", "aten.kthvalue", "aten.mode", "aten.searchsorted", "aten.bucketize", "aten.histc", "aten.histogram",
    "aten.bincount",
    "aten.unique_consecutive", "aten._unique", "aten._unique2", "aten.unique_dim", "aten.heaviside", "aten.msort",
    "aten.isneginf", "aten.isposinf", "aten.unique_dim_consecutive", "aten._is_all_true", "aten._is_any_true",
    "aten._nested_tensor_from_mask_left_aligned", "aten._histogramdd_bin_edges", "aten._histogramdd_from_bin_cts",
    "aten._histogramdd_from_bin_tensors", "aten.hash_tensor", "torchvision.nms",
)(free)  # fmt: skip
# Metadata changes and allocations: no data moves.
formula(
    "aten._unsafe_view", "aten._reshape_alias", "aten.is_same_size", "aten.sym_size", "aten.size",
    "aten.sym_numel", "aten.sym_stride", "aten.sym_storage_offset", "aten.stride", "aten.numel", "aten.dim",
    "aten.is_contiguous", "aten.is_pinned", "aten.empty", "aten.empty_strided", "aten.empty_permuted", "aten.empty_like",
    "aten.new_empty", "aten.new_empty_strided", "aten._efficientzerotensor", "aten.resize_", "aten.resize_as_",
    "aten.set_", "aten.t_",
    "aten.transpose_", "aten.squeeze_", "aten.unsqueeze_", "aten.swapaxes_", "aten.swapdims_", "aten.as_strided_",
    "aten.detach_", "aten.requires_grad_", "aten._unpack_dual", "aten._make_dual", "aten.unsafe_split",
    "aten.unsafe_split_with_sizes", "aten._has_compatible_shallow_copy_type", "aten._version", "aten.record_stream",
    "aten._assert_async", "aten._functional_assert_async", "aten._assert_scalar", "aten._functional_assert_scalar",
    "aten._assert_tensor_metadata", "aten.is_set_to", "aten.resize", "aten.resize_as", "aten.set", "aten._resize_output_",
    "aten._resize_output", "aten._has_same_storage_numel", "aten._use_cudnn_ctc_loss", "aten._use_miopen_ctc_loss",
    "aten._functional_sym_constrain_range", "aten._functional_sym_constrain_range_for_size",
    "aten._nested_tensor_size", "aten._nested_tensor_strides", "aten._nested_tensor_storage_offsets",
    "aten._nested_get_offsets", "aten._nested_get_lengths", "aten._nested_get_ragged_idx", "aten._nested_get_min_seqlen",
    "aten._nested_get_max_seqlen", "aten._nested_get_jagged_dummy", "aten._nested_compute_contiguous_strides_offsets",
    "aten._new_zeros_with_same_feature_meta", "aten.is_coalesced", "aten._nested_get_values", "aten._is_zerotensor",
    "aten._fused_sdp_choice", "aten._cudnn_init_dropout_state", "aten.is_nonzero",
    "aten.sym_is_contiguous", "prim.device", "profiler._record_function_enter_new",
    "profiler._record_function_exit", "profiler._record_function_enter",
    moves="nothing",
)(free)  # fmt: skip
formula("aten._local_scalar_dense", "aten.item")(free)  # reads one number
