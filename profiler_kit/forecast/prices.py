"""The price of an op: its kernel time, by the calls that were recorded.

The price is the ideal time of a call times a ratio. The ratio is that of recorded calls, as regression trees have learned it from
what decides about a kernel (`work`). It is smoother than times, and holds for sizes beyond the recorded ones.

Example: a product of 4096x1024x3000 in bfloat16 lies between recorded ones of 4096x1024x2048 (ratio 1.6) and 4096x1024x4096
(1.5), so it takes about 1.55 times as long as its ideal time.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.devices.device import Device, Peaks
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.trees import Trees
from profiler_kit.forecast.work import Work

_UNKNOWN_SPREAD: Final = 0.7  # of an op that was never recorded: within a factor of two
_UNSEEN: Final = -1.0  # the number of a text that was never recorded


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
class FamilyPrices:
    """What the recorded calls of a family of ops say.

    - `texts`: for each class of `Work`, the number of each recorded text. Texts of like calls have near numbers.
    - `ratio`: the logarithm of the ratio of the time to the ideal time.
    - `spread`: the standard deviation of that logarithm on networks that were left out.
    - `kernels`: the logarithm of the number of kernels of a call.
    - `ops`: the recorded ones, and whether they launch kernels.
    """

    texts: tuple[Mapping[str, float], ...]
    ratio: Trees
    spread: Trees
    kernels: Trees
    ops: Mapping[str, bool]

    def rows(self, works: Sequence[Work]) -> NDArray[np.float64]:
        """The numbers that the trees compare, a row for each work."""
        return np.array([
            (
                *work.sizes, *work.amounts,
                *(numbers.get(text, _UNSEEN) for numbers, text in zip(self.texts, work.classes, strict=True)),
            )
            for work in works
        ])  # fmt: skip

    def prices(self, works: Sequence[Work], ideal_ns: NDArray[np.float64]) -> list[Price]:
        """The price of each work."""
        rows = self.rows(works)
        ns = ideal_ns * np.exp(self.ratio.predict(rows))
        kernels = np.exp(self.kernels.predict(rows))
        figures = zip(works, ns.tolist(), self.spread.predict(rows).tolist(), kernels.tolist(), strict=True)
        return [self._price(*figure) for figure in figures]

    def _price(self, work: Work, ns: float, spread: float, kernels: float) -> Price:
        # Products and convolutions of all kinds run the same kernels.
        is_known = work.op in self.ops or work.classes[0] != work.op
        if not self.ops.get(work.op, True):
            return FREE
        return Price(ns, min(spread, _UNKNOWN_SPREAD) if is_known else _UNKNOWN_SPREAD, is_known, max(kernels, 1.0))


class PriceTable:
    """What the recorded calls of one device say. `source`: device, versions of torch and cuDNN, and date.

    `factors`: what the prices of each family of ops are multiplied by, for another device.
    """

    def __init__(
        self,
        families: Mapping[str, FamilyPrices],
        peaks: Peaks,
        source: str,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self._families = families
        self.peaks = peaks
        self.source = source
        self._factors = factors or {}

    def adjusted(self, device: Device) -> PriceTable:
        """The prices of these calls for `device`, by its `price_factors`."""
        source = f"{device.factors_source}; {self.source}"
        return PriceTable(self._families, self.peaks, source, dict(device.price_factors))

    def price(self, work: Work, peaks: Peaks | None = None) -> Price:
        """The kernel time of `work` on a device with these `peaks` (default: those of the recorded one)."""
        return self.prices([work], peaks)[work]

    def prices(self, works: Sequence[Work], peaks: Peaks | None = None) -> dict[Work, Price]:
        """The kernel time of each of `works` on a device with these `peaks` (default: those of the recorded one)."""
        by_family: dict[str, list[Work]] = defaultdict(list)
        for work in dict.fromkeys(works):
            by_family[work.family].append(work)
        prices: dict[Work, Price] = {}
        for name, members in by_family.items():
            ideal_ns = np.array([work.ideal_ns(peaks or self.peaks) for work in members])
            family = self._families.get(name)
            if family is None:
                found = [Price(ns, _UNKNOWN_SPREAD, is_known=False) for ns in ideal_ns.tolist()]
            else:
                found = family.prices(members, ideal_ns * self._factors.get(name, 1.0))
            prices.update(zip(members, found, strict=True))
        return prices


def read_table(data: bytes, peaks: Peaks) -> PriceTable:
    """The table in `data`, which `write_table` wrote."""
    content = json.loads(gzip.decompress(data))
    return PriceTable(
        {name: _read_family(columns) for name, columns in content["families"].items()}, peaks, content["source"]
    )


def _read_family(columns: Mapping[str, Any]) -> FamilyPrices:
    ratio, spread, kernels = (Trees.of_columns(columns[name]) for name in ("ratio", "spread", "kernels"))
    return FamilyPrices(tuple(columns["texts"]), ratio, spread, kernels, columns["ops"])


def write_table(families: Mapping[str, FamilyPrices], source: str) -> bytes:
    """The bytes of a file that `read_table` reads: compressed JSON. The same families give the same bytes."""
    content = {
        name: {
            "texts": family.texts,
            "ratio": family.ratio.columns(),
            "spread": family.spread.columns(),
            "kernels": family.kernels.columns(),
            "ops": family.ops,
        }
        for name, family in families.items()
    }
    text = json.dumps({"source": source, "families": content}, separators=(",", ":"))
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
