"""Whether the code between two sharded layers computes the same on a part of the width as on all of it.

A softmax over the sharded dimension or a mean over it runs on a part, but with other results. The operators of a run with whole
layers and of a run with sharded ones are compared: the dimensions whose sizes differ are the sharded ones, and no operator may
reduce or normalize them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.memory.tensor_styles import SHARDED
from profiler_kit.meta.batch import tensors_in

# They keep the size of the dimension along which they compute.
ALONG_DIMENSIONS: Final = (
    "_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod", "logcumsumexp", "sort", "topk", "flip", "roll",
    "native_layer_norm", "_fused_rms_norm",
)  # fmt: skip
DIMENSION_ARGUMENTS: Final = ("dim", "dims")
NORMALIZED_SHAPE: Final = "normalized_shape"  # of the last dimensions
COPIES: Final = ("clone", "copy_", "_to_copy", "_unsafe_view")  # or none, as strides require
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A call of an operator: the shapes of its tensors, and the dimensions that its arguments name."""

    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dimensions: tuple[int, ...]


class PairOperators(TorchDispatchMode):
    """Records the operators between the columns and the row of pairs, by the path of the row."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: dict[str, list[Operator]] = {}
        self._open: list[str] = []
        self._inside = 0  # calls of sharded modules, whose own operators differ

    def watch(self, model: nn.Module, columns: Iterable[str], norms: Iterable[str], row: str) -> None:
        """Record the operators of a pair of `model`, without those of its layers and `norms`."""

        def enter(module: nn.Module, args: Any) -> None:
            self._inside += 1

        def leave(module: nn.Module, args: Any, result: Any) -> None:
            self._inside -= 1

        def start(module: nn.Module, args: Any, result: Any) -> None:
            if row not in self._open:
                self._open.append(row)

        def end(module: nn.Module, args: Any) -> None:
            if row in self._open:
                self._open.remove(row)

        self.operators[row] = []
        for path in (*columns, *norms, row):
            model.get_submodule(path).register_forward_pre_hook(enter, prepend=True)
            model.get_submodule(path).register_forward_hook(leave)
        for path in columns:
            model.get_submodule(path).register_forward_hook(start)
        model.get_submodule(row).register_forward_pre_hook(end, prepend=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, SHARDED) for kind in types):
            return NotImplemented  # its local operators come next
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not isinstance(func, OpOverload):
            return result
        name = func.overloadpacket.__name__
        if self._open and not self._inside and not func.is_view and name not in COPIES:
            shapes, results = _shapes((args, kwargs)), _shapes(result)
            self.operators[self._open[-1]].append(Operator(name, shapes, results, _dimensions(func, args, kwargs)))
        return result


def mixing_operator(whole: Sequence[Operator], sharded: Sequence[Operator]) -> str | None:
    """The name of the first operator that computes over a sharded dimension.

    None if there is none, or if the two runs call different operators, so that they cannot be compared.
    """
    if [operator.name for operator in whole] != [operator.name for operator in sharded]:
        return None
    for full, part in zip(whole, sharded, strict=True):
        inputs = [_sharded_dimensions(*shapes) for shapes in zip(full.inputs, part.inputs, strict=False)]
        outputs = [_sharded_dimensions(*shapes) for shapes in zip(full.outputs, part.outputs, strict=False)]
        reduces = any(inputs) and full.outputs and not any(outputs)
        along = full.name in ALONG_DIMENSIONS and inputs and not inputs[0].isdisjoint(full.dimensions)
        if reduces or along:
            return full.name.strip("_")
    return None


def _sharded_dimensions(full: Shape, part: Shape) -> set[int]:
    """The dimensions whose sizes differ, counted from the last: -1, -2."""
    return {i - len(full) for i, sizes in enumerate(zip(full, part, strict=False)) if sizes[0] != sizes[1]}


def _shapes(value: object) -> tuple[Shape, ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors_in(value))


def _dimensions(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The dimensions that the arguments name, counted from the last."""
    names = [argument.name for argument in func._schema.arguments]
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    first = next((value for value in args if isinstance(value, Tensor)), None)
    if first is None:
        return ()
    dimensions: list[int] = []
    for name in DIMENSION_ARGUMENTS:
        value = values.get(name)
        listed = value if isinstance(value, (list, tuple)) else [value]
        dimensions += [d if d < 0 else d - first.dim() for d in listed if isinstance(d, int)]
    return (*dimensions, *(-1 - i for i in range(len(values.get(NORMALIZED_SHAPE, ())))))
