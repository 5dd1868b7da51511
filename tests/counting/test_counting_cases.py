"""Every hand-derived case, exactly, on meta tensors and on real ones."""

from __future__ import annotations

from types import ModuleType

import cases_attention
import cases_convolution
import cases_other
import cases_products
import cases_recurrent
import pytest
import torch
from case_table import Case, On
from counting_ops import counted

NEWEST = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)  # older ones lack some of the ops
TABLES: dict[str, ModuleType] = {
    "product": cases_products,
    "convolution": cases_convolution,
    "attention": cases_attention,
    "recurrent": cases_recurrent,
    "other": cases_other,
}
ALL: dict[str, Case] = {f"{family}: {one.name}": one for family, table in TABLES.items() for one in table.CASES}
RUNS = [pytest.param(one, device, id=f"{name} [{device}]") for name, one in ALL.items() for device in one.devices]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("one", "device"), RUNS)
def test_exact(one: Case, device: str) -> None:
    try:
        function, *args = one.build(On(device))
        found = counted(function, *args, backward=one.backward is not None)
    except (AttributeError, NotImplementedError, TypeError) as error:
        if NEWEST:
            raise
        pytest.skip(f"torch {torch.__version__} cannot do it: {error}")
    assert found.uncounted == ()
    assert found.forward.macs == one.macs
    if one.flops is not None:
        assert found.forward.flops == one.flops
    if one.backward is not None:
        assert found.backward.macs == one.backward
    if one.backward_flops is not None:
        assert found.backward.flops == one.backward_flops


def test_the_library_is_large_and_its_names_are_distinct() -> None:
    assert len(ALL) == sum(len(table.CASES) for table in TABLES.values())
    assert len(ALL) >= 150
