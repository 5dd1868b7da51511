"""Model files that misbehave: where user code runs, times what it does there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TEMPLATE: Final = """\
import ctypes, os, signal, subprocess, sys, threading, time
import torch
from torch import nn
{top}

class Fatal(BaseException):
    pass


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        {block_forward}
        return self.linear(x)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        {backward}
        return gradient * 2


class Net(nn.Module):
    {class_body}

    def __init__(self):
        super().__init__()
        {init}
        self.block = Block()
        self.head = nn.Linear(8, 2)
        {after_init}

    def forward(self, x):
        {forward}
        return self.head(Function.apply(self.block(x)))

{methods}


def get_model():
    {build}
    return Net()


def loss_fn(output, *labels):
    {loss}
    return output.float().square().mean()


def example_inputs():
    {inputs}
    return (torch.zeros(2, 8),)

{bottom}
"""
METHODS: Final = {
    "state_dict": "(self, *args, **kwargs)",
    "named_parameters": "(self, *args, **kwargs)",
    "named_modules": "(self, *args, **kwargs)",
    "parameters": "(self, *args, **kwargs)",
    "train": "(self, mode=True)",
    "to": "(self, *args, **kwargs)",
    "__del__": "(self)",
    "__repr__": "(self)",
    "extra_repr": "(self)",
    "__getattr__": "(self, name)",
    "__deepcopy__": "(self, memo)",
    "__setattr__": "(self, name, value)",
    "__call__": "(self, *args, **kwargs)",
    "__getstate__": "(self)",
    "__dir__": "(self)",
}
SPECIAL: Final = {
    "optimizer": "def configure_optimizer(model):\n    {act}\n    return torch.optim.SGD(model.parameters(), lr=0.1)\n",
    "loader": ("def train_loader():\n    {act}\n    return [(torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64))]\n"),
    "tensor_hook": "",
    "module_hook": "",
}
PLACES: Final = (
    "top", "class_body", "init", "after_init", "build", "forward", "block_forward", "loss", "backward", "inputs", "bottom",
    *METHODS, *SPECIAL,
)  # fmt: skip
# By round, the first run of the benchmark that had it: what happens, as one line of Python.
ACTS: Final[dict[int, dict[str, str]]] = {
    int(number): acts
    for number, acts in json.loads(Path(__file__).with_name("acts.json").read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True, slots=True)
class HostileModel:
    """A model file with `act` at `place`."""

    place: str
    act: str
    source: str


def hostile_models(count: int, seed: int, rounds: tuple[int, ...]) -> Iterator[HostileModel]:
    """`count` model files with the acts of `rounds`; each act and each place as often as the others, up to one."""
    random_numbers = random.Random(seed)
    acts = {name: code for number in rounds for name, code in ACTS[number].items()}
    names: list[str] = []
    places: list[str] = []
    for _ in range(count):
        names = names or random_numbers.sample(list(acts), len(acts))
        places = places or random_numbers.sample(PLACES, len(PLACES))
        place, name = places.pop(), names.pop()
        yield HostileModel(place=place, act=name, source=model_source(place, acts[name]))


def model_source(place: str, act: str) -> str:
    """The text of a model file that does `act` at `place`."""
    parts: Mapping[str, str] = dict.fromkeys(
        ("top", "class_body", "init", "after_init", "build", "forward", "block_forward", "loss", "backward", "inputs"),
        "pass",
    ) | {"methods": "", "bottom": ""}
    if place in METHODS:
        arguments = METHODS[place]
        names = arguments.removeprefix("(self").removesuffix(")").removeprefix(", ").replace("=True", "")
        guard = "if name == 'head': " if place in ("__getattr__", "__setattr__") else ""
        result = f"return super().{place}({names})" if place != "__del__" else "return"
        body = f"    def {place}{arguments}:\n        {guard}{_inline(act)}\n        {result}\n"
        return TEMPLATE.format(**{**parts, "methods": body})
    if place == "tensor_hook":
        return TEMPLATE.format(
            **{**parts, "forward": f"x.requires_grad and x.register_hook(lambda g: {_expression(act)})"}
        )
    if place == "module_hook":
        hook = f"self.block.register_forward_hook(lambda *a: {_expression(act)})"
        return TEMPLATE.format(**{**parts, "after_init": hook})
    if place in SPECIAL:
        return TEMPLATE.format(**{**parts, "bottom": SPECIAL[place].format(act=act)})
    return TEMPLATE.format(**{**parts, place: act})


def _inline(act: str) -> str:
    return f"exec({act!r}, globals())"


def _expression(act: str) -> str:
    return f"exec({act!r}, globals())"
