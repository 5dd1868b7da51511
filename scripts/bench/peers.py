"""The FLOP counters that `count` compares, all behind the same two functions.

Units: FLOPs, 2 per multiply-add. Figures of counters that return multiply-adds are doubled. Each counter is imported when it
is used: a missing counter then becomes a line in the table, and a counter that patches torch does so in its own process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from profiler_kit._version import VERSION
from profiler_kit.counting import count_target
from profiler_kit.loading import from_model
from profiler_kit.memory import simulate

Inputs = tuple[Tensor, ...]
Counting = Callable[[], "Figure"]
Counter = Callable[[nn.Module, Inputs], Counting]


@dataclass(frozen=True, slots=True)
class Figure:
    """A counter's FLOPs of forward and, if it counts it, of backward. `missing_ops` are ops that it reports as uncounted."""

    forward: float
    backward: float | None = None
    missing_ops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A counter. `package` is its distribution and `module` its import name.

    `forward` and `step` take a model and its inputs, prepare the counter and return a function that counts. `forward`
    counts the forward pass; `step` counts forward and backward.
    """

    package: str
    module: str
    forward: Counter
    step: Counter | None = None

    def version(self) -> str | None:
        """Return the installed version, or None if the package is missing."""
        if self.module == "profiler_kit":
            return VERSION  # also works from a source checkout
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None


class RefusedError(Exception):
    """A counter returned no figure and reported this without an exception."""


def first_tensor(out: Any) -> Tensor:
    """Return the first tensor of a model's output, from which backward starts."""
    first: Tensor = out if isinstance(out, Tensor) else out[0]
    return first


def _dense_loss(out: Any) -> Tensor:
    """Return a loss with a dense gradient. The gradient of a plain sum is an expanded scalar, which some kernels reject."""
    first = first_tensor(out)
    first = torch.view_as_real(first) if first.is_complex() else first
    return (first * torch.ones_like(first)).sum()


def _kit_forward(model: nn.Module, inputs: Inputs, *, memory: bool = False) -> Counting:
    target = from_model(model, inputs, mode="infer", device=inputs[0].device.type)

    def count() -> Figure:
        static = count_target(target)
        if memory:
            simulate(target)
        return Figure(2.0 * static.forward.macs, missing_ops=tuple(op.op for op in static.uncounted))

    return count


def _kit_step(model: nn.Module, inputs: Inputs, *, memory: bool = False) -> Counting:
    target = from_model(model, inputs, loss_fn=_dense_loss, optimizer="adamw", device=inputs[0].device.type)

    def count() -> Figure:
        static = count_target(target)
        if memory:
            simulate(target)
        return Figure(2.0 * static.forward.macs, 2.0 * static.backward.macs)

    return count


def _without_preparation(count: Callable[[nn.Module, Inputs], Figure]) -> Counter:
    return lambda model, inputs: partial(count, model, inputs)


def _torch_forward(model: nn.Module, inputs: Inputs) -> Figure:
    counter: Any = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(*inputs)
    return Figure(counter.get_total_flops())


def _torch_step(model: nn.Module, inputs: Inputs) -> Figure:
    counter: Any = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with counter:
        out = first_tensor(model(*inputs))
        forward = counter.get_total_flops()
        out.backward(torch.ones_like(out))
    model.zero_grad(set_to_none=True)
    return Figure(forward, counter.get_total_flops() - forward)


def _fvcore(model: nn.Module, inputs: Inputs) -> Figure:
    analysis: Any = importlib.import_module("fvcore.nn").FlopCountAnalysis(model, inputs)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    with torch.no_grad():
        macs = analysis.total()
    return Figure(2.0 * macs, missing_ops=tuple(analysis.unsupported_ops()))


class _KeywordInputs(nn.Module):
    """Accepts inputs by keyword, because ptflops passes several inputs as keywords. It then counts the whole batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Any:
        """Call the model."""
        return self.model(*inputs.values())


def _ptflops(backend: str) -> Counter:
    def count(model: nn.Module, inputs: Inputs) -> Figure:
        named = {f"input_{index}": tensor for index, tensor in enumerate(inputs)}
        macs, _ = importlib.import_module("ptflops").get_model_complexity_info(
            _KeywordInputs(model),
            (1,),
            input_constructor=lambda _: named,
            as_strings=False,
            print_per_layer_stat=False,
            backend=backend,
        )
        if macs is None:
            raise RefusedError("printed an error and returned None")
        return Figure(2.0 * macs)

    return _without_preparation(count)


def _calflops(model: nn.Module, inputs: Inputs) -> Figure:
    flops, _, _ = importlib.import_module("calflops").calculate_flops(
        model, args=list(inputs), print_results=False, output_as_string=False
    )
    return Figure(flops)


def _thop(model: nn.Module, inputs: Inputs) -> Figure:
    macs, _ = importlib.import_module("thop").profile(model, inputs=inputs, verbose=False)
    return Figure(2.0 * macs)


def _deepspeed(model: nn.Module, inputs: Inputs) -> Figure:
    flops, _, _ = importlib.import_module("deepspeed.profiling.flops_profiler").get_model_profile(
        model, args=list(inputs), print_profile=False, detailed=False, warm_up=0, as_string=False
    )
    return Figure(flops)


def _torchinfo(model: nn.Module, inputs: Inputs) -> Figure:
    summary = importlib.import_module("torchinfo").summary(model, input_data=list(inputs), verbose=0)
    return Figure(2.0 * summary.total_mult_adds)


PEERS: Final[dict[str, Peer]] = {
    "profiler-kit": Peer(package="profiler-kit", module="profiler_kit", forward=_kit_forward, step=_kit_step),
    "profiler-kit, with memory": Peer(
        package="profiler-kit",
        module="profiler_kit",
        forward=partial(_kit_forward, memory=True),
        step=partial(_kit_step, memory=True),
    ),
    "FlopCounterMode": Peer(
        package="torch",
        module="torch.utils.flop_counter",
        forward=_without_preparation(_torch_forward),
        step=_without_preparation(_torch_step),
    ),
    "fvcore": Peer(package="fvcore", module="fvcore.nn", forward=_without_preparation(_fvcore)),
    "ptflops (pytorch)": Peer(package="ptflops", module="ptflops", forward=_ptflops("pytorch")),
    "ptflops (aten)": Peer(package="ptflops", module="ptflops", forward=_ptflops("aten")),
    "calflops": Peer(package="calflops", module="calflops", forward=_without_preparation(_calflops)),
    "thop": Peer(package="thop", module="thop", forward=_without_preparation(_thop)),
    "DeepSpeed": Peer(
        package="deepspeed", module="deepspeed.profiling.flops_profiler", forward=_without_preparation(_deepspeed)
    ),
    "torchinfo": Peer(package="torchinfo", module="torchinfo", forward=_without_preparation(_torchinfo)),
}
