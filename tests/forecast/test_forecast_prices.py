"""Prices from recorded calls: tables by hand, and the ones that are shipped."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.prices import FREE, PriceTable, Recorded, prices_for, read_table, write_table
from profiler_kit.forecast.work import Work, work_of
from profiler_kit.records.calls import OpCall, TensorFacts

PEAKS = H100.peaks
assert PEAKS is not None


def add(numel: int, op: str = "aten.add") -> Work:
    """A pointwise sum of `numel` elements."""
    tensor = TensorFacts((numel,), (1,), "float32", 4)
    work = work_of(OpCall(op, (tensor, tensor), outputs=(tensor,)))
    assert work is not None
    return work


def recorded(work: Work, ratio: float, network: int = 0, kernels: int = 1) -> Recorded:
    """A recorded call of `work`."""
    return Recorded(network, work.family, work.classes, work.sizes, ratio, kernels)


def test_a_recorded_call_has_its_recorded_time() -> None:
    rows = [recorded(add(1 << power), 1 + power / 10) for power in range(10, 26)]
    table = PriceTable.of_rows(rows, PEAKS, "by hand")
    price = table.price(add(1 << 20))
    assert price.ns == pytest.approx(3.0 * add(1 << 20).ideal_ns(PEAKS), rel=0.05)
    assert price.is_known
    assert price.spread < 0.3


def test_a_size_between_two_recorded_ones_lies_between_them() -> None:
    table = PriceTable.of_rows([recorded(add(1 << power), 2.0) for power in range(10, 26)], PEAKS, "")
    for numel in (3 << 12, 5 << 16, 1 << 30):
        assert table.price(add(numel)).ns == pytest.approx(2.0 * add(numel).ideal_ns(PEAKS), rel=0.02)


def test_calls_far_from_all_recorded_ones_are_less_certain() -> None:
    table = PriceTable.of_rows([recorded(add(1 << power), 2.0) for power in range(10, 16)], PEAKS, "")
    assert table.price(add(1 << 28)).spread > table.price(add(1 << 12)).spread + 0.3


def test_an_op_that_was_never_recorded_is_estimated() -> None:
    table = PriceTable.of_rows([recorded(add(1 << power), 2.0) for power in range(10, 16)], PEAKS, "")
    price = table.price(add(1 << 12, "aten.strange"))
    assert not price.is_known
    assert price.ns > 0
    assert PriceTable.of_rows([], PEAKS, "").price(add(8)).ns == add(8).ideal_ns(PEAKS)


def test_an_op_without_kernels_is_free() -> None:
    rows = [recorded(add(1 << power, "aten.view"), 0.0, kernels=0) for power in range(10, 16)]
    rows += [recorded(add(1 << power), 2.0) for power in range(10, 16)]
    table = PriceTable.of_rows(rows, PEAKS, "")
    assert table.price(add(1 << 12, "aten.view")) == FREE
    assert table.price(add(1 << 12)).ns > 0


def test_a_network_can_be_left_out() -> None:
    rows = [
        recorded(add(1 << 12), 9.0, network=1),
        *(recorded(add(1 << power), 2.0, network=2) for power in range(10, 20)),
    ]
    table = PriceTable.of_rows(rows, PEAKS, "")
    roofline = add(1 << 12).ideal_ns(PEAKS)
    assert table.price(add(1 << 12), without=1).ns == pytest.approx(2 * roofline, rel=0.02)
    assert table.price(add(1 << 12)).ns > 2.2 * roofline


def test_another_card_has_its_own_roofline() -> None:
    table = PriceTable.of_rows([recorded(add(1 << power), 2.0) for power in range(10, 30)], PEAKS, "")
    half = replace(PEAKS, bandwidth=PEAKS.bandwidth / 2)
    assert table.price(add(1 << 28), half).ns == pytest.approx(2 * table.price(add(1 << 28)).ns, rel=0.01)


def test_a_table_is_read_as_it_was_written() -> None:
    rows = [recorded(add(1 << power), 2.125, network=power) for power in range(10, 16)]
    data = write_table(rows, "a card, 2026")
    assert data == write_table(rows, "a card, 2026")
    table = read_table(data, PEAKS)
    assert table.source == "a card, 2026"
    assert table.price(add(1 << 12)).ns == pytest.approx(
        PriceTable.of_rows(rows, PEAKS, "").price(add(1 << 12)).ns, rel=1e-3
    )


def test_every_card_with_peaks_has_prices_of_its_own_or_of_the_nearest_one() -> None:
    own = prices_for(H100)
    assert own is not None
    assert own[1]
    assert "H100" in own[0].source
    others = [device for device in devices() if device is not H100 and device.is_cuda and device.peaks is not None]
    # one of each generation, and those with factors of their own: reading the table takes a tenth of a second
    for device in {(device.architecture, device.price_factors): device for device in others}.values():
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
