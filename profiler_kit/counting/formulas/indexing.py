"""Lookups, gathers and scatters: 0 FLOPs unless they accumulate. Only the selected rows of a table are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler_kit.counting.arithmetic import contraction, is_float, numel, per_argument, per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def gathered(table: TensorSpec, indices: Sequence[TensorSpec | None], out: TensorSpec) -> Cost:
    """0 FLOPs. Bytes: the size of the result, at most that of the table, and the indices."""
    itemsize = table.nbytes // numel(table) if numel(table) else 0
    table_bytes = min(table.nbytes, numel(out) * itemsize)
    return Cost(
        read_bytes=table_bytes + sum(spec.nbytes for spec in indices if spec is not None),
        write_bytes=out.nbytes,
    )


@formula("aten.embedding", moves="own")
def embedding(table: TensorSpec, indices: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """0 FLOPs: rows are copied."""
    return gathered(table, (indices,), out)


# one add per gradient element, into a gradient as large as the table
formula("aten.embedding_dense_backward")(per_argument(0))


@formula("aten._embedding_bag", "aten._embedding_bag_forward_only", moves="own")
def embedding_bag(
    table: TensorSpec, indices: TensorSpec, offsets: TensorSpec, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: TensorSpec | None = None, *_: Any, out: Sequence[TensorSpec],
) -> Cost:  # fmt: skip
    """1 FLOP (add or compare) per element of every selected row; 1 MAC with weights per sample."""
    width = table.shape[1]
    looked_up = numel(indices) * width
    itemsize = table.nbytes // numel(table) if numel(table) else 0
    read = min(table.nbytes, looked_up * itemsize) + indices.nbytes + offsets.nbytes
    written = sum(spec.nbytes for spec in out if spec is not None)
    if per_sample_weights is None:
        return Cost(flops=looked_up, read_bytes=read, write_bytes=written)
    return Cost(macs=looked_up, flops=2 * looked_up, read_bytes=read + per_sample_weights.nbytes, write_bytes=written)


@formula("aten._embedding_bag_backward", "aten._embedding_bag_dense_backward")
def embedding_bag_backward(grad: TensorSpec, indices: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """1 FLOP (add) per element of every selected row."""
    return Cost(flops=numel(indices) * grad.shape[-1])


@formula("aten._embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    grad: TensorSpec, table: TensorSpec, indices: TensorSpec, *_: Any, out: TensorSpec, **__: Any
) -> Cost:
    """A dot product of the bag's gradient and the row, per selected row."""
    return contraction(numel(indices) * table.shape[1], grad)


formula("aten.segment_reduce", "aten._segment_reduce_backward")(per_argument(0))  # one operation per element
formula("aten._unsafe_masked_index_put_accumulate")(per_argument(3))  # one add per value


@formula("aten.index_select", "aten.gather", "aten.take", moves="own")
def select_rows(table: TensorSpec, *args: Any, out: TensorSpec, **_: Any) -> Cost:
    """0 FLOPs: elements are copied."""
    return gathered(table, [item for item in args if isinstance(item, TensorSpec)], out)


@formula("aten.index", "aten._unsafe_index", moves="own")
def index(table: TensorSpec, indices: Sequence[TensorSpec | None], *, out: TensorSpec) -> Cost:
    """0 FLOPs: elements are copied."""
    return gathered(table, indices, out)


formula("aten.scatter_add", "aten.index_add")(per_argument(3))  # one add per source element
formula("aten.scatter_reduce", "aten.index_reduce")(per_argument(3))  # one operation per source element


@formula("aten.index_put", "aten._unsafe_index_put", "aten._index_put_impl")
def index_put(x: TensorSpec, indices: Any, values: TensorSpec, accumulate: bool = False, *_: Any, out: Any) -> Cost:
    """1 FLOP (add) per value if it accumulates, else 0: a copy."""
    return per_element(values) if accumulate else Cost()


@formula("aten.scatter")
def scatter(
    x: TensorSpec, dim: int, indices: TensorSpec, source: Any, *_: Any, reduce: str | None = None, out: Any, **__: Any
) -> Cost:
    """1 FLOP per placed element with a reduction, else 0: a copy."""
    return Cost() if reduce is None else Cost(flops=numel(indices) if is_float(x) else 0)


@formula("aten.embedding_renorm", "aten.embedding_renorm_")
def embedding_renorm(table: TensorSpec, indices: TensorSpec, *_: Any, out: Any) -> Cost:
    """Square, add, scale: 3 FLOPs per element of every selected row."""
    return Cost(flops=3 * numel(indices) * table.shape[-1])


@formula("aten.put")
def put(x: TensorSpec, indices: TensorSpec, source: TensorSpec, accumulate: bool = False, *, out: Any) -> Cost:
    """1 FLOP (add) per value if it accumulates, else 0: a copy."""
    return Cost(flops=numel(source)) if accumulate and is_float(source) else Cost()
