"""Lookups, gathers and scatters: no arithmetic unless they accumulate; of a table only the rows asked for are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler_kit.counting.arithmetic import contraction, is_float, numel, per_argument, per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def gathered(table: TensorSpec, indices: Sequence[TensorSpec | None], out: TensorSpec) -> Cost:
    """0 FLOPs; as many bytes of the table as come out, the table's own at most, and the indices."""
    itemsize = table.nbytes // numel(table) if numel(table) else 0
    rows = min(table.nbytes, numel(out) * itemsize)
    return Cost(
        read_bytes=rows + sum(spec.nbytes for spec in indices if spec is not None),
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
    """One add (or compare) per element of every row looked up, a MAC where rows are weighted."""
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
    """One add per element of every row looked up."""
    return Cost(flops=numel(indices) * grad.shape[-1])


@formula("aten._embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    grad: TensorSpec, table: TensorSpec, indices: TensorSpec, *_: Any, out: TensorSpec, **__: Any
) -> Cost:
    """One dot product of the bag's gradient and the row, per row looked up."""
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
    """One add per value where it accumulates, else a copy."""
    return per_element(values) if accumulate else Cost()


@formula("aten.scatter")
def scatter(
    x: TensorSpec, dim: int, indices: TensorSpec, source: Any, *_: Any, reduce: str | None = None, out: Any, **__: Any
) -> Cost:
    """One operation per element placed where it reduces, else a copy."""
    return Cost() if reduce is None else Cost(flops=numel(indices) if is_float(x) else 0)


@formula("aten.embedding_renorm", "aten.embedding_renorm_")
def embedding_renorm(table: TensorSpec, indices: TensorSpec, *_: Any, out: Any) -> Cost:
    """Square, add, scale, of every row looked up."""
    return Cost(flops=3 * numel(indices) * table.shape[-1])


@formula("aten.put")
def put(x: TensorSpec, indices: TensorSpec, source: TensorSpec, accumulate: bool = False, *, out: Any) -> Cost:
    """One add per value where it accumulates, else a copy."""
    return Cost(flops=numel(source)) if accumulate and is_float(source) else Cost()
