"""Prices from recorded calls: tables by hand, and the ones that are shipped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.prices import FREE, FamilyPrices, PriceTable, prices_for, read_table, write_table
from profiler_kit.forecast.trees import LEAF, Trees
from profiler_kit.forecast.work import Work, work_of
from profiler_kit.records.calls import OpCall, TensorFacts

PEAKS = H100.peaks
assert PEAKS is not None
# Two small trees: below 2^16 elements (column 0) a ratio of 4, above it 2.
BY_SIZE = Trees.of_columns({
    "feature": [0, LEAF, LEAF, 0, LEAF, LEAF],
    "number": [16.0, math.log(2), 0.0, 30.0, math.log(2), math.log(2)],
    "right": [2, 2],
})  # fmt: skip


def constant(value: float) -> Trees:
    """A tree with one leaf."""
    return Trees.of_columns({"feature": [LEAF], "number": [value], "right": []})


def family(work: Work, ratio: Trees, *, ops: Mapping[str, bool], spread: float = 0.1) -> FamilyPrices:
    """Prices of a family with the classes of `work`."""
    texts = tuple({text: 0.0} for text in work.classes)
    return FamilyPrices(texts, ratio, constant(spread), constant(0.0), ops)


def add(numel: int, op: str = "aten.add") -> Work:
    """A pointwise sum of `numel` elements."""
    tensor = TensorFacts((numel,), (1,), "float32", 4)
    work = work_of(OpCall(op, (tensor, tensor), outputs=(tensor,)))
    assert work is not None
    return work


def table_of(ratio: Trees = BY_SIZE) -> PriceTable:
    """A table with recorded sums and views."""
    prices = family(add(8), ratio, ops={"aten.add": True, "aten.view": False})
    return PriceTable({"memory": prices}, PEAKS, "by hand")


@pytest.mark.parametrize(("numel", "ratio"), [(1 << 12, 4.0), (1 << 16, 4.0), (1 << 17, 2.0), (1 << 28, 2.0)])
def test_the_price_is_the_ideal_time_times_the_ratio(numel: int, ratio: float) -> None:
    price = table_of().price(add(numel))
    assert price.ns == pytest.approx(ratio * add(numel).ideal_ns(PEAKS))
    assert (price.is_known, price.spread, price.kernels) == (True, 0.1, 1.0)


def test_equal_works_have_one_price_and_each_its_own() -> None:
    works = [add(1 << 20), add(1 << 12), add(1 << 20)]
    table = table_of()
    assert table.prices(works) == {work: table.price(work) for work in works}
    assert table.prices([]) == {}


def test_an_op_that_was_never_recorded_is_estimated() -> None:
    price = table_of().price(add(1 << 12, "aten.strange"))
    assert not price.is_known
    assert price.spread > 0.5
    assert price.ns > 0
    assert PriceTable({}, PEAKS, "").price(add(8)).ns == add(8).ideal_ns(PEAKS)


def test_an_op_without_kernels_is_free() -> None:
    assert table_of().price(add(1 << 12, "aten.view")) == FREE


def test_another_card_has_its_own_roofline() -> None:
    table = table_of(constant(math.log(2)))
    half = replace(PEAKS, bandwidth=PEAKS.bandwidth / 2)
    assert table.price(add(1 << 28), half).ns == pytest.approx(2 * table.price(add(1 << 28)).ns, rel=0.01)


def test_a_table_is_read_as_it_was_written() -> None:
    families = {"memory": family(add(8), BY_SIZE, ops={"aten.add": True})}
    data = write_table(families, "a card, 2026")
    assert data == write_table(families, "a card, 2026")
    table = read_table(data, PEAKS)
    assert table.source == "a card, 2026"
    works = [add(1 << power) for power in range(8, 32)]
    assert table.prices(works) == PriceTable(families, PEAKS, "").prices(works)


def test_trees_are_those_that_were_fitted() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    import numpy as np

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(2000, 3))
    values = np.where(rows[:, 0] > 0, rows[:, 1], 2.0) + np.abs(rows[:, 2])
    model = lightgbm.LGBMRegressor(n_estimators=30, verbose=-1, n_jobs=1).fit(rows, values)
    trees = Trees.of_lightgbm(model.booster_.dump_model()["tree_info"])
    assert len(trees.roots) == 30
    assert trees.predict(rows) == pytest.approx(model.predict(rows), abs=0.01)
    assert Trees.of_columns(trees.columns()).predict(rows) == pytest.approx(trees.predict(rows))


def test_every_card_with_peaks_has_prices_of_its_own_or_of_the_nearest_one() -> None:
    own = prices_for(H100)
    assert own is not None
    assert own[1]
    assert "H100" in own[0].source
    for device in devices():
        if device is not H100 and device.is_cuda and device.peaks is not None:
            scaled = prices_for(device)
            assert scaled is not None
            assert scaled[1] == bool(device.price_factors)
    assert prices_for(CPU) is None


def test_a_card_with_factors_has_its_own_times() -> None:
    card = next(device for device in devices() if device.price_factors)
    plain, adjusted = prices_for(H100), prices_for(card)
    assert plain is not None
    assert adjusted is not None
    work = add(1 << 24)
    factor = dict(card.price_factors)[work.family]
    assert adjusted[0].price(work, card.peaks).ns == pytest.approx(factor * plain[0].price(work, card.peaks).ns)
    assert adjusted[0].source == f"{card.factors_source}; {plain[0].source}"


def test_a_large_copy_on_an_h100_runs_near_its_bandwidth() -> None:
    prices = prices_for(H100)
    assert prices is not None
    price = prices[0].price(add(1 << 27))
    assert math.log2(price.ns / add(1 << 27).ideal_ns(PEAKS)) == pytest.approx(0.2, abs=0.3)
