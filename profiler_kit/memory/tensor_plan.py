"""A plan of tensor parallelism for any model: which linear layers are sharded by outputs and which by inputs.

The candidates are the pairs of `linear_pairs`. Each is tried: PyTorch's own ``parallelize_module`` shards a copy of the model,
and the copy runs forward on tensors without data. Code that views the results of the sharded layers as all heads fails then.
Scripts divide the number of heads by the ranks, so attributes that hold it are divided, and the run is repeated. A pair that no
attempt makes work stays replicated.

Where several columns take the input of their parent, it is prepared once (``PrepareModuleInput``), as the scripts of PyTorch do:
its gradients are then reduced once, and not for each column.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any, Final, TypeVar

from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target
from profiler_kit.loading.copies import copy_with_tensors
from profiler_kit.loading.tensor_kinds import StepError, as_step_errors
from profiler_kit.loading.user_locations import one_line_message, user_place
from profiler_kit.memory.linear_pairs import HeadViews, LinearPair, find_pairs, hides_layers, observed
from profiler_kit.memory.sharded_operators import PairOperators, mixing_operator
from profiler_kit.memory.tensor_styles import COLUMN, EMBEDDING, HEAD, ROW, Style, TensorSharding
from profiler_kit.records.counts import DividedAttribute, ReplicatedModules, ShardedModules, TensorPlan

Run = Callable[[Target], Tensor]  # a forward pass of a target; returns the loss
Attribute = tuple[str, str]  # of a module: its path, relative to the parent of the pair, and the name
MAX_ATTRIBUTES: Final = 4  # with several values in question, all subsets are tried
NOTABLE_SHARE: Final = 0.05  # of the parameters, from which a class without linear layers is mentioned
NUMBER: Final = re.compile(r"(^|\.)\d+(?=\.|$)")  # of a block in a path
MATRIX_DIMENSIONS: Final = 2
SEQUENCE_DIMENSIONS: Final = (2, 1)  # of the heads in the input of a norm: before and after the usual transposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A way to shard pairs: the attributes that are divided, and whether the input of the parent is prepared once."""

    divided: tuple[Attribute, ...]
    prepares_input: bool


@dataclass(slots=True, eq=False)
class _Kind:
    """Equal pairs of several blocks, which share a decision. `attempts` are those that did not fail; the first is tried."""

    pairs: list[LinearPair]
    attempts: list[Attempt]
    norms: dict[str, Style]  # by path relative to the parent
    failure: ReplicatedModules | None = None

    @property
    def is_sharded(self) -> bool:
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


def plan_sharding(target: Target, mesh: Any, run: Run) -> TensorSharding:
    """The sharding of the model of `target`, which has tensors without data, over `mesh`. `target` stays as it is.

    Raises:
        TargetError: nothing can be sharded.
        StepError: the model does not run.
    """
    ranks = mesh.size()
    pairs, kinds = _find_kinds(target, ranks, run)
    largest = math.gcd(*(number for pair in pairs for number in _sizes(target.model, pair)))
    _verify(target, mesh, run, kinds)
    if not any(kind.is_sharded for kind in kinds):
        raise _nothing_to_shard(target, ranks, kinds, largest)
    return _sharding(target.model, kinds, largest, vocabulary=_find_vocabulary(target, mesh, run, kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    """An embedding, and the linear layer with as many outputs as the embedding has rows. `failure`: why they stay replicated."""

    embedding: str
    head: str
    is_tied: bool
    failure: ReplicatedModules | None = None

    def failed(self, reason: str, where: str | None = None) -> _Vocabulary:
        return replace(self, failure=ReplicatedModules(paths=(self.embedding, self.head), reason=reason, where=where))


def _find_vocabulary(target: Target, mesh: Any, run: Run, kinds: Sequence[_Kind]) -> _Vocabulary | None:
    """The vocabulary of `target`, if it has one embedding and one head of equal size, and runs with both sharded."""
    model = target.model
    paired = {path for kind in kinds for pair in kind.pairs for path in (*pair.columns, pair.row)}
    embeddings = {path: module for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    found = [
        _Vocabulary(embedding=name, head=path, is_tied=layer.weight is embedding.weight)
        for path, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and path not in paired
        for name, embedding in embeddings.items()
        if layer.weight.shape == embedding.weight.shape
    ]
    if len(found) != 1:
        return None
    vocabulary, size = found[0], embeddings[found[0].embedding].num_embeddings
    if size % mesh.size():
        return vocabulary.failed(f"{mesh.size()} ranks do not divide a vocabulary of {size}")
    copy = target.replaced(lambda model: copy_with_tensors(model, _same), target.batch, target.device)
    try:
        with as_step_errors("forward"):
            _sharding(copy.model, kinds, 1, first_pairs=True, vocabulary=vocabulary).apply(copy.model, mesh)
        run(copy)
    except StepError as error:
        message = f"the model does not run with them sharded: {one_line_message(error.error)}"
        return vocabulary.failed(message, user_place(error.error))
    return vocabulary


def _find_kinds(target: Target, ranks: int, run: Run) -> tuple[tuple[LinearPair, ...], list[_Kind]]:
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
    kinds: dict[Any, _Kind] = {}
    for pair in pairs:
        attributes = _head_attributes(copy.model, pair)
        key = _key(copy.model, pair, attributes)
        if key in kinds:
            kinds[key].pairs.append(pair)
        else:
            kinds[key] = _Kind([pair], list(_attempts(attributes, pair.shared_input is not None)), {})
    for kind in kinds.values():
        _check(copy.model, kind, observation.shapes, ranks)
    return pairs, list(kinds.values())


def _key(model: nn.Module, pair: LinearPair, attributes: dict[Attribute, int]) -> object:
    def relative(path: str) -> str:
        return path.removeprefix(f"{pair.parent}.") if pair.parent else path

    layers = [_linear(model, path) for path in (*pair.columns, pair.row)]
    return (
        type(model.get_submodule(pair.parent)),
        tuple((relative(path), layer.in_features, layer.out_features)
              for path, layer in zip((*pair.columns, pair.row), layers, strict=True)),
        pair.heads, tuple(relative(path) for path in pair.between), pair.shared_input, pair.arguments, tuple(attributes.items()),
    )  # fmt: skip


def _sizes(model: nn.Module, pair: LinearPair) -> tuple[int, ...]:
    """The numbers that the ranks must divide: heads, or the width of results without heads, and the row's inputs."""
    columns = (
        heads[0] if heads is not None else _linear(model, path).out_features
        for path, heads in zip(pair.columns, pair.heads, strict=True)
    )
    return (*columns, _linear(model, pair.row).in_features)


def _linear(model: nn.Module, path: str) -> nn.Linear:
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
    widths = {_linear(model, pair.row).in_features} if counts else set()
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


def _check(model: nn.Module, kind: _Kind, shapes: dict[str, tuple[int, ...]], ranks: int) -> None:
    """Give up a kind that `ranks` does not divide, or between whose layers parameters are used that no style covers."""
    pair = kind.pairs[0]
    indivisible = sorted({size for size in _sizes(model, pair) if size % ranks})
    if indivisible:
        heads = {heads[0] for heads in pair.heads if heads is not None}
        sizes = [size for size in indivisible if size in heads] or indivisible
        largest = math.gcd(*_sizes(model, pair))
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


def _verify(target: Target, mesh: Any, run: Run, kinds: Sequence[_Kind]) -> None:
    """Run the model under the current attempts, with the first pair of each kind sharded, until no pair fails."""
    whole = PairOperators()
    copy = target.replaced(lambda model: copy_with_tensors(model, _same), target.batch, target.device)
    for kind in kinds:
        _watch_operators(copy.model, kind, whole)
    with whole:
        run(copy)
    while any(kind.is_sharded for kind in kinds):
        copy = target.replaced(lambda model: copy_with_tensors(model, _same), target.batch, target.device)
        open_kinds: list[_Kind] = []
        done: list[_Kind] = []
        applied: _Kind | None = None
        views, operators = HeadViews(), PairOperators()
        try:
            for kind in kinds:
                if kind.is_sharded:
                    applied = kind
                    with as_step_errors("forward"):
                        _sharding(copy.model, [kind], 1, first_pairs=True).apply(copy.model, mesh)
                        _watch(copy.model, kind, open_kinds, done, views)
                        _watch_operators(copy.model, kind, operators)
            applied = None
            with operators, views:
                run(copy)
        except StepError as error:
            # after the last pair: its columns' results are used outside of it, too
            failed = applied or next(reversed(open_kinds or done), None)
            if failed is None:
                raise
            message = f"the code between the layers needs their full width: {one_line_message(error.error)}"
            failed.fail(message, user_place(error.error))
            continue
        wrong = [(kind, _difference(kind, whole, operators, views, mesh.size())) for kind in kinds if kind.is_sharded]
        for kind, difference in wrong:
            if difference is not None:
                kind.fail(difference)
        if all(difference is None for _, difference in wrong):
            return


def _difference(kind: _Kind, whole: PairOperators, sharded: PairOperators, views: HeadViews, ranks: int) -> str | None:
    """Why the sharded pair does not compute the same as the whole one; None if it does."""
    pair = kind.pairs[0]
    mixing = mixing_operator(whole.operators[pair.row], sharded.operators[pair.row])
    if mixing is not None:
        return f"{mixing} computes over the dimension that would be sharded"
    if _is_split_wrongly(kind, views, ranks):
        return "the sharded results are not viewed as whole heads"
    return None


def _watch_operators(model: nn.Module, kind: _Kind, operators: PairOperators) -> None:
    pair = kind.pairs[0]
    operators.watch(model, pair.columns, [_joined(pair.parent, path) for path in kind.norms], pair.row)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _watch(model: nn.Module, kind: _Kind, open_kinds: list[_Kind], done: list[_Kind], views: HeadViews) -> None:
    """Note while `model` runs which kind of pair is being computed, and how results of its columns are viewed."""

    def enter(module: nn.Module, args: Any) -> None:
        open_kinds.append(kind)

    def leave(module: nn.Module, args: Any, result: Any) -> None:
        open_kinds[:] = [other for other in open_kinds if other is not kind]
        done.append(kind)

    def watch(path: str) -> Any:
        return lambda module, args, result: views.watch(path, result)

    pair = kind.pairs[0]
    if kind.attempts[0].prepares_input:
        model.get_submodule(pair.parent).register_forward_pre_hook(enter)
    for path in pair.columns:
        model.get_submodule(path).register_forward_pre_hook(enter)
        model.get_submodule(path).register_forward_hook(watch(path))
    model.get_submodule(pair.row).register_forward_hook(leave)


def _is_split_wrongly(kind: _Kind, views: HeadViews, ranks: int) -> bool:
    pair = kind.pairs[0]
    return any(
        heads is not None
        and heads[0] > ranks  # the view of a single head is not seen
        and views.heads.get(path) != (heads[0] // ranks, heads[1])
        for path, heads in zip(pair.columns, pair.heads, strict=True)
    )


def _sharding(
    model: nn.Module,
    kinds: Sequence[_Kind],
    largest: int,
    *,
    first_pairs: bool = False,
    vocabulary: _Vocabulary | None = None,
) -> TensorSharding:
    styles: list[tuple[str, Style]] = []
    failures = [kind.failure for kind in kinds if kind.failure is not None and not kind.is_sharded]
    tied: list[tuple[str, str]] = []
    if vocabulary is not None and vocabulary.failure is not None:
        failures.append(vocabulary.failure)
    elif vocabulary is not None:
        styles += [(vocabulary.embedding, EMBEDDING), (vocabulary.head, HEAD)]
        tied += [(vocabulary.head, vocabulary.embedding)] if vocabulary.is_tied else []
    divided: dict[tuple[str, str], int] = {}
    reordered: list[str] = []
    for kind in kinds:
        for pair in kind.pairs[: 1 if first_pairs else None] if kind.is_sharded else ():
            if kind.attempts[0].prepares_input:
                styles.append((pair.parent, _prepared_input(pair)))
            styles += [(path, COLUMN) for path in pair.columns]
            styles += [(_joined(pair.parent, path), style) for path, style in kind.norms.items()]
            styles.append((pair.row, ROW))
            for path, name in kind.attempts[0].divided:
                module = _joined(pair.parent, path)
                divided[module, name] = getattr(model.get_submodule(module), name)
            if _is_fused(model, pair):
                reordered += pair.columns
    sharded = [
        ShardedModules(pattern=pattern, modules=count, style=style.name, arguments=style.arguments)
        for style, pattern, count in _patterns([(style, path) for path, style in styles], model)
    ]
    attributes = [
        DividedAttribute(pattern=f"{pattern}.{name}" if pattern else name, value=value)
        for (name, value), pattern, _ in _patterns([((n, v), path) for (path, n), v in divided.items()], model)
    ]
    fused = [pattern for _, pattern, _ in _patterns([("", path) for path in reordered], model)]
    planned = {path for path, _ in styles} | {path for failure in failures for path in failure.paths}
    record = TensorPlan(
        sharded=tuple(sharded),
        divided=tuple(attributes),
        replicated=(*failures, *_others(model, planned)),
        reordered=tuple(fused),
        tied=tuple(f"{path}.weight = {other}.weight" for path, other in tied),
        largest=largest,
    )
    return TensorSharding(record=record, styles=tuple(styles), divided=tuple(divided), tied=tuple(tied))


def _joined(parent: str, path: str) -> str:
    return f"{parent}.{path}" if parent and path else parent or path


def _prepared_input(pair: LinearPair) -> Style:
    if isinstance(pair.shared_input, str):
        return Style(name="PrepareModuleInput", names=(pair.shared_input,))
    positions = tuple(position == pair.shared_input for position in range(pair.arguments))
    return Style(name="PrepareModuleInput", positions=positions)


def _is_fused(model: nn.Module, pair: LinearPair) -> bool:
    """Whether one column computes several projections one after the other: all queries, all keys, all values."""
    width, heads = _linear(model, pair.columns[0]).out_features, pair.heads[0]
    by_head = heads is not None and math.prod(heads) == width  # query, key and value of the first head, of the second
    return len(pair.columns) == 1 and not by_head and width > _linear(model, pair.row).in_features


Label = TypeVar("Label", bound=Hashable)


def _patterns(labeled: Iterable[tuple[Label, str]], model: nn.Module) -> list[tuple[Label, str, int]]:
    """Patterns of the paths with the same label, with the number of paths, in the order of the first path.

    A pattern has ``*`` for the first number of the paths, if it matches these paths of `model` alone.
    """
    groups: dict[tuple[Label, str], list[str]] = defaultdict(list)
    for label, path in labeled:
        groups[label, NUMBER.sub(r"\1*", path, count=1)].append(path)
    everything = [path for path, _ in model.named_modules()]
    patterns: list[tuple[Label, str, int]] = []
    for (label, pattern), paths in groups.items():
        if len(paths) == sum(_matches(path, pattern) for path in everything):
            patterns.append((label, pattern, len(paths)))
        else:
            patterns += [(label, path, 1) for path in paths]
    return patterns


def _matches(path: str, pattern: str) -> bool:
    names, tokens = path.split("."), pattern.split(".")
    return len(names) == len(tokens) and all(map(fnmatch, names, tokens))


def _others(model: nn.Module, planned: set[str]) -> Iterator[ReplicatedModules]:
    """Modules in no pair: linear layers, embeddings, and classes with many weights of their own."""
    total = sum(parameter.numel() for parameter in model.parameters())
    layers: list[str] = []
    owners: dict[str, list[str]] = defaultdict(list)
    numbers: dict[str, int] = defaultdict(int)
    for path, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            if path not in planned:
                layers.append(path)
            continue
        name = type(module).__name__
        matrices = sum(p.numel() for p in module.parameters(recurse=False) if p.dim() == MATRIX_DIMENSIONS)
        if matrices and path not in planned:
            owners[name].append(path)
            numbers[name] += matrices
    notable = {name: paths for name, paths in owners.items() if numbers[name] >= NOTABLE_SHARE * total}
    for name, paths in notable.items():
        reason = f"parallelize_module shards nn.Linear and nn.Embedding, and {name} has weights of its own"
        yield ReplicatedModules(paths=tuple(paths), reason=reason)
    mentioned = set(itertools.chain(*notable.values()))
    rest = tuple(path for path in layers if path.rpartition(".")[0] not in mentioned)  # their owner uses their weights
    if rest:
        yield ReplicatedModules(paths=rest, reason="not in a pair of linear layers that returns to its width")


def _nothing_to_shard(target: Target, ranks: int, kinds: Sequence[_Kind], largest: int) -> TargetError:
    fsdp2 = f"--parallel fsdp2={ranks}, which shards any model"
    failures = [kind.failure for kind in kinds if kind.failure is not None]
    if not failures:
        reasons = [other.reason for other in _others(target.model, set()) if other.reason.startswith("parallelize")]
        reason = (
            "; ".join(reasons) or "it has no linear layers whose results go to one other that returns to their width"
        )
        return TargetError(
            f"nothing in this model can be sharded by tensor parallelism: {reason}",
            where=target.spec.spec,
            hint=f"use {fsdp2}",
        )
    first = failures[0]
    return TargetError(
        f"nothing in this model can be sharded by tensor parallelism over {ranks} ranks: {first.paths[0]}: {first.reason}",
        where=first.where or target.spec.spec,
        hint=f"use --parallel tp={largest}" if largest > 1 and largest % ranks else f"use {fsdp2}",
    )
