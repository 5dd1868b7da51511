"""Which affected layers follow from which edits: by the order of execution, and by how the sizes of outputs changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from profiler_kit.comparison.alignment import Pair
from profiler_kit.comparison.edits import Draft, EditSearch
from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.edits import FigureChanges
from profiler_kit.records.paths import parent_path

Ratio = tuple[Fraction, ...]

# A size that an upstream change halved may round: 15 and 29 are as 1 and 2 where 14 and 28 were.
ROUNDING: Final = 2


@dataclass(slots=True)
class Effects:
    """The edits that each affected pair follows from, and the ratio of the sizes of its outputs, where known.

    `causes`: by pair; an empty set where nothing was edited. `ratios`: b's sizes over a's, if they differ.
    """

    causes: dict[int, frozenset[int]] = field(default_factory=dict)
    ratios: dict[int, Ratio] = field(default_factory=dict)


def figure_changes(a: ModuleNode | None, b: ModuleNode | None) -> FigureChanges:
    """The figures of `b` minus those of `a`; a missing module has none."""
    before, after = _figures(a), _figures(b)
    return FigureChanges() if after == before else _difference(before, after)


def _figures(node: ModuleNode | None) -> tuple[int, ...]:
    if node is None:
        return (0,) * 8
    cost = node.step_cost
    return (
        cost.flops,
        node.forward.flops,
        node.backward.flops + node.recompute.flops,
        node.forward.macs,
        node.params,
        node.trainable_params,
        node.param_bytes,
        node.saved_bytes,
    )


def _difference(before: tuple[int, ...], after: tuple[int, ...]) -> FigureChanges:
    change = [new - old for old, new in zip(before, after, strict=True)]
    return FigureChanges(
        flops=change[0],
        forward_flops=change[1],
        backward_flops=change[2],
        macs=change[3],
        params=change[4],
        trainable_params=change[5],
        param_bytes=change[6],
        saved=change[7],
    )


def find_effects(search: EditSearch) -> Effects:
    """Assign every affected pair of `search` to edits. May add edits to `search`: of code that only its effect shows.

    A pair is affected if it has no edit of its own and other figures, outputs or calls. The layers are walked in the order of
    execution. An edit is in effect from the first output whose sizes change after it, until sizes are as before. Two edits
    that changed sizes one after the other are in effect together. Layers whose sizes are the same follow from the nearest
    edit before them, or after them if none is before.
    """
    return _Walk(search).effects


class _Walk:
    def __init__(self, search: EditSearch) -> None:
        self.search, self.pairs = search, search.pairs
        self.effects = Effects()
        self.current: Ratio = ()
        self.active: frozenset[int] = frozenset()
        self.pending: set[int] = set()
        self.latest: frozenset[int] = frozenset()
        self.by_ratio: dict[Ratio, frozenset[int]] = {}
        self.waiting: list[int] = []  # affected pairs before the first edit
        self.global_edits = frozenset(i for i, draft in enumerate(search.drafts) if draft.is_global)
        inputs = [i for i, draft in enumerate(search.drafts) if draft.kind == "target" and draft.subject == "inputs"]
        self.pending.update(inputs)
        self.latest = frozenset(inputs)
        for index in execution_order(self.pairs, search.a_positions):
            self._visit(index)
        for index in self.waiting:
            cause = self.latest or self.global_edits or self._loss_edit()
            if cause:
                self.effects.causes[index] = cause
            else:
                self._add_work_edit(index)

    def _loss_edit(self) -> frozenset[int]:
        """The edit of the loss, if there is one: another loss can change what the layers before it compute or save."""
        return frozenset(
            i for i, each in enumerate(self.search.drafts) if each.kind == "target" and each.subject == "loss"
        )

    def _add_work_edit(self, index: int) -> None:
        """An edit of a layer whose figures alone show it: nothing else was edited."""
        a_node, b_node = self.pairs[index]
        if a_node is None or b_node is None:
            return
        names = (a_node.class_name, b_node.class_name)
        draft = Draft("forward", "other work with the same settings", class_names=names)
        self.search.add(("work", b_node.class_name), draft, index, (a_node.path, b_node.path))

    def _visit(self, index: int) -> None:
        a_node, b_node = self.pairs[index]
        own = self.search.of_pair.get(index, [])
        adaptions = self.search.adaptions.get(index)
        if adaptions is not None and not own and not (self.active or self.pending or self.latest):
            self.search.add_settings(index, adaptions)
            own = self.search.of_pair[index]
        own = [number for number in own if self.search.drafts[number].kind not in ("renamed", "class_renamed")]
        if own and self.waiting:
            for earlier in self.waiting:
                self.effects.causes[earlier] = frozenset(own)
            self.waiting = []
        self.pending.update(own)
        if own:
            self.latest = frozenset(own)
        if a_node is None or b_node is None:
            return
        ratio = output_ratio(a_node, b_node)
        is_affected = not own and (
            adaptions is not None
            or bool(figure_changes(a_node, b_node))
            or a_node.output_shape != b_node.output_shape
            or a_node.calls != b_node.calls
        )
        before = self.active
        if ratio is not None:
            self._follow(index, ratio)
        if is_affected:
            both = self.active | before if adaptions is not None else self.active or before
            self._assign(index, both)

    def _follow(self, index: int, ratio: Ratio) -> None:
        """Update the edits in effect from the ratio of the sizes of one output."""
        if _is_one(ratio):
            if index not in self.search.adaptions and not self._changed(index):
                self.pending.clear()
            self.latest = self.active or self.latest
            self.active, self.current = frozenset(), ()
            return
        self.effects.ratios[index] = ratio
        if self.current and _is_close(ratio, self.current, self.pairs[index]):
            self.pending.clear()
            return
        known = next((key for key in self.by_ratio if _is_close(ratio, key, self.pairs[index])), None)
        if known is not None and len(self.by_ratio[known]) < len(self.active | self.pending):
            self.active = self.by_ratio[known]
        elif self.pending:
            self.active = frozenset(self.pending) | (self.active if self.current else frozenset())
        elif not self.active:
            self.active = frozenset({self._forward_edit(index)})
        self.pending.clear()
        self.current = ratio
        self.by_ratio.setdefault(ratio, self.active)

    def _changed(self, index: int) -> bool:
        return bool(figure_changes(*self.pairs[index]))

    def _assign(self, index: int, active: frozenset[int]) -> None:
        """Set the cause of an affected pair: the edits in effect on its input or output, or the nearest edit."""
        cause = active or frozenset(self.pending) or self.latest or self.global_edits
        if cause:
            self.effects.causes[index] = cause
        else:
            self.waiting.append(index)

    def _forward_edit(self, index: int) -> int:
        """An edit of the code around a layer that gets other inputs although nothing before it was edited."""
        _, b_node = self.pairs[index]
        path = parent_path(b_node.path) if b_node is not None else ""
        owner = next(
            (
                i
                for i, pair in enumerate(self.pairs)
                if pair[0] is not None and pair[1] is not None and pair[1].path == path
            ),
            None,
        )
        if self.latest:
            return next(iter(self.latest))
        a_owner, b_owner = self.pairs[owner] if owner is not None else (None, None)
        if owner is None or a_owner is None or b_owner is None:
            owner = index
        name = b_node.path.rpartition(".")[2] if b_node is not None else ""
        draft = Draft("forward", f"forward code: {name} gets another input" if name else "forward code")
        number = self.search.add(("code", path), draft, owner, (path, path))
        self.latest = frozenset({number})
        return number


def execution_order(pairs: Sequence[Pair], a_positions: Mapping[str, int]) -> list[int]:
    """The indices of `pairs` in the order in which the modules return in forward; removed ones before their successor in a.

    Modules that are not called come with the module before them in the order of definition. Without recorded orders (older
    reports) all are in the order of definition. `a_positions`: the order of definition in a.
    """
    b_indices = [index for index, (_, b_node) in enumerate(pairs) if b_node is not None]
    positions = {
        index: a_positions.get(a_node.path, len(a_positions))
        for index, (a_node, _) in enumerate(pairs)
        if a_node is not None
    }
    a_indices = sorted(positions, key=lambda index: positions[index])
    order = _in_order(b_indices, [pairs[index][1] for index in b_indices])
    a_order = _in_order(a_indices, [pairs[index][0] for index in a_indices])
    ordered: list[int] = []
    position = 0
    ranks = {index: rank for rank, index in enumerate(a_order)}
    removed = [index for index in a_order if pairs[index][1] is None]
    for index in order:
        rank = ranks.get(index)
        while rank is not None and position < len(removed) and ranks[removed[position]] < rank:
            ordered.append(removed[position])
            position += 1
        ordered.append(index)
    return ordered + removed[position:]


def _in_order(indices: Sequence[int], nodes: Sequence[ModuleNode | None]) -> list[int]:
    keys: list[float] = []
    last = -1.0
    for node in nodes:
        if node is not None and node.order is not None:
            last = float(node.order)
        is_layer = node is not None and node.path and not node.path.startswith("(")
        keys.append(last if is_layer else float("inf"))  # the root and the loss return last
    return [index for _, index in sorted(zip(keys, indices, strict=True), key=lambda item: item[0])]


def output_ratio(a: ModuleNode, b: ModuleNode) -> Ratio | None:
    """The sizes of b's output over those of a's; None where one is unknown, or where the numbers of dimensions differ."""
    if a.output_shape is None or b.output_shape is None or len(a.output_shape) != len(b.output_shape):
        return None
    return tuple(
        Fraction(new, old) if old else Fraction(1) for old, new in zip(a.output_shape, b.output_shape, strict=True)
    )


def _is_one(ratio: Ratio) -> bool:
    return all(part == 1 for part in ratio)


def _is_close(ratio: Ratio, reference: Ratio, pair: Pair) -> bool:
    """Whether two ratios are equal but for rounding of sizes after the channels."""
    if len(ratio) != len(reference):
        return False
    a_shape, b_shape = (node.output_shape or () if node is not None else () for node in pair)
    return all(
        part == other or (dim >= 2 and other != 1 and abs(b_shape[dim] - a_shape[dim] * other) <= ROUNDING)
        for dim, (part, other) in enumerate(zip(ratio, reference, strict=True))
    )


def effect_words(ratios: Iterable[Ratio]) -> str:
    """How the sizes of most outputs changed: ``maps 2x as large per side``; empty without a change."""
    counts = Counter(ratio for ratio in ratios if not _is_one(ratio))
    if not counts:
        return ""
    return _ratio_words(counts.most_common(1)[0][0])


def _ratio_words(ratio: Ratio) -> str:
    if len(ratio) < 2:
        return f"outputs {_times(ratio[0])}" if ratio else ""
    batch, second, rest = ratio[0], ratio[1], ratio[2:]
    words = []
    if batch != 1:
        words.append(f"{float(batch):.3g}x the batch")
    if len(ratio) >= 4:
        if second != 1:
            words.append(f"{float(second):.3g}x the channels")
        if len(set(rest)) == 1 and rest[0] != 1:
            words.append(f"maps {_times(rest[0])} per side")
        elif any(part != 1 for part in rest):
            words.append(f"maps {' by '.join(f'{float(part):.3g}x' for part in rest)} as large")
    elif len(ratio) == 3:
        words += [
            f"outputs {_times(part)} in dimension {dim}" for dim, part in ((1, second), (2, rest[0])) if part != 1
        ]
    elif second != 1:
        words.append(f"outputs {_times(second)}")
    return ", ".join(words)


def _times(part: Fraction) -> str:
    named = {Fraction(2): "twice as large", Fraction(1, 2): "half as large"}
    return named.get(part, f"{float(part):.3g}x as large")
