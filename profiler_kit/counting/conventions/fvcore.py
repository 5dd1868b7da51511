"""The convention of fvcore's FlopCountAnalysis: its handles, over calls of torch's functions as it sees them in a trace.

Its unit is one per MAC; it adds a few per element of norms, upsampling and adaptive pooling, knows forward only, and
counts nothing for what it has no handle for, such as attention, recurrent layers, or ``padding="same"``.

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

from profiler_kit.counting.conventions import Convention, Note, OpCall, work
from profiler_kit.counting.function_calls import FunctionCalls
from profiler_kit.counting.operands import OpFacts, spec_of, tensors_in
from profiler_kit.errors import KitError
from profiler_kit.records.counts import Cost

PREFIX: Final = "fvcore."  # of the names of its ops in a count
LEAST_DIMS, MOST_DIMS = 2, 5  # fvcore ends with an assertion for norms of other inputs; here they count nothing


@dataclass(frozen=True, slots=True)
class Given:
    """A call's arguments, by position or by keyword, and its result."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any

    def value(self, place: int, name: str) -> Any:
        """The argument at `place`, or called `name`; None without."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name)

    def shape(self, place: int, name: str) -> tuple[int, ...]:
        """The shape of that argument; () where it is no tensor."""
        value = self.value(place, name)
        return tuple(value.shape) if isinstance(value, Tensor) else ()

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.out.shape)


Handle: TypeAlias = Callable[[Given], "int | None"]


def linear(given: Given) -> int | None:
    """Every input element meets every row of the weight."""
    return prod(given.shape(0, "input")) * given.shape(1, "weight")[0]


def matmul(given: Given) -> int | None:
    """Every element of the first operand meets the last dimension of the second. A broadcast first operand is not repeated."""
    a, b = given.shape(0, "input"), given.value(1, "other") if "mat2" not in given.kwargs else given.kwargs["mat2"]
    if not a or not isinstance(b, Tensor) or b.dim() < 2:
        return None  # fvcore ends with an error
    return prod(a) * int(b.shape[-1])


def bmm(given: Given) -> int | None:
    """As `matmul`, of batches."""
    return prod(given.shape(0, "input")) * given.shape(1, "mat2")[-1]


def addmm(given: Given) -> int | None:
    """As `matmul`; what is added is free."""
    return prod(given.shape(1, "mat1")) * given.shape(2, "mat2")[1]


def convolution(given: Given) -> int | None:
    """A weight per output position and item of the batch; a padding named by a word is an op without a handle."""
    if isinstance(given.value(4, "padding"), str):
        return None
    x, w = given.shape(0, "input"), given.shape(1, "weight")
    batch = x[0] if len(x) == len(w) else 1
    return batch * prod(w) * prod(given.out_shape[2 - len(w) :])


def transposed_convolution(given: Given) -> int | None:
    """A weight per input position and item of the batch."""
    x, w = given.shape(0, "input"), given.shape(1, "weight")
    batch = x[0] if len(x) == len(w) else 1
    return batch * prod(w) * prod(x[2 - len(w) :])


def any_convolution(given: Given) -> int | None:
    """Either, as the seventh argument says."""
    return (transposed_convolution if given.value(6, "transposed") else convolution)(given)


def einsum(given: Given) -> int | None:
    """Half of what NumPy says the best order of contractions takes, which it says with four digits."""
    equation = str(given.value(0, "equation")).replace(" ", "")
    operands = given.args[1] if len(given.args) == 2 and isinstance(given.args[1], (list, tuple)) else given.args[1:]
    shapes: list[tuple[int, ...]] = [tuple(operand.shape) for operand in operands]
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    renamed = equation.translate({ord(letter): 97 + i for i, letter in enumerate(letters)})
    if renamed == "abc,abd->acd":
        return prod(shapes[0]) * shapes[-1][-1]
    if renamed == "abc,adc->adb":
        return prod(shapes[0]) * shapes[-1][1]
    return numpy_flops(renamed, shapes) // 2


def numpy_flops(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """The optimised FLOP count in the report of ``numpy.einsum_path``. Raises KitError without NumPy."""
    try:
        import numpy as np
    except ImportError as error:
        raise KitError(
            "fvcore counts einsum by numpy.einsum_path, and NumPy is not installed", hint="pip install numpy"
        ) from error
    blanks = [np.broadcast_to(np.zeros(()), shape) for shape in shapes]  # fvcore's own are as large as the operands
    report = np.einsum_path(equation, *blanks, optimize="optimal")[1]
    line = next(line for line in report.split("\n") if "optimized flop" in line.lower())
    return int(float(line.split(":")[-1]))


def norm(weight_at: int) -> Handle:
    """Five per element with a weight, four without."""

    def count(given: Given) -> int | None:
        x = given.shape(0, "input")
        if not LEAST_DIMS <= len(x) <= MOST_DIMS:
            return None
        return prod(x) * (5 if given.value(weight_at, "weight") is not None else 4)

    return count


def batch_norm(given: Given) -> int | None:
    """In training as other norms; in evaluation two per element with a weight, one without."""
    if given.value(5, "training"):
        return norm(1)(given)
    return prod(given.shape(0, "input")) * (2 if given.value(1, "weight") is not None else 1)


def per_element(*, of_input: int = 0, of_output: int = 0) -> Handle:
    """So many per element."""
    return lambda given: of_input * prod(given.shape(0, "input")) + of_output * prod(given.out_shape)


# name of torch's function -> name of fvcore's op, and its handle
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

# A trace holds a cell's parts, which are two linear layers and pointwise ops.
CELLS: Final = frozenset(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"))


def label(function: str) -> str:
    """What fvcore calls the op that `function` is; the function's own name where it has no handle."""
    if function in CELLS:
        return "linear"
    return HANDLES[function][0] if function in HANDLES else function


def handled(function: str, given: Given) -> tuple[int, ...]:
    """fvcore's figure of every op it counts in this call; nothing where it has no handle."""
    if function in CELLS:
        state = given.value(1, "hx")
        hidden = state[0] if isinstance(state, (list, tuple)) else state
        pairs = ((given.value(0, "input"), given.value(2, "w_ih")), (hidden, given.value(3, "w_hh")))
        return tuple(x.numel() * int(w.shape[0]) for x, w in pairs)
    if function not in HANDLES:
        return ()
    figure = HANDLES[function][1](given)
    return () if figure is None else (figure,)


@contextmanager
def watching(note: Note) -> Iterator[FunctionCalls]:
    """Notes fvcore's figure of every call, as an op named ``fvcore.<its name there>`` that moves no bytes."""

    def ended(function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        for figure in handled(function, Given(args, kwargs, out)):
            inputs = tuple(spec_of(tensor) for tensor in tensors_in((*args, *kwargs.values())))
            outputs = tuple(spec_of(tensor) for tensor in tensors_in((out,)))
            note(OpFacts(op=PREFIX + label(function), inputs=inputs, outputs=outputs, cost=work(None, macs=figure)))

    calls = FunctionCalls(ended)
    with _attention_layers_by_parts(), calls.watching():
        yield calls


@contextmanager
def _attention_layers_by_parts() -> Iterator[None]:
    """Keeps `nn.MultiheadAttention` off its fused path, which a trace never takes: fvcore makes it with gradients."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def restate(call: OpCall) -> Cost | None:
    """Nothing: the calls that ops are part of are counted whole."""
    return None if call.own is None else work(call.own, macs=0)


CONVENTION = Convention(
    name="fvcore",
    sentence=(
        "As fvcore's FlopCountAnalysis: its figure stands as MACs, FLOPs are twice it; forward only, and what it has no "
        "handle for counts nothing; bytes are the kit's."
    ),
    unit="1 per MAC (shown as MACs; FLOPs are twice that)",
    counts=(
        "convolutions, linear layers, products; a few per element of norms, upsampling and adaptive pooling; no attention op, "
        "no recurrent layer"
    ),
    backward="nothing: it traces forward only",
    use="comparing with published figures of fvcore, detectron2, timm",
    restate=restate,
    watching=watching,
)
