"""The convention of fvcore's FlopCountAnalysis: its handles, applied to calls of torch functions as in a trace.

The unit is 1 per MAC. fvcore adds a few units per element for norms, upsampling and adaptive pooling. It counts forward only,
and 0 for functions without a handle, such as attention, recurrent layers and convolutions with ``padding="same"``.

Source: fvcore 0.1.5, fvcore/nn/flop_count.py and fvcore/nn/jit_handles.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from profiler_kit.command_lines import install_command
from profiler_kit.counting.conventions import Convention, Note, OpCall, with_work
from profiler_kit.counting.function_calls import FunctionCalls
from profiler_kit.counting.operands import OpFacts, spec_of, tensors_in
from profiler_kit.errors import KitError
from profiler_kit.records.counts import Cost

PREFIX: Final = "fvcore."  # of fvcore's op names in a count
MIN_NORM_DIMS, MAX_NORM_DIMS = 2, 5  # fvcore asserts these limits for norms; here other inputs count 0


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Arguments and result of a call of a torch function."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any

    def value(self, place: int, name: str) -> Any:
        """The positional argument `place`, or the keyword argument `name`; None without either."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name)

    def shape(self, place: int, name: str) -> tuple[int, ...]:
        """The shape of this argument; () if it is not a tensor."""
        value = self.value(place, name)
        return tuple(value.shape) if isinstance(value, Tensor) else ()

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.out.shape)


Handle: TypeAlias = Callable[[FunctionCall], "int | None"]  # fvcore's figure; None counts 0


def linear(call: FunctionCall) -> int | None:
    """Input elements times rows of the weight."""
    return prod(call.shape(0, "input")) * call.shape(1, "weight")[0]


def matmul(call: FunctionCall) -> int | None:
    """Elements of the first operand times the last dimension of the second. A broadcast first operand counts once."""
    a, b = call.shape(0, "input"), call.value(1, "other") if "mat2" not in call.kwargs else call.kwargs["mat2"]
    if not a or not isinstance(b, Tensor) or b.dim() < 2:
        return None  # fvcore raises an error
    return prod(a) * int(b.shape[-1])


def bmm(call: FunctionCall) -> int | None:
    """As `matmul`, with a batch dimension."""
    return prod(call.shape(0, "input")) * call.shape(1, "mat2")[-1]


def addmm(call: FunctionCall) -> int | None:
    """As `matmul`; the addition is free."""
    return prod(call.shape(1, "mat1")) * call.shape(2, "mat2")[1]


def convolution(call: FunctionCall) -> int | None:
    """Weight elements times output positions and batch size. None for string padding, which has no handle."""
    if isinstance(call.value(4, "padding"), str):
        return None
    x, w = call.shape(0, "input"), call.shape(1, "weight")
    batch = x[0] if len(x) == len(w) else 1
    return batch * prod(w) * prod(call.out_shape[2 - len(w) :])


def transposed_convolution(call: FunctionCall) -> int | None:
    """Weight elements times input positions and batch size."""
    x, w = call.shape(0, "input"), call.shape(1, "weight")
    batch = x[0] if len(x) == len(w) else 1
    return batch * prod(w) * prod(x[2 - len(w) :])


def any_convolution(call: FunctionCall) -> int | None:
    """A convolution, transposed or not by its seventh argument."""
    return (transposed_convolution if call.value(6, "transposed") else convolution)(call)


def einsum(call: FunctionCall) -> int | None:
    """Half of the FLOPs that NumPy reports for the best order of contractions, with four significant digits."""
    equation = str(call.value(0, "equation")).replace(" ", "")
    operands = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], (list, tuple)) else call.args[1:]
    shapes: list[tuple[int, ...]] = [tuple(operand.shape) for operand in operands]
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    renamed = equation.translate({ord(letter): 97 + i for i, letter in enumerate(letters)})
    if renamed == "abc,abd->acd":
        return prod(shapes[0]) * shapes[-1][-1]
    if renamed == "abc,adc->adb":
        return prod(shapes[0]) * shapes[-1][1]
    return numpy_flops(renamed, shapes) // 2


def numpy_flops(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """The optimized FLOP count in the report of ``numpy.einsum_path``. Raises KitError without NumPy."""
    try:
        import numpy as np
    except ImportError as error:
        raise KitError(
            "the fvcore convention counts einsum with numpy.einsum_path, and NumPy is not installed",
            hint=install_command("numpy"),
        ) from error
    blanks = [np.broadcast_to(np.zeros(()), shape) for shape in shapes]  # fvcore allocates full-size arrays here
    report = np.einsum_path(equation, *blanks, optimize="optimal")[1]
    line = next(line for line in report.split("\n") if "optimized flop" in line.lower())
    return int(float(line.split(":")[-1]))


def norm(weight_at: int) -> Handle:
    """5 per element with a weight, 4 without."""

    def count(call: FunctionCall) -> int | None:
        x = call.shape(0, "input")
        if not MIN_NORM_DIMS <= len(x) <= MAX_NORM_DIMS:
            return None
        return prod(x) * (5 if call.value(weight_at, "weight") is not None else 4)

    return count


def batch_norm(call: FunctionCall) -> int | None:
    """As `norm` in training; in evaluation 2 per element with a weight, 1 without."""
    if call.value(5, "training"):
        return norm(1)(call)
    return prod(call.shape(0, "input")) * (2 if call.value(1, "weight") is not None else 1)


def per_element(*, of_input: int = 0, of_output: int = 0) -> Handle:
    """A handle: this many per input element and per output element."""
    return lambda call: of_input * prod(call.shape(0, "input")) + of_output * prod(call.out_shape)


# torch function -> fvcore's op name and its handle
HANDLES: Final[Mapping[str, tuple[str, Handle]]] = {
    **{f"conv{n}d": ("conv", convolution) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": ("conv", transposed_convolution) for n in (1, 2, 3)},
    "convolution": ("conv", any_convolution),
    "_convolution": ("conv", any_convolution),
    "linear": ("linear", linear),
    "matmul": ("matmul", matmul),
    "linalg_matmul": ("matmul", matmul),
    "mm": ("mm", matmul),
    "bmm": ("bmm", bmm),
    "addmm": ("addmm", addmm),
    "einsum": ("einsum", einsum),
    "batch_norm": ("batch_norm", batch_norm),
    "instance_norm": ("instance_norm", norm(1)),
    "layer_norm": ("layer_norm", norm(2)),
    "group_norm": ("group_norm", norm(2)),
    "upsample_nearest2d": ("upsample_nearest2d", per_element(of_output=1)),
    "upsample_bilinear2d": ("upsample_bilinear2d", per_element(of_output=4)),
    "adaptive_avg_pool2d": ("adaptive_avg_pool2d", per_element(of_input=1)),
    "grid_sampler": ("grid_sampler", per_element(of_output=4)),
}

# A trace contains the parts of a recurrent cell: two linear layers and pointwise ops.
CELLS: Final = frozenset(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"))


def label(function: str) -> str:
    """fvcore's name of the op `function`; the function's own name without a handle."""
    if function in CELLS:
        return "linear"
    return HANDLES[function][0] if function in HANDLES else function


def peer_figures(function: str, call: FunctionCall) -> tuple[int, ...]:
    """fvcore's figure of each op that it counts in this call; () without a handle."""
    if function in CELLS:
        state = call.value(1, "hx")
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        pairs = ((call.value(0, "input"), call.value(2, "w_ih")), (hidden, call.value(3, "w_hh")))
        return tuple(x.numel() * int(w.shape[0]) for x, w in pairs)
    if function not in HANDLES:
        return ()
    figure = HANDLES[function][1](call)
    return () if figure is None else (figure,)


@contextmanager
def record_functions(note: Note) -> Iterator[None]:
    """Count fvcore's figure of every call, as an op ``fvcore.<name>`` that moves no bytes."""

    def on_call(function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        for figure in peer_figures(function, FunctionCall(args, kwargs, out)):
            inputs = tuple(spec_of(tensor) for tensor in tensors_in((*args, *kwargs.values())))
            outputs = tuple(spec_of(tensor) for tensor in tensors_in((out,)))
            note(
                OpFacts(op=PREFIX + label(function), inputs=inputs, outputs=outputs, cost=with_work(None, macs=figure))
            )

    with _attention_fast_path_off(), FunctionCalls(on_call).watching():
        yield


@contextmanager
def _attention_fast_path_off() -> Iterator[None]:
    """Disable the fused path of `nn.MultiheadAttention`. fvcore traces with gradients enabled, where it is not taken."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def op_cost(call: OpCall) -> Cost | None:
    """Zero: function calls are counted instead of the ops inside them."""
    return None if call.kit_cost is None else with_work(call.kit_cost, macs=0)


CONVENTION = Convention(
    name="fvcore",
    sentence=(
        "As fvcore's FlopCountAnalysis: its figure is shown as MACs, and FLOPs are twice that. Forward only; functions "
        "without a handle count 0. Bytes are counted as in kit."
    ),
    unit="1 per MAC (shown as MACs; FLOPs are twice that)",
    counts=(
        "convolutions, linear layers, products; a few per element of norms, upsampling and adaptive pooling; 0 for attention ops "
        "and recurrent layers"
    ),
    backward="0: fvcore traces forward only",
    use="comparison with published figures of fvcore, detectron2, timm",
    op_cost=op_cost,
    function_recorder=record_functions,
)
