"""Pairs of linear layers that tensor parallelism can shard, found in the graph that autograd records.

In a pair, the results of some layers (`columns`) are used by one other layer (`row`) and by nothing else: up and gate before
down in an MLP, query, key and value before output in attention. If the columns are sharded by their outputs and the row by its
inputs, the code between them runs on a part of the width, and one all-reduce adds up the results of the row.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tag, Tensor, nn, ops
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.memory.tensor_styles import SHARDED

VIEWS: Final = (ops.aten.view, ops.aten._unsafe_view)
Heads = tuple[int, int]  # their number, and the size of each


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPair:
    """Linear layers and the only layer that uses their results, by path, in the order of their calls.

    - `parent`: the innermost module that contains them.
    - `heads`: for each column, how its result is divided into heads; None for a result that is not.
    - `between`: the parameters that are used between columns and row, by path.
    - `shared_input`: the argument of `parent` that two or more columns take unchanged: a position or a name; None without one.
    - `arguments`: the number of positional arguments of `parent`.
    """

    parent: str
    columns: tuple[str, ...]
    row: str
    heads: tuple[Heads | None, ...]
    between: tuple[str, ...] = ()
    shared_input: int | str | None = None
    arguments: int = 0


class HeadViews(TorchDispatchMode):
    """Notes how the results of layers are viewed as heads: ``(batch, length, width)`` as ``(batch, length, heads, size)``.

    Pointwise operators may come before: the sum of a layer and its low-rank adapter is viewed as the results of both.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heads: dict[str, Heads] = {}
        self._results: dict[int, tuple[frozenset[str], Tensor]] = {}  # by storage; the tensor keeps it alive

    def watch(self, path: str, result: Tensor) -> None:
        """Note the first view of `result`, which the layer `path` returned."""
        self._watch(frozenset([path]), result)

    def _watch(self, paths: frozenset[str], result: Tensor) -> None:
        self._results[result.untyped_storage()._cdata] = (paths, result)

    def _layers(self, value: object) -> frozenset[str]:
        if not isinstance(value, Tensor):
            return frozenset()
        return self._results.get(value.untyped_storage()._cdata, (frozenset[str](), value))[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, SHARDED) for kind in types):
            return NotImplemented  # its local operators come next
        result = func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload):
            return result
        if func.overloadpacket in VIEWS and args[0].dim():
            for path in self._layers(args[0]) - self.heads.keys():
                heads = split_of(args[0].shape[-1], result.shape)
                if heads is not None:
                    self.heads[path] = heads
        elif Tag.pointwise in func.tags and isinstance(result, Tensor):
            paths = frozenset[str]().union(*map(self._layers, args))
            if paths:
                self._watch(paths, result)
        return result


def split_of(width: int, shape: Sequence[int]) -> Heads | None:
    """The last two sizes of `shape` if its last dimensions divide `width` into several; None otherwise."""
    for count in range(2, len(shape) + 1):
        if shape[-1] != width and math.prod(shape[-count:]) == width and min(shape[-2:]) > 1:
            return shape[-2], shape[-1]
    return None


@dataclass(slots=True)
class _Call:
    path: str
    layer: nn.Linear
    taken: Tensor
    result: Tensor
    input_node: Any
    output_node: Any


@dataclass(slots=True)
class Observation:
    """The calls of a model's linear layers in one forward pass, with the graph that connects them."""

    calls: list[_Call] = field(default_factory=list)
    arguments: dict[str, tuple[tuple[int, ...], dict[str, int]]] = field(default_factory=dict)  # ids, by module
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of the first input of modules with parameters
    views: HeadViews = field(default_factory=HeadViews)


@contextlib.contextmanager
def observed(model: nn.Module) -> Iterator[Observation]:
    """Observe the forward pass of `model` inside the block. All floating point parameters must require gradients."""
    observation = Observation()
    hooks = []

    def note_arguments(path: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            ids = tuple(id(value) for value in args), {name: id(value) for name, value in kwargs.items()}
            observation.arguments.setdefault(path, ids)

        return hook

    def note_shape(path: str) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            if args and isinstance(args[0], Tensor):
                observation.shapes.setdefault(path, tuple(args[0].shape))

        return hook

    def note_call(path: str) -> Any:
        def hook(module: nn.Linear, args: Any, result: Any) -> None:
            if args and isinstance(args[0], Tensor) and isinstance(result, Tensor):
                call = _Call(path, module, args[0], result, args[0].grad_fn, result.grad_fn)
                observation.calls.append(call)
                observation.views.watch(path, result)

        return hook

    for path, module in model.named_modules():
        if isinstance(module, nn.Linear):
            hooks.append(module.register_forward_hook(note_call(path)))
        elif next(module.children(), None) is None:
            hooks.append(module.register_forward_pre_hook(note_shape(path)))
        else:
            hooks.append(module.register_forward_pre_hook(note_arguments(path), with_kwargs=True))
    try:
        with observation.views:
            yield observation
    finally:
        for handle in hooks:
            handle.remove()


def find_pairs(model: nn.Module, observation: Observation, loss: Tensor) -> tuple[LinearPair, ...]:
    """The pairs of `model` whose row returns to the width of a column's input. `loss` is the end of the observed graph."""
    shared = _shared_weights(model)
    calls = observation.calls
    times = Counter(call.path for call in calls)
    parameters = {id(parameter): path for path, parameter in model.named_parameters()}
    nodes = {call.output_node: number for number, call in enumerate(calls) if call.output_node is not None}
    origins = _Origins(nodes, parameters)
    sources = [origins.of(call.input_node) for call in calls]
    users: dict[int, list[int]] = {}
    for user, (numbers, _) in enumerate([*sources, origins.of(loss.grad_fn)]):
        for number in numbers:
            users.setdefault(number, []).append(user)
    pairs: list[LinearPair] = []
    paired: set[int] = set()
    for row, (numbers, between) in enumerate(sources):
        columns = sorted(numbers)
        members = [calls[number] for number in (*columns, row)]
        width = calls[row].layer.out_features
        if (
            not columns
            or any(users[number] != [row] or number in paired for number in columns)
            or any(id(call.layer.weight) in shared for call in members)
            or width not in [call.layer.in_features for call in members[:-1]]
            or sum(call.layer.out_features for call in members[:-1]) < width  # a bottleneck, such as that of a gate
        ):
            continue
        paired.update((*columns, row))
        pairs.append(_pair(members, between, observation))
    # a layer that is called several times must have the same role in each call
    distinct = {(pair.columns, pair.row): pair for pair in reversed(pairs)}
    seen = Counter((pair.columns, pair.row) for pair in pairs)
    return tuple(
        pair
        for layers, pair in reversed(distinct.items())
        if all(times[path] == seen[layers] for path in (*pair.columns, pair.row))
    )


def hides_layers(observation: Observation) -> bool:
    """Whether layers ran where autograd records no graph."""
    return any(call.output_node is None for call in observation.calls)


def _pair(members: Sequence[_Call], between: Iterable[str], observation: Observation) -> LinearPair:
    columns, row = members[:-1], members[-1]
    parent = common_parent([call.path for call in members])
    positions, names = observation.arguments.get(parent, ((), {}))
    inputs = Counter(id(call.taken) for call in columns)
    places: list[tuple[int | str, int]] = [*enumerate(positions), *names.items()]
    shared = [place for place, value in places if inputs.get(value, 0) > 1]
    return LinearPair(
        parent=parent,
        columns=tuple(call.path for call in columns),
        row=row.path,
        heads=tuple(observation.views.heads.get(call.path) for call in columns),
        between=tuple(sorted(between)),
        shared_input=shared[0] if shared else None,
        arguments=len(positions),
    )


def common_parent(paths: Sequence[str]) -> str:
    """The path of the innermost module that contains all modules of `paths`."""
    names: list[str] = []
    for level in zip(*(path.split(".")[:-1] for path in paths), strict=False):
        if len(set(level)) > 1:
            break
        names.append(level[0])
    return ".".join(names)


def _shared_weights(model: nn.Module) -> set[int]:
    """The ids of weights that several modules own, such as tied embeddings."""
    owned = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())
    return {weight for weight, count in owned.items() if count > 1}


class _Origins:
    """From a node of autograd's graph, the nearest linear layers and the parameters on the way to them."""

    def __init__(self, layers: dict[Any, int], parameters: dict[int, str]) -> None:
        self._layers = layers
        self._parameters = parameters
        self._memo: dict[Any, tuple[frozenset[int], frozenset[str]]] = {}

    def of(self, node: Any) -> tuple[frozenset[int], frozenset[str]]:
        if node is None:
            return frozenset(), frozenset()
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self._memo:
                pending.pop()
                continue
            nearest = self._nearest(current)
            if nearest is None:
                before = [previous for previous, _ in current.next_functions if previous is not None]
                unknown = [previous for previous in before if previous not in self._memo]
                if unknown:
                    pending += unknown
                    continue
                nearest = (
                    frozenset().union(*(self._memo[previous][0] for previous in before)),
                    frozenset().union(*(self._memo[previous][1] for previous in before)),
                )
            self._memo[current] = nearest
            pending.pop()
        return self._memo[node]

    def _nearest(self, node: Any) -> tuple[frozenset[int], frozenset[str]] | None:
        if node in self._layers:
            return frozenset([self._layers[node]]), frozenset()
        variable = getattr(node, "variable", None)
        if variable is not None:
            path = self._parameters.get(id(variable))
            return frozenset(), frozenset([path] if path is not None else [])
        return None
