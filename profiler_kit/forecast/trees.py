"""Boosted regression trees as arrays: the sum of the values of the leaves that a row of numbers reaches.

LightGBM fits them (`scripts.lab.price_table`). Reading them needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LEAF: Final = -1
_VALUE_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """The nodes of all trees, each tree in preorder: the left child of a node follows it.

    - `feature`: the column that a node compares, `LEAF` for a leaf.
    - `number`: the threshold, up to which rows go left; the value of a leaf.
    - `right`: the position of the right child.
    - `roots`: the position of each tree's first node.
    """

    feature: NDArray[np.int16]
    number: NDArray[np.float64]
    right: NDArray[np.int32]
    roots: NDArray[np.int32]

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of each row."""
        at = np.repeat(self.roots[None, :], len(rows), axis=0)
        row = np.arange(len(rows))[:, None]
        while (is_inner := (feature := self.feature[at]) != LEAF).any():
            goes_left = rows[row, np.maximum(feature, 0)] <= self.number[at]
            at = np.where(is_inner, np.where(goes_left, at + 1, self.right[at]), at)
        return np.asarray(self.number[at].sum(axis=1))

    def columns(self) -> dict[str, list[Any]]:
        """The trees as JSON."""
        return {
            "feature": self.feature.tolist(),
            "number": self.number.tolist(),
            "right": (self.right - np.arange(len(self.right)))[self.feature != LEAF].tolist(),
        }

    @classmethod
    def of_columns(cls, columns: Mapping[str, list[Any]]) -> Trees:
        """The trees that `columns` wrote."""
        feature = np.array(columns["feature"], np.int16)
        right = np.zeros(len(feature), np.int32)
        inner = np.flatnonzero(feature != LEAF)
        right[inner] = inner + np.array(columns["right"], np.int32)
        # A tree has one leaf more than inner nodes: the next one begins where that is first so.
        surplus = np.cumsum(np.where(feature == LEAF, 1, -1))
        ends = np.flatnonzero(surplus > np.maximum.accumulate(np.append(0, surplus[:-1])))
        roots = np.append(0, ends[:-1] + 1).astype(np.int32) if len(feature) else np.zeros(0, np.int32)
        return cls(feature, np.array(columns["number"], float), right, roots)

    @classmethod
    def of_lightgbm(cls, trees: Iterable[Mapping[str, Any]]) -> Trees:
        """The trees of ``Booster.dump_model()["tree_info"]``, with thresholds and values rounded."""
        feature: list[int] = []
        number: list[float] = []
        right: list[int] = []

        def add(node: Mapping[str, Any]) -> None:
            place = len(feature)
            is_leaf = "split_feature" not in node
            feature.append(LEAF if is_leaf else node["split_feature"])
            number.append(round(node["leaf_value"], _VALUE_DIGITS) if is_leaf else float(f"{node['threshold']:.6g}"))
            right.append(place)
            if not is_leaf:
                add(node["left_child"])
                right[place] = len(feature)
                add(node["right_child"])

        for tree in trees:
            add(tree["tree_structure"])
        steps = [to - at for at, to in enumerate(right) if to != at]
        return cls.of_columns({"feature": feature, "number": number, "right": steps})
