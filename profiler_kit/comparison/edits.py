"""The edits between two aligned models: settings, modules, places, and the target's own options."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from profiler_kit.comparison.alignment import Pair, starred
from profiler_kit.comparison.module_changes import ModuleChange, SettingChange, module_change
from profiler_kit.records.counts import LOSS_PATH, ModuleNode
from profiler_kit.records.edits import EditKind
from profiler_kit.records.metrics import torch_version
from profiler_kit.records.paths import parent_path, shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.target import inputs_text
from profiler_kit.units import plural

MIN_SAME_RATIO: Final = 3  # different settings that change by one ratio are one edit, as with a width multiplier
MAX_SETTINGS_NAMED: Final = 4
MAX_PARTS_NAMED: Final = 4  # modules of a sequence that its name lists

# Edits of the target that change figures without passing through the layers.
GLOBAL_SUBJECTS: Final = ("mode", "dtype", "autocast", "torch", "convention", "memory layout")


@dataclass(slots=True)
class Draft:
    """An edit while its modules are collected. `pairs`: indices of the aligned pairs that it edits itself.

    `roots`: the paths of the edited subtrees in a and in b; None where a side lacks it. `changes`: changed settings.
    """

    kind: EditKind
    words: str = ""
    subject: str = ""
    class_names: tuple[str, str] = ("", "")
    changes: tuple[SettingChange, ...] = ()
    pairs: list[int] = field(default_factory=list)
    roots: list[tuple[str | None, str | None]] = field(default_factory=list)
    parts: list[Draft] = field(default_factory=list)

    @property
    def is_global(self) -> bool:
        """Whether it changes figures of layers without changing their inputs."""
        return self.kind == "target" and self.subject in GLOBAL_SUBJECTS


class EditSearch:
    """The edits of aligned pairs. `drafts`: all edits, those of the target first. `of_pair`: indices of each pair's edits.

    `adaptions`: pairs whose settings changed only as their input demands: no edit unless nothing upstream was edited.
    `shifted`: pairs at another number of a sequence in which modules were inserted or removed, with that edit.
    """

    def __init__(self, pairs: Sequence[Pair], a: Report, b: Report) -> None:
        self.pairs = pairs
        self.a_positions = {node.path: i for i, node in enumerate(a.static.modules if a.static is not None else ())}
        self.b_paths = {node.path for node in b.static.modules} if b.static is not None else set()
        self.drafts: list[Draft] = _target_drafts(a, b)
        self.of_pair: defaultdict[int, list[int]] = defaultdict(list)
        self.adaptions: dict[int, tuple[SettingChange, ...]] = {}
        self.shifted: dict[int, int] = {}
        self._keys: dict[Hashable, int] = {("target", draft.subject): i for i, draft in enumerate(self.drafts)}
        self._index_a = {a_node.path: index for index, (a_node, _) in enumerate(pairs) if a_node is not None}
        self._index_b = {b_node.path: index for index, (_, b_node) in enumerate(pairs) if b_node is not None}
        moves: list[int] = []
        for index, (a_node, b_node) in enumerate(pairs):
            if a_node is not None and b_node is not None:
                self._compare(index, a_node, b_node)
                if a_node.path != b_node.path and not self._moves_with_parent(a_node.path, b_node.path):
                    moves.append(index)
        self._find_unmatched()
        self._find_moves(moves)
        self._merge_related()

    def add(self, key: Hashable, draft: Draft, index: int, root: tuple[str | None, str | None] | None = None) -> int:
        """Add the pair `index` to the edit of `key`, which is `draft` if it is new; return the edit's index."""
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self.drafts)
            self.drafts.append(draft)
        if index not in self.drafts[number].pairs:
            self.drafts[number].pairs.append(index)
            self.of_pair[index].append(number)
        if root is not None:
            self.drafts[number].roots.append(root)
        return number

    def add_settings(self, index: int, changes: Sequence[SettingChange], words: str = "") -> None:
        """Add edits of settings of the pair `index`: one edit, and for the root one per setting.

        `words`: the change of the module's own code, which is part of the edit.
        """
        a_node, b_node = self.pairs[index]
        if a_node is None or b_node is None:
            return
        groups = [(change,) for change in changes] if not b_node.path else [tuple(changes)]
        for group in groups:
            key = ("settings", not b_node.path, frozenset(group), words)
            draft = Draft("settings", words, changes=group, class_names=(a_node.class_name, b_node.class_name))
            self.add(key, draft, index, (a_node.path, b_node.path))

    def _compare(self, index: int, a_node: ModuleNode, b_node: ModuleNode) -> None:
        change: ModuleChange = module_change(a_node, b_node)
        root = (a_node.path, b_node.path)
        names = (a_node.class_name, b_node.class_name)
        edits = change.edits
        if any(draft.subject == "dtype" for draft in self.drafts if draft.kind == "target"):
            edits = tuple(each for each in edits if each.name != "bits per parameter")
        forward = "" if any(draft.is_global for draft in self.drafts) else change.forward
        if edits:
            self.add_settings(index, edits, forward if b_node.path else "")
        elif change.adaptions and not forward:
            self.adaptions[index] = change.adaptions
        if forward and not (edits and b_node.path):
            key = ("forward", b_node.class_name, forward)
            self.add(key, Draft("forward", forward, class_names=names), index, root)
        if change.shared:
            self.add(("shared", change.shared), Draft("shared", change.shared, class_names=names), index, root)

    def _moves_with_parent(self, a_path: str, b_path: str) -> bool:
        """Whether a module is at another path only because its parent is."""
        a_parent, b_parent = parent_path(a_path), parent_path(b_path)
        same_name = a_path[len(a_parent) :] == b_path[len(b_parent) :] if a_parent and b_parent else False
        if not same_name:
            return False
        index = self._index_b.get(b_parent)
        a_node = self.pairs[index][0] if index is not None else None
        if a_node is not None:
            return a_node.path == a_parent
        return self._replaces(a_parent, b_parent)

    def _replaces(self, a_path: str, b_path: str) -> bool:
        """Whether the module at `b_path` takes the place of the unmatched one at `a_path`."""
        if a_path == b_path:
            return True
        a_parent, b_parent = parent_path(a_path), parent_path(b_path)
        index = self._index_b.get(b_parent)
        a_node = self.pairs[index][0] if index is not None else None
        return a_node is not None and a_node.path == a_parent and a_path[len(a_parent) :] == b_path[len(b_parent) :]

    def _find_unmatched(self) -> None:
        """Edits of modules that only one side has: replaced, added, removed, or another number in a sequence."""
        removed = {
            a_node.path: index
            for index, (a_node, b_node) in enumerate(self.pairs)
            if a_node is not None and b_node is None
        }
        added = {
            b_node.path: index
            for index, (a_node, b_node) in enumerate(self.pairs)
            if b_node is not None and a_node is None
        }
        replaced = {b_path: b_path for b_path in added if b_path in removed and b_path}
        for b_path in added:
            index = self._index_b.get(parent_path(b_path)) if b_path else None
            a_parent = self.pairs[index][0] if index is not None else None
            if b_path not in replaced and a_parent is not None and a_parent.path != parent_path(b_path):
                a_path = f"{a_parent.path}.{b_path.rpartition('.')[2]}"
                if a_path in removed:
                    replaced[b_path] = a_path
        owners: dict[tuple[str, str], int] = {}  # side and path of an unmatched module to its edit
        for b_path, a_path in replaced.items():
            number = self._add_replaced(removed[a_path], added[b_path])
            owners["a", a_path] = owners["b", b_path] = number
        for side, unmatched in (("a", removed), ("b", added)):
            for path, index in sorted(unmatched.items(), key=lambda item: len(item[0])):
                if (side, path) in owners:
                    continue
                owner = owners.get((side, parent_path(path)))
                if owner is not None and path:
                    self.drafts[owner].pairs.append(index)
                    self.of_pair[index].append(owner)
                    owners[side, path] = owner
                else:
                    owners[side, path] = self._add_single(side, path, index)

    def _add_replaced(self, a_index: int, b_index: int) -> int:
        a_node, b_node = self.pairs[a_index][0], self.pairs[b_index][1]
        if a_node is None or b_node is None:
            raise ValueError("a replaced module has both sides")
        names = (a_node.class_name, b_node.class_name)
        if b_node.path == LOSS_PATH:
            draft = Draft("target", f"{names[0]} -> {names[1]}", "loss")
            key: Hashable = ("target", "loss")
        else:
            words = " -> ".join((self._type_words("a", a_node), self._type_words("b", b_node)))
            is_renamed = _own_facts(a_node) == _own_facts(b_node) and self._share_children(a_node.path, b_node.path)
            kind: EditKind = "class_renamed" if is_renamed else "replaced"
            draft = Draft(kind, words, class_names=names)
            key = (kind, words)
        number = self.add(key, draft, a_index, (a_node.path, b_node.path))
        self.add(key, draft, b_index)
        return number

    def _type_words(self, side: str, node: ModuleNode) -> str:
        """The type of a module; for a short sequence with the types of its modules: ``Sequential(LayerNorm, Linear)``."""
        paths = self._index_a if side == "a" else self._index_b
        parts = [path for path in paths if path and parent_path(path) == node.path]
        if node.class_name != "Sequential" or not 0 < len(parts) <= MAX_PARTS_NAMED:
            return node.class_name
        nodes = [self.pairs[paths[path]][0 if side == "a" else 1] for path in parts]
        return f"{node.class_name}({', '.join(each.class_name for each in nodes if each is not None)})"

    def _share_children(self, a_path: str, b_path: str) -> bool:
        """Whether all descendants of two modules are partners of each other."""
        sides = [
            {index for path, index in paths.items() if path.startswith(f"{root}.")}
            for paths, root in ((self._index_a, a_path), (self._index_b, b_path))
        ]
        return sides[0] == sides[1]

    def _add_single(self, side: str, path: str, index: int) -> int:
        """The edit of an added or removed subtree. Numbered modules of one sequence are one edit."""
        a_node, b_node = self.pairs[index]
        node = b_node if side == "b" else a_node
        class_name = node.class_name if node is not None else ""
        parent, _, name = path.rpartition(".")
        parents = self._index_b if side == "b" else self._index_a
        pair = self.pairs[parents[parent]] if parent in parents else (None, None)
        root = (None, path) if side == "b" else (path, None)
        if name.isdigit() and pair[0] is not None and pair[1] is not None:
            return self.add(("sequence", pair[1].path), Draft("repeated", subject=pair[1].path), index, root)
        kind: EditKind = "added" if side == "b" else "removed"
        key = (kind, starred(path), class_name)
        return self.add(key, Draft(kind, class_names=(class_name, class_name)), index, root)

    def _find_moves(self, moves: Sequence[int]) -> None:
        for index in moves:
            a_node, b_node = self.pairs[index]
            if a_node is None or b_node is None:
                continue
            a_name, b_name = a_node.path.rpartition(".")[2], b_node.path.rpartition(".")[2]
            sequence = self._keys.get(("sequence", parent_path(b_node.path)))
            if sequence is not None and a_name.isdigit() and b_name.isdigit():
                self.shifted[index] = sequence
                continue
            key = ("renamed", starred(a_node.path), starred(b_node.path))
            draft = Draft("renamed", class_names=(a_node.class_name, b_node.class_name))
            self.add(key, draft, index, (a_node.path, b_node.path))

    def _merge_related(self) -> None:
        """Merge edits with their cause in the root's configuration, and settings that all change by one ratio."""
        roots = [i for i, draft in enumerate(self.drafts) if draft.kind == "settings" and draft.roots[0][1] == ""]
        others = [i for i, draft in enumerate(self.drafts) if draft.kind == "settings" and i not in roots]
        for number in others:
            cause = self._root_cause(self.drafts[number], roots)
            if cause is not None:
                self._absorb(cause, number)
        for number, draft in enumerate(self.drafts):
            if draft.kind != "repeated":
                continue
            counts = tuple(str(count) for count in self.child_counts(draft.subject))
            for cause in roots:
                change = self.drafts[cause].changes[0]
                if (change.before, change.after) == counts:
                    self._absorb(cause, number)
                    break
        sequences: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, draft in enumerate(self.drafts):
            if draft.kind == "repeated" and draft.pairs:
                sequences[starred(draft.subject), _describe_sequence(draft, self)[1]].append(number)
        for numbers in sequences.values():
            for number in numbers[1:]:
                self._absorb(numbers[0], number)
        by_ratio: dict[Fraction, list[int]] = defaultdict(list)
        for number in others:
            ratio = _common_ratio(self.drafts[number].changes) if self.drafts[number].pairs else None
            if ratio is not None:
                by_ratio[ratio].append(number)
        by_name: dict[Hashable, list[int]] = defaultdict(list)
        for numbers in by_ratio.values():
            if len(numbers) >= MIN_SAME_RATIO:
                for number in numbers[1:]:
                    self._absorb(numbers[0], number)
        for number in others:
            draft = self.drafts[number]
            if draft.pairs and not draft.parts:
                by_name[tuple(change.name for change in draft.changes), self._place(draft)].append(number)
        for numbers in by_name.values():  # one setting with a value per block
            if len(numbers) >= MIN_SAME_RATIO:
                for number in numbers[1:]:
                    self._absorb(numbers[0], number)

    def _place(self, draft: Draft) -> tuple[str, str]:
        """Where the modules of an edit are, with stars for numbers, and their type."""
        path = draft.roots[0][1] or ""
        return starred(path), draft.class_names[1]

    def _root_cause(self, draft: Draft, roots: Sequence[int]) -> int | None:
        """The root's setting that explains the settings of `draft`: the same values, or else the same ratio."""
        values = {(change.before, change.after) for change in draft.changes}
        ratio = _common_ratio(draft.changes)
        for number in roots:
            change = self.drafts[number].changes[0]
            same_name = {each.name for each in draft.changes} == {change.name.rpartition(".")[2]}
            if (change.before, change.after) in values or same_name:
                return number
        by_ratio = [number for number in roots if ratio is not None and self.drafts[number].changes[0].ratio == ratio]
        return by_ratio[0] if by_ratio else None

    def _absorb(self, cause: int, number: int) -> None:
        """Make the modules of the edit `number` part of the edit `cause`; the first is empty afterwards."""
        absorbed, target = self.drafts[number], self.drafts[cause]
        target.parts.append(Draft(**{name: getattr(absorbed, name) for name in Draft.__slots__}))
        for index in absorbed.pairs:
            links = [cause if link == number else link for link in self.of_pair[index]]
            self.of_pair[index] = list(dict.fromkeys(links))
        target.pairs = list(dict.fromkeys([*target.pairs, *absorbed.pairs]))
        self.shifted = {index: cause if link == number else link for index, link in self.shifted.items()}
        absorbed.pairs = []

    def class_name(self, b_path: str) -> str:
        """The type of the module at `b_path` in b."""
        node = self.pairs[self._index_b[b_path]][1]
        return node.class_name if node is not None else ""

    def child_counts(self, b_path: str) -> tuple[int, int]:
        """How many children the sequence at `b_path` has in a and in b."""
        index = self._index_b[b_path]
        a_node = self.pairs[index][0]
        a_path = a_node.path if a_node is not None else b_path
        counts = [
            sum(parent_path(path) == root and path != root for path in paths)
            for paths, root in ((self._index_a, a_path), (self._index_b, b_path))
        ]
        return counts[0], counts[1]

    def child_types(self, b_path: str) -> set[str]:
        """The types of the children that the sequence at `b_path` has in a."""
        a_node = self.pairs[self._index_b[b_path]][0]
        root = a_node.path if a_node is not None else b_path
        nodes = (self.pairs[index][0] for path, index in self._index_a.items() if parent_path(path) == root and path)
        return {node.class_name for node in nodes if node is not None}


def _own_facts(node: ModuleNode) -> tuple[object, ...]:
    return node.config, node.settings, node.step_cost, node.params, node.saved_bytes, node.state


def _common_ratio(changes: Iterable[SettingChange]) -> Fraction | None:
    ratios = {change.ratio for change in changes}
    return ratios.pop() if len(ratios) == 1 else None


def _target_drafts(a: Report, b: Report) -> list[Draft]:
    """Edits of the target: what the model is run with."""
    before, after = a.target, b.target
    conventions = [report.static.convention_name if report.static is not None else "" for report in (a, b)]
    shapes = [[(tensor.shape, tensor.dtype) for tensor in target.inputs] for target in (before, after)]
    facts = (
        ("torch", torch_version(a), torch_version(b)),
        ("convention", conventions[0], conventions[1]),
        ("mode", before.mode, after.mode),
        ("dtype", before.dtype, after.dtype),
        ("autocast", before.amp, after.amp),
        ("memory layout", _layout(before.channels_last), _layout(after.channels_last)),
        ("loss", before.loss, after.loss),
        ("optimizer", before.optimizer, after.optimizer),
    )
    drafts = []
    if shapes[0] != shapes[1]:
        drafts.append(Draft("target", f"{inputs_text(before.inputs)} -> {inputs_text(after.inputs)}", "inputs"))
    drafts += [
        Draft("target", f"{old or 'none'} -> {new or 'none'}", subject)
        for subject, old, new in facts
        if old != new and not (subject in ("torch", "convention") and not (old and new))
    ]
    return drafts


def _layout(channels_last: bool) -> str:
    return "channels_last" if channels_last else "contiguous"


def describe(draft: Draft, search: EditSearch) -> tuple[str, str]:
    """The subject and the change of an edit in words."""
    if draft.kind == "target":
        return draft.subject, draft.words
    if draft.kind == "settings":
        return _describe_settings(draft, search)
    if draft.kind == "repeated":
        subject, words = _describe_sequence(draft, search)
        if not draft.parts:
            return subject, words
        names = [subject, *(_describe_sequence(part, search)[0] for part in draft.parts)]
        return _common_name(names), f"{words} in each of {len(names)}"
    roots = draft.roots
    if draft.kind == "renamed":
        sizes = sum(_subtree_size(search, b_path) for _, b_path in roots)
        b_name = _common_name([b for _, b in roots])
        return _common_name([a for a, _ in roots]), f"-> {b_name}, {plural(sizes, 'module')}"
    if draft.kind in ("added", "removed"):
        paths = [b if b is not None else a for a, b in roots]
        name = draft.class_names[0]
        modules = len(draft.pairs)
        count = f"{len(paths)} x {name}" if len(paths) > 1 else name
        inner = f", {plural(modules, 'module')}" if modules > len(paths) else ""
        return _common_name(paths), f"{draft.kind}: {count}{inner}"
    paths = [b if b is not None else a for a, b in roots]
    subject = shown_path(paths[0] or "") if len(paths) == 1 else _common_name(paths)
    in_modules = f" in {plural(len(paths), 'module')}" if len(paths) > 1 else ""
    return subject, f"{draft.words}{in_modules}"


def _describe_settings(draft: Draft, search: EditSearch) -> tuple[str, str]:
    root_paths = [b if b is not None else "" for _, b in draft.roots]
    if draft.changes and root_paths[0] == "":
        change = draft.changes[0]
        sequences = [_describe_sequence(part, search) for part in draft.parts if part.kind == "repeated"]
        words = "".join(f": {plus.partition(': ')[2] or plus} in {where}" for where, plus in sequences[:1])
        others = len(draft.pairs) - 1
        if not sequences and others:
            words = f" in {plural(others, 'module')}"
        return change.name, f"{change.before} -> {change.after}{words}"
    drafts = [draft, *draft.parts]
    if draft.parts:
        ratio = _common_ratio(change for each in drafts for change in each.changes)
        names = list(dict.fromkeys(change.name for each in drafts for change in each.changes))
        shown = ", ".join(names[:MAX_SETTINGS_NAMED])
        paths = [b for each in drafts for _, b in each.roots]
        factor = f"x {float(ratio):.4g}" if ratio is not None else _value_range(drafts)
        return _common_name(paths), f"{shown} {factor} in {plural(len(paths), 'layer')}"
    words = ", ".join(change.words for change in draft.changes[:MAX_SETTINGS_NAMED])
    if len(draft.changes) > MAX_SETTINGS_NAMED:
        words += f" and {plural(len(draft.changes) - MAX_SETTINGS_NAMED, 'other setting')}"
    if draft.words:
        words += f", {draft.words}"
    if len(root_paths) == 1:
        return shown_path(root_paths[0]), words
    classes = {search.class_name(b_path) for b_path in root_paths}
    modules = f"{len(root_paths)} x {classes.pop()}" if len(classes) == 1 else plural(len(root_paths), "module")
    return _common_name(root_paths), f"{words} in {modules}"


def _value_range(drafts: Sequence[Draft]) -> str:
    """The values of one setting in several modules: ``0 -> 0.0125 ... 0.1875``."""
    sides = []
    for values in (
        [each.changes[0].before for each in drafts],
        [each.changes[0].after for each in drafts],
    ):
        sides.append(values[0] if len(set(values)) == 1 else f"{values[0]} ... {values[-1]}")
    return f"{sides[0]} -> {sides[1]}"


def _describe_sequence(draft: Draft, search: EditSearch) -> tuple[str, str]:
    """The change of a sequence: ``layers``, ``12 -> 16: +4 x Block``; of a single module: its path and ``added: Conv2d``."""
    index_of = {True: search._index_b, False: search._index_a}
    changes: Counter[str] = Counter()
    for a_path, b_path in draft.roots:
        is_added = b_path is not None
        a_node, b_node = search.pairs[index_of[is_added][b_path if b_path is not None else a_path or ""]]
        node = b_node if is_added else a_node
        if node is not None:
            changes[node.class_name] += 1 if is_added else -1
    if len(draft.roots) == 1 and not set(changes) <= search.child_types(draft.subject):
        a_path, b_path = draft.roots[0]
        name = next(iter(changes))
        inner = f", {plural(len(draft.pairs), 'module')}" if len(draft.pairs) > 1 else ""
        return (b_path or a_path or ""), f"{'added' if b_path is not None else 'removed'}: {name}{inner}"
    before, after = search.child_counts(draft.subject)
    words = ", ".join(
        f"{'+' if count > 0 else '-'}{abs(count)} x {class_name}" for class_name, count in changes.items() if count
    )
    return shown_path(draft.subject), f"{before} -> {after}: {words or 'others'}"


def _subtree_size(search: EditSearch, b_path: str | None) -> int:
    return sum(path == b_path or path.startswith(f"{b_path}.") for path in search._index_b)


def _common_name(paths: Sequence[str | None]) -> str:
    """One name for several paths: the path, the same with stars for numbers, or the innermost module that contains all."""
    known = [path or "" for path in paths]
    if len(set(known)) == 1:
        return shown_path(known[0])
    if len({starred(path) for path in known}) == 1:
        columns = zip(*(path.split(".") for path in known), strict=False)
        return ".".join(names[0] if len(set(names)) == 1 else starred(names[0]) for names in columns)
    common = []
    for names in zip(*(path.split(".") for path in known), strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return ".".join(common) or "model"
