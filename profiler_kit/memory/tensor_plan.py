"""A plan of tensor parallelism for any model: which linear layers are sharded by outputs and which by inputs.

The candidates are the pairs of `linear_pairs`. Each is tried: PyTorch's own ``parallelize_module`` shards a copy of the model,
and the copy runs forward on tensors without data. Code that views the results of the sharded layers as all heads fails then.
Scripts divide the number of heads by the ranks, so attributes that hold it are divided, and the run is repeated. A pair that no
attempt makes work stays replicated.

Where several columns take the input of their parent, it is prepared once (``PrepareModuleInput``), as the scripts of PyTorch do:
its gradients are then reduced once, and not for each column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target
from profiler_kit.loading.tensor_kinds import StepError, as_step_errors
from profiler_kit.memory.linear_pairs import HeadViews
from profiler_kit.memory.pair_kinds import PairKind, Run, find_kinds, joined, sizes_of
from profiler_kit.memory.sharded_operators import PairOperators, mixing_operator
from profiler_kit.memory.sharding_record import Vocabulary, other_modules, sharding_of
from profiler_kit.memory.tensor_styles import TensorSharding
from profiler_kit.meta.copies import copy_with_tensors
from profiler_kit.user_code.locations import one_line_message, user_place


def plan_sharding(target: Target, mesh: Any, run: Run) -> TensorSharding:
    """The sharding of the model of `target`, which has tensors without data, over `mesh`. `target` stays as it is.

    Raises:
        TargetError: nothing can be sharded.
        StepError: the model does not run.
    """
    ranks = mesh.size()
    pairs, kinds = find_kinds(target, ranks, run)
    largest = math.gcd(*(number for pair in pairs for number in sizes_of(target.model, pair)))
    _verify(target, mesh, run, kinds)
    if not any(kind.is_sharded for kind in kinds):
        raise _nothing_to_shard(target, ranks, kinds, largest)
    return sharding_of(target.model, kinds, largest, vocabulary=_find_vocabulary(target, mesh, run, kinds))


def _find_vocabulary(target: Target, mesh: Any, run: Run, kinds: Sequence[PairKind]) -> Vocabulary | None:
    """The vocabulary of `target`, if it has one embedding and one head of equal size, and runs with both sharded."""
    model = target.model
    paired = {path for kind in kinds for pair in kind.pairs for path in (*pair.columns, pair.row)}
    embeddings = {path: module for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    vocabularies = [
        Vocabulary(embedding=name, head=path, is_tied=layer.weight is embedding.weight)
        for path, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and path not in paired
        for name, embedding in embeddings.items()
        if layer.weight.shape == embedding.weight.shape
    ]
    if len(vocabularies) != 1:
        return None
    vocabulary, size = vocabularies[0], embeddings[vocabularies[0].embedding].num_embeddings
    if size % mesh.size():
        return vocabulary.failed(f"{mesh.size()} ranks do not divide a vocabulary of {size}")
    copy = target.replaced(lambda model: copy_with_tensors(model, _unchanged), target.batch, target.device)
    try:
        with as_step_errors("forward"):
            sharding_of(copy.model, kinds, 1, first_pairs=True, vocabulary=vocabulary).apply(copy.model, mesh)
        run(copy)
    except StepError as error:
        message = f"the model does not run with them sharded: {one_line_message(error.error)}"
        return vocabulary.failed(message, user_place(error.error))
    return vocabulary


def _verify(target: Target, mesh: Any, run: Run, kinds: Sequence[PairKind]) -> None:
    """Run the model under the current attempts, with the first pair of each kind sharded, until no pair fails."""
    whole = PairOperators()
    copy = target.replaced(lambda model: copy_with_tensors(model, _unchanged), target.batch, target.device)
    for kind in kinds:
        _watch_operators(copy.model, kind, whole)
    with whole:
        run(copy)
    while any(kind.is_sharded for kind in kinds):
        copy = target.replaced(lambda model: copy_with_tensors(model, _unchanged), target.batch, target.device)
        open_kinds: list[PairKind] = []
        done: list[PairKind] = []
        applied: PairKind | None = None
        views, operators = HeadViews(), PairOperators()
        try:
            for kind in kinds:
                if kind.is_sharded:
                    applied = kind
                    with as_step_errors("forward"):
                        sharding_of(copy.model, [kind], 1, first_pairs=True).apply(copy.model, mesh)
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


def _difference(
    kind: PairKind, whole: PairOperators, sharded: PairOperators, views: HeadViews, ranks: int
) -> str | None:
    """Why the sharded pair does not compute the same as the whole one; None if it does."""
    pair = kind.pairs[0]
    mixing = mixing_operator(whole.operators[pair.row], sharded.operators[pair.row])
    if mixing is not None:
        return f"{mixing} computes over the dimension that would be sharded"
    if _is_split_wrongly(kind, views, ranks):
        return "the sharded results are not viewed as whole heads"
    return None


def _watch_operators(model: nn.Module, kind: PairKind, operators: PairOperators) -> None:
    pair = kind.pairs[0]
    operators.watch(model, pair.columns, [joined(pair.parent, path) for path in kind.norms], pair.row)


def _watch(
    model: nn.Module, kind: PairKind, open_kinds: list[PairKind], done: list[PairKind], views: HeadViews
) -> None:
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


def _is_split_wrongly(kind: PairKind, views: HeadViews, ranks: int) -> bool:
    pair = kind.pairs[0]
    return any(
        heads is not None
        and heads[0] > ranks  # the view of a single head is not seen
        and views.heads.get(path) != (heads[0] // ranks, heads[1])
        for path, heads in zip(pair.columns, pair.heads, strict=True)
    )


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _nothing_to_shard(target: Target, ranks: int, kinds: Sequence[PairKind], largest: int) -> TargetError:
    fsdp2 = f"--parallel fsdp2={ranks}, which shards any model"
    failures = [kind.failure for kind in kinds if kind.failure is not None]
    if not failures:
        reasons = [other.reason for other in other_modules(target.model, set()) if other.has_own_weights]
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
