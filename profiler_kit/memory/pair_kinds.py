"""Pairs of linear layers, grouped by kind, with the ways to shard them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target
from profiler_kit.memory.linear_pairs import LinearPair, find_pairs, hides_layers, observed
from profiler_kit.memory.tensor_styles import Style
from profiler_kit.meta.copies import copy_with_tensors
from profiler_kit.records.counts import ReplicatedModules

Run = Callable[[Target], Tensor]  # a forward pass of a target; returns the loss
Attribute = tuple[str, str]  # of a module: its path, relative to the parent of the pair, and the name
MAX_ATTRIBUTES: Final = 4  # with several values in question, all subsets are tried
SEQUENCE_DIMENSIONS: Final = (2, 1)  # of the heads in the input of a norm: before and after the usual transposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A way to shard pairs: the attributes that are divided, and whether the input of the parent is prepared once."""

    divided: tuple[Attribute, ...]
    prepares_input: bool


@dataclass(slots=True, eq=False)
class PairKind:
    """Equal pairs of several blocks, which share a decision. `attempts` are those that did not fail; the first is tried."""

    pairs: list[LinearPair]
    attempts: list[Attempt]
    norms: dict[str, Style]  # by path relative to the parent
    failure: ReplicatedModules | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether an attempt is left."""
        return bool(self.attempts)

    def fail(self, reason: str, where: str | None = None) -> None:
        """Go on to the next attempt. The first failure is the reason that is shown if all fail."""
        attempt = self.attempts.pop(0)
        if self.failure is None and not attempt.prepares_input:  # each is repeated without
            self.failure = self._failed(reason, where)

    def give_up(self, reason: str) -> None:
        """Leave the pairs replicated."""
        self.attempts.clear()
        self.failure = self._failed(reason, None)

    def _failed(self, reason: str, where: str | None) -> ReplicatedModules:
        paths = tuple(path for pair in self.pairs for path in (*pair.columns, pair.row))
        return ReplicatedModules(paths=paths, reason=reason, where=where)


def find_kinds(target: Target, ranks: int, run: Run) -> tuple[tuple[LinearPair, ...], list[PairKind]]:
    """All pairs of the model of `target`, and their kinds with the attempts for `ranks`. `run` runs the model forward.

    Raises:
        TargetError: autograd records no graph of the layers.
    """

    def with_gradient(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            return tensor
        differentiable = tensor.is_floating_point() or tensor.is_complex()
        return nn.Parameter(tensor.detach(), requires_grad=differentiable)

    # frozen layers must be in the graph, too
    copy = target.replaced(lambda model: copy_with_tensors(model, with_gradient), target.batch, target.device)
    with observed(copy.model) as observation:
        loss = run(copy)
    pairs = find_pairs(copy.model, observation, loss)
    if not pairs and hides_layers(observation):
        raise TargetError(
            "tensor parallelism finds layers in the graph of autograd, and those of this model run without one",
            where=target.spec.spec,
            hint="use checkpoint(..., use_reentrant=False), and no torch.no_grad() around layers",
        )
    kinds: dict[Any, PairKind] = {}
    for pair in pairs:
        attributes = _head_attributes(copy.model, pair)
        key = _key(copy.model, pair, attributes)
        if key in kinds:
            kinds[key].pairs.append(pair)
        else:
            kinds[key] = PairKind([pair], list(_attempts(attributes, pair.shared_input is not None)), {})
    for kind in kinds.values():
        _check(copy.model, kind, observation.shapes, ranks)
    return pairs, list(kinds.values())


def _key(model: nn.Module, pair: LinearPair, attributes: dict[Attribute, int]) -> object:
    def relative(path: str) -> str:
        return path.removeprefix(f"{pair.parent}.") if pair.parent else path

    layers = [linear(model, path) for path in (*pair.columns, pair.row)]
    return (
        type(model.get_submodule(pair.parent)),
        tuple((relative(path), layer.in_features, layer.out_features)
              for path, layer in zip((*pair.columns, pair.row), layers, strict=True)),
        pair.heads, tuple(relative(path) for path in pair.between), pair.shared_input, pair.arguments, tuple(attributes.items()),
    )  # fmt: skip


def sizes_of(model: nn.Module, pair: LinearPair) -> tuple[int, ...]:
    """The numbers that the ranks must divide: heads, or the width of results without heads, and the row's inputs."""
    columns = (
        heads[0] if heads is not None else linear(model, path).out_features
        for path, heads in zip(pair.columns, pair.heads, strict=True)
    )
    return (*columns, linear(model, pair.row).in_features)


def linear(model: nn.Module, path: str) -> nn.Linear:
    """The linear layer at `path`."""
    layer = model.get_submodule(path)
    assert isinstance(layer, nn.Linear)  # the layers of pairs are
    return layer


def _head_attributes(model: nn.Module, pair: LinearPair) -> dict[Attribute, int]:
    """The attributes that hold the number of heads of a column, or the width of all heads."""
    modules = {pair.parent}
    for path in (*pair.columns, pair.row):
        while len(path) > len(pair.parent):
            path = path.rpartition(".")[0]
            modules.add(path)
    counts = {heads[0] for heads in pair.heads if heads is not None}
    widths = {linear(model, pair.row).in_features} if counts else set()
    attributes: dict[Attribute, int] = {}
    for values in (counts, widths):  # the number of heads first
        for path in sorted(modules):
            relative = path.removeprefix(pair.parent).removeprefix(".")
            for name, value in vars(model.get_submodule(path)).items():
                if type(value) is int and value in values:
                    attributes.setdefault((relative, name), value)
    return attributes


def _attempts(attributes: dict[Attribute, int], has_shared_input: bool) -> Iterator[Attempt]:
    """The attempts, the likely first: no attribute is divided, all are, some are."""
    likely = list(attributes)[:MAX_ATTRIBUTES]
    for count in (0, *range(len(likely), 0, -1)):
        for subset in itertools.combinations(likely, count):
            if has_shared_input:
                yield Attempt(divided=subset, prepares_input=True)
            yield Attempt(divided=subset, prepares_input=False)


def _check(model: nn.Module, kind: PairKind, shapes: dict[str, tuple[int, ...]], ranks: int) -> None:
    """Give up a kind that `ranks` does not divide, or between whose layers parameters are used that no style covers."""
    pair = kind.pairs[0]
    indivisible = sorted({size for size in sizes_of(model, pair) if size % ranks})
    if indivisible:
        heads = {heads[0] for heads in pair.heads if heads is not None}
        sizes = [size for size in indivisible if size in heads] or indivisible
        largest = math.gcd(*sizes_of(model, pair))
        names = f"{' and '.join(map(str, sizes))} {'heads' if heads else 'features'}"
        kind.give_up(f"{ranks} ranks do not divide {names}; the largest number that does is {largest}")
        return
    splits = {heads for heads in pair.heads if heads is not None}
    for path in pair.between:
        owner, _, _ = path.rpartition(".")
        parameter = model.get_parameter(path)
        shape = shapes.get(owner, ())
        dimension = next((d for d in SEQUENCE_DIMENSIONS if len(shape) == 4 and (shape[d], shape[-1]) in splits), None)
        inside = owner.startswith(f"{pair.parent}.") or not pair.parent
        if parameter.dim() != 1 or dimension is None or not inside or parameter.numel() != shape[-1]:
            kind.give_up(f"the parameter {path} is used between the layers")
            return
        relative = owner.removeprefix(f"{pair.parent}.") if pair.parent else owner
        kind.norms[relative] = Style(name="SequenceParallel", dimension=dimension)


def joined(parent: str, path: str) -> str:
    """The path of the module that has `path` in the module `parent`."""
    return f"{parent}.{path}" if parent and path else parent or path
