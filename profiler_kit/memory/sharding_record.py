"""The plan of tensor parallelism for pairs of layers: what is done to the model, and the record of it."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Final, TypeVar

from torch import nn

from profiler_kit.memory.linear_pairs import LinearPair
from profiler_kit.memory.pair_kinds import PairKind, joined, linear
from profiler_kit.memory.tensor_styles import COLUMN, EMBEDDING, HEAD, ROW, Style, TensorSharding
from profiler_kit.records.counts import DividedAttribute, ReplicatedModules, ShardedModules, TensorPlan

NOTABLE_SHARE: Final = 0.05  # of the parameters, from which a class without linear layers is mentioned
NUMBER: Final = re.compile(r"(^|\.)\d+(?=\.|$)")  # of a block in a path
MATRIX_DIMENSIONS: Final = 2
Label = TypeVar("Label", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """An embedding, and the linear layer with as many outputs as the embedding has rows. `failure`: why they stay replicated."""

    embedding: str
    head: str
    is_tied: bool
    failure: ReplicatedModules | None = None

    def failed(self, reason: str, where: str | None = None) -> Vocabulary:
        """This vocabulary, left replicated."""
        return replace(self, failure=ReplicatedModules(paths=(self.embedding, self.head), reason=reason, where=where))


def sharding_of(
    model: nn.Module,
    kinds: Sequence[PairKind],
    largest: int,
    *,
    first_pairs: bool = False,
    vocabulary: Vocabulary | None = None,
) -> TensorSharding:
    """The sharding of `model` by the current attempts of `kinds`; with `first_pairs`, of one pair of each kind."""
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
            styles += [(joined(pair.parent, path), style) for path, style in kind.norms.items()]
            styles.append((pair.row, ROW))
            for path, name in kind.attempts[0].divided:
                module = joined(pair.parent, path)
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
        replicated=(*failures, *other_modules(model, planned)),
        reordered=tuple(fused),
        tied=tuple(f"{path}.weight = {other}.weight" for path, other in tied),
        largest=largest,
    )
    return TensorSharding(record=record, styles=tuple(styles), divided=tuple(divided), tied=tuple(tied))


def _prepared_input(pair: LinearPair) -> Style:
    if isinstance(pair.shared_input, str):
        return Style(name="PrepareModuleInput", names=(pair.shared_input,))
    positions = tuple(position == pair.shared_input for position in range(pair.arguments))
    return Style(name="PrepareModuleInput", positions=positions)


def _is_fused(model: nn.Module, pair: LinearPair) -> bool:
    """Whether one column computes several projections one after the other: all queries, all keys, all values."""
    width, heads = linear(model, pair.columns[0]).out_features, pair.heads[0]
    by_head = heads is not None and math.prod(heads) == width  # query, key and value of the first head, of the second
    return len(pair.columns) == 1 and not by_head and width > linear(model, pair.row).in_features


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


def other_modules(model: nn.Module, planned: set[str]) -> Iterator[ReplicatedModules]:
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
        yield ReplicatedModules(paths=tuple(paths), reason=reason, has_own_weights=True)
    mentioned = set(itertools.chain(*notable.values()))
    rest = tuple(path for path in layers if path.rpartition(".")[0] not in mentioned)  # their owner uses their weights
    if rest:
        yield ReplicatedModules(paths=rest, reason="not in a pair of linear layers that returns to its width")
