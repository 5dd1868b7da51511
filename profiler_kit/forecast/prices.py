"""The price of an op: its kernel time, from the recorded calls that are most like it.

A recorded call is stored as its ratio to the roofline, which is smoother than its time and holds for sizes beyond the recorded
ones. The price of a call is its own roofline times the ratio that a line through its nearest recorded calls gives.

Example: a product of 4096x1024x3000 in bfloat16 lies between recorded ones of 4096x1024x2048 (ratio 1.6) and 4096x1024x4096
(1.5), so it takes about 1.55 times as long as its roofline says.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.devices.device import Device, Peaks
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.work import WEIGHTS, Work

NEIGHBORS: Final = 24
_CLOSE: Final = 0.02  # squared distance below which a recorded call is as good as an equal one
_STIFFNESS: Final = 1.4  # of the line through the neighbors: the larger, the closer to their mean
_MARGIN: Final = 0.3  # how far the line may leave the range of its neighbors, as a logarithm
# The standard deviation of the logarithm of a price grows with the distance to the nearest recorded call.
_LEAST_SPREAD: Final = 0.05
_SPREAD_PER_DISTANCE: Final = 0.1
_UNKNOWN_SPREAD: Final = 0.7  # of an op that was never recorded: within a factor of two
COLUMNS: Final = ("network", "family", "classes", "sizes", "ratio", "kernels")


class Recorded(NamedTuple):
    """A recorded call: the number of its network, its work, its time divided by its roofline, and its number of kernels."""

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


class PriceTable:
    """Recorded calls of one device. `source`: device, versions of torch and cuDNN, and date."""

    def __init__(self, rows: Iterable[Recorded], peaks: Peaks, source: str) -> None:
        by_family: dict[str, list[Recorded]] = defaultdict(list)
        for row in rows:
            by_family[row.family].append(row)
        self._families = {name: _columns(name, members) for name, members in by_family.items()}
        self.peaks = peaks
        self.source = source

    def price(self, work: Work, peaks: Peaks | None = None, *, without: int | None = None) -> Price:
        """The kernel time of `work` on a device with these `peaks` (default: those of the recorded one).

        `without`: do not use the calls of this network, to measure the error on networks that were not recorded.
        """
        roofline_ns = work.roofline_ns(peaks or self.peaks)
        family = self._families.get(work.family)
        if family is None:
            return Price(roofline_ns, _UNKNOWN_SPREAD, is_known=False)
        distances, steps = _distances(family, work)
        if without is not None:
            distances = np.where(family.network == without, np.inf, distances)
        distances, is_known = _comparable(family, work, distances)
        nearest = np.argpartition(distances, min(NEIGHBORS, len(distances) - 1))[:NEIGHBORS]
        nearest = nearest[np.isfinite(distances[nearest])]
        if not len(nearest):
            return Price(roofline_ns, _UNKNOWN_SPREAD, is_known=False)
        weights = 1 / (distances[nearest] + _CLOSE)
        is_free = family.kernels[nearest] == 0
        if weights @ is_free > weights.sum() / 2:
            return FREE
        working, weights = nearest[~is_free], weights[~is_free]
        center = _at_zero(steps[working], family.log_ratios[working], weights)
        spread = math.sqrt(float(weights @ (family.log_ratios[working] - center) ** 2 / weights.sum()))
        spread += _LEAST_SPREAD + _SPREAD_PER_DISTANCE * math.sqrt(float(distances[working].min()))
        spread = min(spread, _UNKNOWN_SPREAD) if is_known else _UNKNOWN_SPREAD
        kernels = float(weights @ family.kernels[working] / weights.sum())
        return Price(roofline_ns * math.exp(center), spread, is_known, kernels)


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


def _distances(family: _Family, work: Work) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The squared distance of each recorded call from `work`, and its parts: the difference in each size and in each class."""
    class_codes = np.array([code.get(text, -1) for code, text in zip(family.codes, work.classes, strict=True)])
    steps = np.hstack([family.sizes - np.array(work.sizes), (family.classes != class_codes) * family.weights])
    return (steps**2).sum(1), steps


def _comparable(family: _Family, work: Work, distances: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    """`distances`, infinite for calls that say nothing about `work`, and whether its op was recorded.

    An op is compared with its own calls. One that was never recorded is compared with others that launch kernels.
    """
    if work.classes[0] != work.op:  # products and convolutions of all kinds run the same kernels
        return distances, True
    is_own = (family.classes[:, 0] == family.codes[0].get(work.op, -1)) & np.isfinite(distances)
    if is_own.any():
        return np.where(is_own, distances, np.inf), True
    return np.where(family.kernels == 0, np.inf, distances), False


def _at_zero(steps: NDArray[Any], values: NDArray[Any], weights: NDArray[Any]) -> float:
    """The value at zero of the weighted least-squares plane through `values` at `steps`; its slopes are held back."""
    matrix = np.hstack([np.ones((len(steps), 1)), steps])
    penalty = np.eye(matrix.shape[1]) * _STIFFNESS * weights.mean()
    penalty[0, 0] = 1e-9
    weighted = matrix * weights[:, None]
    center = float(np.linalg.solve(matrix.T @ weighted + penalty, weighted.T @ values)[0])
    return min(max(center, float(values.min()) - _MARGIN), float(values.max()) + _MARGIN)


def read_table(data: bytes, peaks: Peaks) -> PriceTable:
    """The table in `data`: compressed CSV, with its source in the first line."""
    text = io.StringIO(gzip.decompress(data).decode())
    source = text.readline().removeprefix("# ").strip()
    return PriceTable((_row(line) for line in csv.DictReader(text)), peaks, source)


def _row(line: dict[str, str]) -> Recorded:
    sizes = tuple(map(float, line["sizes"].split()))
    classes = tuple(line["classes"].split())
    return Recorded(int(line["network"]), line["family"], classes, sizes, float(line["ratio"]), int(line["kernels"]))


def write_table(rows: Iterable[Recorded], source: str) -> bytes:
    """The bytes of a file that `read_table` reads. The same rows give the same bytes."""
    text = io.StringIO(newline="")
    text.write(f"# {source}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        sizes = " ".join(f"{size:.2f}".rstrip("0").rstrip(".") for size in row.sizes)
        writer.writerow([row.network, row.family, " ".join(row.classes), sizes, f"{row.ratio:.4g}", row.kernels])
    return gzip.compress(text.getvalue().encode(), 9, mtime=0)


@cache
def prices_for(device: Device) -> tuple[PriceTable, bool] | None:
    """The prices for `device`, and whether they were recorded on this very card; None where nothing can be said.

    A card without recordings takes the ratios of the one with the nearest compute capability, at its own datasheet peaks.
    """
    if device.peaks is None or not device.is_cuda:
        return None
    recorded = [card for card in devices() if card.prices is not None and card.peaks is not None]
    nearest = min(recorded, key=lambda card: abs(card.architecture.capability - device.architecture.capability))
    nearest = device if device in recorded else nearest
    assert nearest.peaks is not None
    assert nearest.prices is not None
    data = (resources.files("profiler_kit.devices") / "prices" / nearest.prices).read_bytes()
    return read_table(data, nearest.peaks), nearest is device
