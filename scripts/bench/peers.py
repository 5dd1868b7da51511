"""The counters that `count` compares, each behind the same two functions.

A figure is in FLOPs, 2 per multiply-add: counters that give multiply-adds are doubled. A peer is imported where it is asked for,
so that a missing one is a line in a table, and one that patches torch does so in the process of its own.
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
    """What a counter says: FLOPs of the forward pass, of the backward pass where it counts that, and ops it says it left out."""

    forward: float
    backward: float | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A counter. `package` is what is installed, `module` what is imported; `step` counts forward and backward.

    Both make what they need of a model and its inputs, and return what counts.
    """

    package: str
    module: str
    forward: Counter
    step: Counter | None = None

    def version(self) -> str | None:
        """The installed version; None where there is none."""
        if self.module == "profiler_kit":
            return VERSION  # it may be run from its sources
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None


class RefusedError(Exception):
    """A counter gave no figure, and said so by other means than an exception."""


def first_tensor(out: Any) -> Tensor:
    """What backward starts from: the first tensor of what a model returned."""
    first: Tensor = out if isinstance(out, Tensor) else out[0]
    return first


def _seeded(out: Any) -> Tensor:
    """A loss whose gradient is a dense tensor; that of a plain sum is one number, expanded, which some kernels refuse."""
    first = first_tensor(out)
    first = torch.view_as_real(first) if first.is_complex() else first
    return (first * torch.ones_like(first)).sum()


def _kit_forward(model: nn.Module, inputs: Inputs, *, memory: bool = False) -> Counting:
    target = from_model(model, inputs, mode="infer", device=inputs[0].device.type)

    def count() -> Figure:
        static = count_target(target)
        if memory:
            simulate(target)
        return Figure(2.0 * static.forward.macs, left_out=tuple(op.op for op in static.uncounted))

    return count


def _kit_step(model: nn.Module, inputs: Inputs, *, memory: bool = False) -> Counting:
    target = from_model(model, inputs, loss_fn=_seeded, optimizer="adamw", device=inputs[0].device.type)

    def count() -> Figure:
        static = count_target(target)
        if memory:
            simulate(target)
        return Figure(2.0 * static.forward.macs, 2.0 * static.backward.macs)

    return count


def _at_once(count: Callable[[nn.Module, Inputs], Figure]) -> Counter:
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
    return Figure(2.0 * macs, left_out=tuple(analysis.unsupported_ops()))


class _ByName(nn.Module):
    """Takes its inputs by keyword, which is how ptflops hands on more than one; it then counts the batch as a whole."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Any:
        """What the model returns."""
        return self.model(*inputs.values())


def _ptflops(backend: str) -> Counter:
    def count(model: nn.Module, inputs: Inputs) -> Figure:
        named = {f"input_{place}": tensor for place, tensor in enumerate(inputs)}
        macs, _ = importlib.import_module("ptflops").get_model_complexity_info(
            _ByName(model),
            (1,),
            input_constructor=lambda _: named,
            as_strings=False,
            print_per_layer_stat=False,
            backend=backend,
        )
        if macs is None:
            raise RefusedError("it printed an error, and returned None")
        return Figure(2.0 * macs)

    return _at_once(count)


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
    found = importlib.import_module("torchinfo").summary(model, input_data=list(inputs), verbose=0)
    return Figure(2.0 * found.total_mult_adds)


PEERS: Final[dict[str, Peer]] = {
    "profiler-kit": Peer(package="profiler-kit", module="profiler_kit", forward=_kit_forward, step=_kit_step),
    "profiler-kit, with memory": Peer(
        package="profiler-kit",
        module="profiler_kit",
        forward=partial(_kit_forward, memory=True),
        step=partial(_kit_step, memory=True),
    ),
    "FlopCounterMode": Peer(
        package="torch", module="torch.utils.flop_counter", forward=_at_once(_torch_forward), step=_at_once(_torch_step)
    ),
    "fvcore": Peer(package="fvcore", module="fvcore.nn", forward=_at_once(_fvcore)),
    "ptflops (pytorch)": Peer(package="ptflops", module="ptflops", forward=_ptflops("pytorch")),
    "ptflops (aten)": Peer(package="ptflops", module="ptflops", forward=_ptflops("aten")),
    "calflops": Peer(package="calflops", module="calflops", forward=_at_once(_calflops)),
    "thop": Peer(package="thop", module="thop", forward=_at_once(_thop)),
    "DeepSpeed": Peer(package="deepspeed", module="deepspeed.profiling.flops_profiler", forward=_at_once(_deepspeed)),
    "torchinfo": Peer(package="torchinfo", module="torchinfo", forward=_at_once(_torchinfo)),
}
