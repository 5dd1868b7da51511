"""Networks in which every layer's sizes occur nowhere else, and what their sizes say of whose an operator is.

A trace holds the sizes that operators were called with. Where no two modules share any, sizes alone tell the owner of forward
and backward work, whatever names and numbers the trace has beside them: a truth that a reader of traces can be held to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Redo = Literal["kept", "reentrant", "non-reentrant"]
Shape = tuple[int, ...]

BATCH: Final = 2
WORDS: Final = 31
CLASSES: Final = 43


class Scale(torch.autograd.Function):
    """A function with a backward of its own, which the profiler knows by its name alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """`x` times `weight`, by channel."""
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor]:
        """Gradients of both."""
        x, weight = ctx.saved_tensors
        (grad,) = grads
        return grad * weight, (grad * x).sum((0, 2, 3), keepdim=True)[0]


class Scaled(nn.Module):
    """One weight per channel, by `Scale`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """`x`, scaled."""
        scaled: Tensor = Scale.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return scaled


class Branches(nn.Module):
    """Two convolutions of the same input, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(5, 7, 3, padding=1)
        self.right = nn.Conv2d(5, 11, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Both outputs, one after the other."""
        return torch.cat([self.left(x), self.right(x)], 1)


class Twice(nn.Module):
    """One layer, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(18, 18, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output of its own output."""
        twice: Tensor = self.shared(self.shared(x))
        return twice


class Network(nn.Module):
    """Images and words to classes: branches, a shared layer, a function of its own, a block that may be checkpointed.

    `redo`: how the block's activations are had again in backward.
    """

    def __init__(self, redo: Redo) -> None:
        super().__init__()
        self.redo = redo
        self.stem = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU())
        self.branches = Branches()
        self.twice = Twice()
        self.scaled = Scaled(18)
        self.block = nn.Sequential(
            nn.Conv2d(18, 23, 3, padding=1, bias=False),
            nn.GroupNorm(1, 23),
            nn.ReLU(),
            nn.Conv2d(23, 29, 1, bias=False),
            nn.Tanh(),
        )
        self.pool = nn.MaxPool2d(2)
        self.embedding = nn.Embedding(WORDS, 37)
        self.text = nn.Linear(37, 29)
        self.head = nn.Linear(29, CLASSES)

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        """Logits."""
        x = self.scaled(self.twice(self.branches(self.stem(images))))
        x = self.block(x) if self.redo == "kept" else checkpoint(self.block, x, use_reentrant=self.redo == "reentrant")
        x = self.pool(x).mean((2, 3)) + self.text(self.embedding(words))
        logits: Tensor = self.head(x)
        return logits


@dataclass(slots=True)
class Watch:
    """What one step's module calls had: `names` as torch's profiler names modules, in the order of their first calls.

    `paths`: a name's place among the model's modules; `calls`: the names around its call, itself last.
    """

    names: dict[int, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)
    parameters: dict[str, list[Shape]] = field(default_factory=dict)
    activations: dict[str, list[Shape]] = field(default_factory=dict)

    def truth(self) -> dict[str, Any]:
        """As JSON: per module its path, the calls around it, and the sizes that are its alone."""
        return {
            name: {
                "path": self.paths[name],
                "calls": self.calls[name],
                "parameters": sorted(set(self.parameters[name])),
                "activations": sorted(set(self.activations[name])),
            }
            for name in self.names.values()
        }


@contextmanager
def watched(*roots: nn.Module) -> Iterator[Watch]:
    """Fills a `Watch` from the module calls of the block, under `roots`."""
    watch = Watch()
    open_calls: list[str] = []
    of_class: dict[str, int] = {}
    paths = {id(module): path for root in roots for path, module in root.named_modules()}

    def before(module: nn.Module, inputs: Any) -> None:
        kind = type(module).__name__
        if id(module) not in watch.names:
            watch.names[id(module)] = f"{kind}_{of_class.setdefault(kind, 0)}"
            of_class[kind] += 1
        name = watch.names[id(module)]
        open_calls.append(name)
        watch.paths[name] = paths[id(module)]
        watch.calls.setdefault(name, list(open_calls))
        own = (tuple(parameter.shape) for parameter in module.parameters(recurse=False))
        watch.parameters.setdefault(name, [shape for each in own for shape in (each, each[::-1])])

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        name = open_calls.pop()
        leaf = not any(True for _ in module.children())
        seen = [tuple(each.shape) for each in (*inputs, output) if isinstance(each, Tensor)] if leaf else []
        watch.activations.setdefault(name, []).extend(shape for shape in seen if len(shape) > 1)

    handles = [
        handle
        for root in roots
        for module in root.modules()
        for handle in (module.register_forward_pre_hook(before), module.register_forward_hook(after))
    ]
    try:
        yield watch
    finally:
        for handle in handles:
            handle.remove()


# What containers do themselves, in the words of their forward: cat of both branches; mean, and the sum with the words' part.
OWN_WORK: Final[dict[str, list[Shape]]] = {
    "Branches_0": [(BATCH, 7, 16, 16), (BATCH, 11, 16, 16), (BATCH, 18, 16, 16)],
    "Network_0": [(BATCH, 29, 8, 8), (BATCH, 29, 1, 1), (BATCH, 29)],
}

CASES: Final[dict[str, Callable[[], Network]]] = {
    "eager": lambda: Network("kept"),
    "checkpoint": lambda: Network("non-reentrant"),
    "checkpoint_reentrant": lambda: Network("reentrant"),
    "compiled": lambda: Network("kept"),
}


class Examples(torch.utils.data.Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Images, words and labels, made up."""

    def __len__(self) -> int:
        """Enough for every step that is recorded."""
        return 32 * BATCH

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """The example at `index`, the same each time."""
        image = torch.linspace(-1, 1, 3 * 16 * 16).reshape(3, 16, 16) * (index + 1)
        return image, torch.tensor(index % WORDS), torch.tensor(index % CLASSES)
