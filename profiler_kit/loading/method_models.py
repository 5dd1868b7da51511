"""Models without a forward: the methods that call their layers, such as `pi(x)` and `v(x)` of an actor-critic, run instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from torch import nn

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.program.reading import source_text

NOTE: Final = "{name} defines no forward: {methods} {verb}"
# A method that trains calls the others.
_TRAINS: Final = re.compile(r"\.(backward|step|zero_grad)\(")
_UNIMPLEMENTED: Final = re.compile(r"\s*def forward\([^)]*\)[^\n]*:\s*raise NotImplementedError\b.*\s*")
_Method = Callable[..., Any]


def defines_forward(model: nn.Module) -> bool:
    """Whether the class of `model` defines a forward that does more than to raise NotImplementedError."""
    if not hasattr(model, "forward"):  # torch.jit.script(nn.LSTM(...)) has one per kind of input
        return False
    if attribute_of(model.forward, "__name__", str) == "_forward_unimplemented":
        return False
    return _UNIMPLEMENTED.fullmatch(source_text(model.forward)) is None


def give_forward(model: nn.Module) -> str:
    """Give the class of `model` a forward that runs its methods, and return a note; empty if it has no such methods.

    A single method becomes the forward. Several run one after the other, each with the arguments of its parameters' names, so
    that each layer is counted as often as the methods call it.
    """
    methods = dict(_methods(model))
    if not methods:
        return ""
    kind: Any = type(model)
    kind.forward = next(iter(methods.values())) if len(methods) == 1 else _one_after_the_other(methods)
    texts = [f"{name}({', '.join(_required(method))})" for name, method in methods.items()]
    verb = "runs" if len(texts) == 1 else "run one after the other"
    return NOTE.format(
        name=kind.__name__, methods=" and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))), verb=verb
    )


def _methods(model: nn.Module) -> Iterator[tuple[str, _Method]]:
    """The public methods with parameters that call submodules of `model`, in the order of the class."""
    children = "|".join(re.escape(name) for name, _ in model.named_children())
    calls_layer = re.compile(rf"\bself\.({children})\b\s*[(\[]")
    own = [kind for kind in type(model).__mro__ if kind not in nn.Module.__mro__]
    members = {name: member for kind in reversed(own) for name, member in vars(kind).items()}
    for name, member in members.items():
        if not children or name.startswith("_") or not inspect.isfunction(member) or not _required(member):
            continue
        text = source_text(member)
        if calls_layer.search(text) and not _TRAINS.search(text):
            yield name, member


def _required(method: _Method) -> list[str]:
    """The names of the parameters that a call has to state."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]


def _one_after_the_other(methods: dict[str, _Method]) -> _Method:
    """A forward with the required parameters of all `methods`. It returns the outputs as a tuple."""
    names = list(dict.fromkeys(name for method in methods.values() for name in _required(method)))

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        values = dict(zip(names, args, strict=False)) | kwargs
        return tuple(method(self, *(values[name] for name in _required(method))) for method in methods.values())

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in ("self", *names)]
    )
    return forward
