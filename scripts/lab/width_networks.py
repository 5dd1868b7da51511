"""Networks whose layers have unique sizes, and the ground truth of attribution by size.

A trace contains the sizes of operators' inputs. If no two modules share a size, sizes alone identify the module of forward and
backward work, without names or sequence numbers. This ground truth tests the attribution engine.
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
    """A custom autograd function: the profiler only knows its name."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """`x` times `weight`, by channel."""
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor]:
        """The gradients of both inputs."""
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
    """Two parallel convolutions of the same input."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(5, 7, 3, padding=1)
        self.right = nn.Conv2d(5, 11, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Both outputs, concatenated."""
        return torch.cat([self.left(x), self.right(x)], 1)


class Twice(nn.Module):
    """One layer, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(18, 18, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer twice."""
        twice: Tensor = self.shared(self.shared(x))
        return twice


class Network(nn.Module):
    """Classifies images and words: branches, a shared layer, a custom function, a block that may be checkpointed.

    `redo`: how backward gets the block's activations.
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
class ModuleShapes:
    """The names, shapes and nesting of one step's module calls.

    `names`: the modules' names in torch.profiler, in the order of first calls. `paths`: each name's module path. `calls`: the
    names of the enclosing calls, the module itself last.
    """

    names: dict[int, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)
    parameters: dict[str, list[Shape]] = field(default_factory=dict)
    activations: dict[str, list[Shape]] = field(default_factory=dict)

    def truth(self) -> dict[str, Any]:
        """The ground truth as JSON: each module's path, enclosing calls, and unique sizes."""
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
def watch_modules(*roots: nn.Module) -> Iterator[ModuleShapes]:
    """Record the module calls under `roots` while the block runs."""
    module_shapes = ModuleShapes()
    open_calls: list[str] = []
    of_class: dict[str, int] = {}
    paths = {id(module): path for root in roots for path, module in root.named_modules()}

    def before(module: nn.Module, inputs: Any) -> None:
        kind = type(module).__name__
        if id(module) not in module_shapes.names:
            module_shapes.names[id(module)] = f"{kind}_{of_class.setdefault(kind, 0)}"
            of_class[kind] += 1
        name = module_shapes.names[id(module)]
        open_calls.append(name)
        module_shapes.paths[name] = paths[id(module)]
        module_shapes.calls.setdefault(name, list(open_calls))
        own = (tuple(parameter.shape) for parameter in module.parameters(recurse=False))
        module_shapes.parameters.setdefault(name, [shape for each in own for shape in (each, each[::-1])])

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        name = open_calls.pop()
        leaf = not any(True for _ in module.children())
        shapes = [tuple(each.shape) for each in (*inputs, output) if isinstance(each, Tensor)] if leaf else []
        module_shapes.activations.setdefault(name, []).extend(shape for shape in shapes if len(shape) > 1)

    handles = [
        handle
        for root in roots
        for module in root.modules()
        for handle in (module.register_forward_pre_hook(before), module.register_forward_hook(after))
    ]
    try:
        yield module_shapes
    finally:
        for handle in handles:
            handle.remove()


# Operators in the containers' own forward: cat of both branches; mean, and the sum with the words' part.
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
    """Synthetic images, words and labels."""

    def __len__(self) -> int:
        """Enough examples for every recorded step."""
        return 32 * BATCH

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """The example at `index`, always the same."""
        image = torch.linspace(-1, 1, 3 * 16 * 16).reshape(3, 16, 16) * (index + 1)
        return image, torch.tensor(index % WORDS), torch.tensor(index % CLASSES)
