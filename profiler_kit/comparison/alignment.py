"""Alignment of the module trees of two models: each module of a side has at most one counterpart of the same type."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from profiler_kit.records.counts import ModuleNode

Pair = tuple[ModuleNode | None, ModuleNode | None]

MIN_SIMILARITY: Final = 0.5  # of two subtrees: the share of their modules that both have
MAX_COMPARISONS: Final = 2_000  # of subtrees for similarity
MAX_CELLS: Final = 1_000_000  # of a table of two sequences: longer ones are matched by position


def align(a: Iterable[ModuleNode], b: Iterable[ModuleNode]) -> list[Pair]:
    """Pair each node of `a` and `b` with its counterpart, if any. Each node occurs once: b's nodes in order, then removed ones.

    The roots match whatever their types; all other pairs have one type. From the roots down, children match by name, and
    numbered children (of a Sequential or ModuleList) by the longest common subsequence of equal subtrees, so that an insertion
    does not shift the rest. Below replaced modules of another type, their children match the same way. What remains matches as
    whole equal subtrees at any path (a move or a rename), then as similar subtrees. Swapping `a` and `b` gives the same pairs.
    """
    a_nodes, b_nodes = list(a), list(b)
    if _order_key(a_nodes) <= _order_key(b_nodes):
        partners = _Alignment(a_nodes, b_nodes).partners
    else:
        partners = {a_path: b_path for b_path, a_path in _Alignment(b_nodes, a_nodes).partners.items()}
    a_by_path = {node.path: node for node in a_nodes}
    matched = set(partners.values())
    pairs: list[Pair] = [(a_by_path[partners[node.path]] if node.path in partners else None, node) for node in b_nodes]
    return pairs + [(node, None) for node in a_nodes if node.path not in matched]


def _order_key(nodes: Sequence[ModuleNode]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """An order of models that does not depend on which side they are."""
    return [(node.path, node.class_name, node.config, node.settings) for node in nodes]


def starred(path: str) -> str:
    """`path` with a star for every number: ``blocks.*.conv``."""
    return re.sub(r"\d+", "*", path)


class _Tree:
    """Modules by path, with their children. A child's parent is its nearest ancestor in the tree; None is above all."""

    def __init__(self, nodes: Sequence[ModuleNode], signatures: dict[Hashable, int], with_settings: bool) -> None:
        self.nodes = {node.path: node for node in nodes}
        self.parents: dict[str, str | None] = {}
        self.children: dict[str | None, list[str]] = defaultdict(list)
        for path in self.nodes:
            parent = self._parent(path)
            self.parents[path] = parent
            self.children[parent].append(path)
        self.signatures: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        for path in sorted(self.nodes, key=len, reverse=True):  # children before their parents
            node, below = self.nodes[path], self.children.get(path, [])
            key = (
                node.class_name,
                node.config,
                node.settings if with_settings else (),
                tuple((self.name(child), self.signatures[child]) for child in below),
            )
            self.signatures[path] = signatures.setdefault(key, len(signatures))
            self.sizes[path] = 1 + sum(self.sizes[child] for child in below)

    def _parent(self, path: str) -> str | None:
        if not path:
            return None
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in self.nodes:
                return parent
        return None

    def name(self, path: str) -> str:
        """The name of the module below its parent."""
        parent = self.parents[path]
        return path[len(parent) + 1 :] if parent else path

    def subtree(self, path: str) -> Iterator[str]:
        """`path` and all paths below it, in pre-order."""
        pending = [path]
        while pending:
            current = pending.pop()
            yield current
            pending += reversed(self.children.get(current, []))


class _Alignment:
    def __init__(self, a_nodes: list[ModuleNode], b_nodes: list[ModuleNode]) -> None:
        signatures: dict[Hashable, int] = {}
        with_settings = all(any(node.settings for node in nodes) for nodes in (a_nodes, b_nodes))
        self.a, self.b = _Tree(a_nodes, signatures, with_settings), _Tree(b_nodes, signatures, with_settings)
        self.partners: dict[str, str] = {}  # b's path to a's
        self.matched_a: set[str] = set()
        if "" in self.a.nodes and "" in self.b.nodes:
            self._pair("", "")
            self._match_down("", "")
        else:
            self._match_down(None, None)
        self._match_equal_subtrees()
        self._match_similar_subtrees()

    def _pair(self, a_path: str, b_path: str) -> None:
        self.partners[b_path] = a_path
        self.matched_a.add(a_path)

    def _match_down(self, a_root: str | None, b_root: str | None) -> None:
        """Match the descendants of two modules by name or order."""
        pending = [(a_root, b_root)]
        while pending:
            a_parent, b_parent = pending.pop()
            a_children = [path for path in self.a.children.get(a_parent, []) if path not in self.matched_a]
            b_children = [path for path in self.b.children.get(b_parent, []) if path not in self.partners]
            for a_path, b_path in self._match_children(a_children, b_children):
                if self.a.nodes[a_path].class_name == self.b.nodes[b_path].class_name:
                    self._pair(a_path, b_path)
                pending.append((a_path, b_path))

    def _match_children(self, a_paths: list[str], b_paths: list[str]) -> Iterator[tuple[str, str]]:
        if not a_paths or not b_paths:
            return
        names = [self.a.name(path) for path in a_paths], [self.b.name(path) for path in b_paths]
        if all(name.isdigit() for side in names for name in side):
            yield from self._match_numbered(a_paths, b_paths)
            return
        b_by_name = dict(zip(names[1], b_paths, strict=True))
        for name, a_path in zip(names[0], a_paths, strict=True):
            if name in b_by_name:
                yield a_path, b_by_name[name]

    def _match_numbered(self, a_paths: list[str], b_paths: list[str]) -> Iterator[tuple[str, str]]:
        """Match two sequences by equal subtrees, and what lies between them by type."""
        a_keys, b_keys = [self.a.signatures[p] for p in a_paths], [self.b.signatures[p] for p in b_paths]
        for tag, a_start, a_end, b_start, b_end in common_runs(a_keys, b_keys):
            a_part, b_part = a_paths[a_start:a_end], b_paths[b_start:b_end]
            if tag == "equal":
                yield from zip(a_part, b_part, strict=True)
                continue
            a_types = [self.a.nodes[path].class_name for path in a_part]
            b_types = [self.b.nodes[path].class_name for path in b_part]
            for _, i, i_end, j, j_end in common_runs(a_types, b_types):
                yield from zip(a_part[i:i_end], b_part[j:j_end], strict=False)  # the excess of a side is new or gone

    def _match_equal_subtrees(self) -> None:
        """Match subtrees that are equal at other paths, the largest first.

        Single layers are often equal by chance. They match only below one parent; with parameters also under one name, if
        there is one of the kind on each side.
        """
        candidates: dict[int, list[str]] = defaultdict(list)
        for path in self.a.nodes:
            if path not in self.matched_a:
                candidates[self.a.signatures[path]].append(path)
        unmatched = [path for path in self.b.nodes if path not in self.partners]
        for b_path in sorted(unmatched, key=lambda path: -self.b.sizes[path]):
            if b_path in self.partners or any(path in self.partners for path in self.b.subtree(b_path)):
                continue
            choices = [path for path in candidates[self.b.signatures[b_path]] if self._is_free(path)]
            if self.b.sizes[b_path] == 1 or not any(self.b.nodes[path].params for path in self.b.subtree(b_path)):
                near = [path for path in choices if self._has_same_parent(path, b_path)]
                is_only = (
                    len(choices) == 1 and self.b.nodes[b_path].params > 0 and self._has_same_name(choices[0], b_path)
                )
                choices = near or (choices if is_only else [])
            a_path = min(choices, key=lambda path: self._distance(path, b_path), default=None)
            if a_path is not None:
                for pair in zip(self.a.subtree(a_path), self.b.subtree(b_path), strict=True):
                    self._pair(*pair)

    def _is_free(self, a_path: str) -> bool:
        return not any(path in self.matched_a for path in self.a.subtree(a_path))

    def _has_same_parent(self, a_path: str, b_path: str) -> bool:
        parent = self.b.parents[b_path]
        if parent is None:
            return self.a.parents[a_path] is None
        return self.partners.get(parent) == self.a.parents[a_path]

    def _has_same_name(self, a_path: str, b_path: str) -> bool:
        name = self.b.name(b_path).rpartition(".")[2]
        return not name.isdigit() and self.a.name(a_path).rpartition(".")[2] == name

    def _distance(self, a_path: str, b_path: str) -> tuple[bool, bool, bool]:
        """Smaller is more alike: the same place but for numbers, the same parent, the same name."""
        return (
            starred(a_path) != starred(b_path),
            not self._has_same_parent(a_path, b_path),
            self.a.name(a_path) != self.b.name(b_path),
        )

    def _match_similar_subtrees(self) -> None:
        """Match subtrees of one type that have most modules in common, the largest first, then their descendants."""
        by_type: dict[str, list[str]] = defaultdict(list)
        for path in self.a.nodes:
            if path not in self.matched_a and self.a.sizes[path] > 1:
                by_type[self.a.nodes[path].class_name].append(path)
        unmatched = [path for path in self.b.nodes if path not in self.partners and self.b.sizes[path] > 1]
        comparisons = 0
        for b_path in sorted(unmatched, key=lambda path: -self.b.sizes[path]):
            if b_path in self.partners:
                continue
            best: tuple[float, str] | None = None
            for a_path in by_type[self.b.nodes[b_path].class_name]:
                sizes = sorted((self.a.sizes[a_path], self.b.sizes[b_path]))
                if a_path in self.matched_a or sizes[0] < MIN_SIMILARITY * sizes[1] or comparisons >= MAX_COMPARISONS:
                    continue
                comparisons += 1
                similarity = self._similarity(a_path, b_path)
                if similarity >= MIN_SIMILARITY and (best is None or similarity > best[0]):
                    best = (similarity, a_path)
            if best is not None:
                self._pair(best[1], b_path)
                self._match_down(best[1], b_path)

    def _similarity(self, a_path: str, b_path: str) -> float:
        """The share of modules that two subtrees have at the same place and of the same type."""
        sides = [
            Counter((path[len(root) :], tree.nodes[path].class_name) for path in tree.subtree(root))
            for tree, root in ((self.a, a_path), (self.b, b_path))
        ]
        return (sides[0] & sides[1]).total() / (sides[0] | sides[1]).total()


Run = tuple[str, int, int, int, int]


def common_runs(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Run]:
    """The opcodes that turn `a` into `b`, as of `difflib`; equal ends are found in linear time."""
    start, shorter = 0, min(len(a), len(b))
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    a_end, b_end = len(a) - end, len(b) - end
    runs: list[Run] = [("equal", 0, start, 0, start)] if start else []
    a_middle, b_middle = a[start:a_end], b[start:b_end]
    if len(a_middle) * len(b_middle) > MAX_CELLS:
        runs.append(("replace", start, a_end, start, b_end))
    elif a_middle or b_middle:
        matcher = SequenceMatcher(None, a_middle, b_middle, autojunk=False)
        runs += [(tag, i + start, j + start, k + start, n + start) for tag, i, j, k, n in matcher.get_opcodes()]
    if end:
        runs.append(("equal", a_end, len(a), b_end, len(b)))
    return runs
