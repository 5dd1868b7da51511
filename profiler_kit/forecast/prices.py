"""The price of an op: its kernel time, from the recorded calls that are most like it.

A recorded call is stored as its ratio to its ideal time, which is smoother than its time and holds for sizes beyond the recorded
ones. The price of a call is its own ideal time times the ratio that a line through its nearest recorded calls gives.

Example: a product of 4096x1024x3000 in bfloat16 lies between recorded ones of 4096x1024x2048 (ratio 1.6) and 4096x1024x4096
(1.5), so it takes about 1.55 times as long as its ideal time.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.devices.device import Device, Peaks
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.work import WEIGHTS, Work

NEIGHBORS: Final = 40
_CLOSE: Final = 0.03  # squared distance below which a recorded call is as good as an equal one
_STIFFNESS: Final = 3.0  # of the line through the neighbors: the larger, the closer to their mean
_MARGIN: Final = 0.3  # how far the line may leave the range of its neighbors, as a logarithm
# The standard deviation of the logarithm of a price grows with the distance to the nearest recorded call.
_LEAST_SPREAD: Final = 0.05
_SPREAD_PER_DISTANCE: Final = 0.1
_UNKNOWN_SPREAD: Final = 0.7  # of an op that was never recorded: within a factor of two
# A file holds whole numbers of these parts.
_SIZE_UNITS: Final = 100
_RATIO_UNITS: Final = 1000


class Recorded(NamedTuple):
    """A recorded call: the number of its network, its work, its time divided by its ideal time, and its number of kernels."""

    network: int
    family: str
    classes: tuple[str, ...]
    sizes: tuple[float, ...]
    ratio: float
    kernels: int


@dataclass(frozen=True, slots=True)
class Price:
    """The kernel time of a call, and its number of kernels.

    `spread`: the standard deviation of the logarithm of the time. `is_known`: whether the op was recorded.
    """

    ns: float
    spread: float
    is_known: bool
    kernels: float = 1.0


FREE: Final = Price(0.0, 0.0, is_known=True, kernels=0.0)  # of a call without kernels, such as a view


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """The recorded calls of a family as columns; `classes` holds codes, and `codes` their texts."""

    weights: NDArray[np.float64]
    codes: tuple[dict[str, int], ...]
    classes: NDArray[np.int32]
    sizes: NDArray[np.float64]
    log_ratios: NDArray[np.float64]
    kernels: NDArray[np.float64]
    network: NDArray[np.int32]
    _of_op: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def comparable(self, work: Work, without: int | None) -> tuple[NDArray[np.int64], bool]:
        """The rows of calls that `work` is compared with, and whether its op was recorded.

        An op is compared with its own calls. One that was never recorded is compared with others that launch kernels.
        """
        others = np.arange(len(self.network)) if without is None else np.flatnonzero(self.network != without)
        if work.classes[0] != work.op:  # products and convolutions of all kinds run the same kernels
            return others, True
        own = self._rows_of(work.op)
        own = own if without is None else own[self.network[own] != without]
        return (own, True) if len(own) else (others[self.kernels[others] > 0], False)

    def _rows_of(self, op: str) -> NDArray[np.int64]:
        if op not in self._of_op:
            self._of_op[op] = np.flatnonzero(self.classes[:, 0] == self.codes[0].get(op, -1))
        return self._of_op[op]

    def nearest(
        self, work: Work, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[Any]]:
        """The rows nearest to `work` among `rows`, their squared distances, and its parts: the steps in each size and class."""
        codes = np.array([code.get(text, -1) for code, text in zip(self.codes, work.classes, strict=True)])
        sizes, classes = self.sizes[rows] - np.array(work.sizes), self.classes[rows] != codes
        distances = np.einsum("ij,ij->i", sizes, sizes) + classes @ self.weights**2
        chosen = np.argpartition(distances, min(NEIGHBORS, len(distances) - 1))[:NEIGHBORS]
        return rows[chosen], distances[chosen], np.hstack([sizes[chosen], classes[chosen] * self.weights])


class PriceTable:
    """Recorded calls of one device. `source`: device, versions of torch and cuDNN, and date.

    `factors`: what the prices of each family of ops are multiplied by, for another device.
    """

    def __init__(
        self, families: Mapping[str, _Family], peaks: Peaks, source: str, factors: Mapping[str, float] | None = None
    ) -> None:
        self._families = families
        self.peaks = peaks
        self.source = source
        self._factors = factors or {}

    def adjusted(self, device: Device) -> PriceTable:
        """The prices of these calls for `device`, by its `price_factors`."""
        source = f"{device.factors_source}; {self.source}"
        return PriceTable(self._families, self.peaks, source, dict(device.price_factors))

    @classmethod
    def of_rows(cls, rows: Iterable[Recorded], peaks: Peaks, source: str) -> PriceTable:
        """The table of these calls."""
        return cls(_families_of(rows), peaks, source)

    def price(self, work: Work, peaks: Peaks | None = None, *, without: int | None = None) -> Price:
        """The kernel time of `work` on a device with these `peaks` (default: those of the recorded one).

        `without`: do not use the calls of this network, to measure the error on networks that were not recorded.
        """
        ideal_ns = work.ideal_ns(peaks or self.peaks)
        family = self._families.get(work.family)
        if family is None:
            return Price(ideal_ns, _UNKNOWN_SPREAD, is_known=False)
        rows, is_known = family.comparable(work, without)
        if not len(rows):
            return Price(ideal_ns, _UNKNOWN_SPREAD, is_known=False)
        nearest, distances, steps = family.nearest(work, rows)
        weights = 1 / (distances + _CLOSE)
        is_working = family.kernels[nearest] > 0
        if weights @ is_working < weights.sum() / 2:
            return FREE
        nearest, distances = nearest[is_working], distances[is_working]
        steps, weights = steps[is_working], weights[is_working]
        center = _at_zero(steps, family.log_ratios[nearest], weights)
        spread = math.sqrt(float(weights @ (family.log_ratios[nearest] - center) ** 2 / weights.sum()))
        spread += _LEAST_SPREAD + _SPREAD_PER_DISTANCE * math.sqrt(float(distances.min()))
        spread = min(spread, _UNKNOWN_SPREAD) if is_known else _UNKNOWN_SPREAD
        kernels = float(weights @ family.kernels[nearest] / weights.sum())
        return Price(ideal_ns * math.exp(center) * self._factors.get(work.family, 1.0), spread, is_known, kernels)


def _families_of(rows: Iterable[Recorded]) -> dict[str, _Family]:
    by_family: dict[str, list[Recorded]] = defaultdict(list)
    for row in rows:
        by_family[row.family].append(row)
    return {name: _columns(name, members) for name, members in by_family.items()}


def _columns(name: str, rows: list[Recorded]) -> _Family:
    texts = list(zip(*(row.classes for row in rows), strict=True))
    codes = tuple({text: code for code, text in enumerate(dict.fromkeys(column))} for column in texts)
    ratios = np.array([row.ratio for row in rows])
    return _Family(
        weights=np.array(WEIGHTS[name], float),
        codes=codes,
        classes=np.array(
            [[code[text] for code, text in zip(codes, row.classes, strict=True)] for row in rows], np.int32
        ),
        sizes=np.array([row.sizes for row in rows]),
        log_ratios=np.log(np.maximum(ratios, 1e-3)),
        kernels=np.array([row.kernels for row in rows], float),
        network=np.array([row.network for row in rows], np.int32),
    )


def _at_zero(steps: NDArray[Any], values: NDArray[Any], weights: NDArray[Any]) -> float:
    """The value at zero of the weighted least-squares plane through `values` at `steps`; its slopes are held back."""
    matrix = np.hstack([np.ones((len(steps), 1)), steps])
    penalty = np.eye(matrix.shape[1]) * _STIFFNESS * weights.mean()
    penalty[0, 0] = 1e-9
    weighted = matrix * weights[:, None]
    center = float(np.linalg.solve(matrix.T @ weighted + penalty, weighted.T @ values)[0])
    return min(max(center, float(values.min()) - _MARGIN), float(values.max()) + _MARGIN)


def read_table(data: bytes, peaks: Peaks) -> PriceTable:
    """The table in `data`, which `write_table` wrote."""
    content = json.loads(gzip.decompress(data))
    return PriceTable(
        {name: _read_family(name, columns) for name, columns in content["families"].items()}, peaks, content["source"]
    )


def _read_family(name: str, columns: Mapping[str, Any]) -> _Family:
    return _Family(
        weights=np.array(WEIGHTS[name], float),
        codes=tuple({text: code for code, text in enumerate(texts)} for texts in columns["codes"]),
        classes=np.array(columns["classes"], np.int32),
        sizes=np.array(columns["sizes"], float) / _SIZE_UNITS,
        log_ratios=np.array(columns["log_ratios"], float) / _RATIO_UNITS,
        kernels=np.array(columns["kernels"], float),
        network=np.array(columns["network"], np.int32),
    )


def write_table(rows: Iterable[Recorded], source: str) -> bytes:
    """The bytes of a file that `read_table` reads: compressed JSON with the columns of each family.

    The same rows give the same bytes.
    """
    families = {
        name: {
            "codes": [list(texts) for texts in family.codes],
            "classes": family.classes.tolist(),
            "sizes": np.rint(family.sizes * _SIZE_UNITS).astype(int).tolist(),
            "log_ratios": np.rint(family.log_ratios * _RATIO_UNITS).astype(int).tolist(),
            "kernels": family.kernels.astype(int).tolist(),
            "network": family.network.tolist(),
        }
        for name, family in _families_of(rows).items()
    }
    text = json.dumps({"source": source, "families": families}, separators=(",", ":"))
    return gzip.compress(text.encode(), 9, mtime=0)


@cache
def prices_for(device: Device) -> tuple[PriceTable, bool] | None:
    """The prices for `device`, and whether they were measured on this very card; None where nothing can be said.

    A card without recordings takes the ratios of the one with the nearest compute capability, at its own datasheet peaks. Its
    factors adjust them, if some were measured.
    """
    if device.peaks is None or not device.is_cuda:
        return None
    recorded = [card for card in devices() if card.prices is not None and card.peaks is not None]
    nearest = min(recorded, key=lambda card: abs(card.architecture.capability - device.architecture.capability))
    nearest = device if device in recorded else nearest
    assert nearest.peaks is not None
    assert nearest.prices is not None
    data = (resources.files("profiler_kit.devices") / "prices" / nearest.prices).read_bytes()
    table = read_table(data, nearest.peaks)
    return (table.adjusted(device), True) if device.price_factors else (table, nearest is device)
