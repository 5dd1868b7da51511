"""The syntax of --what-if."""

from __future__ import annotations

import pytest

from profiler_kit.records.variation import CHANGES, Variation, read_variations


def test_changes_by_comma_are_one_variation() -> None:
    read = read_variations("amp=bfloat16, optimizer=sgd,zero_grad=keep,batch=4,checkpoint=a.b+c")
    assert read == (
        Variation(
            amp="bfloat16", optimizer="sgd", zero_grad="keep", batch=4, checkpoint=("a.b", "c")
        ),
    )  # fmt: skip


@pytest.mark.parametrize("change", [change for change in CHANGES if change.bare], ids=lambda change: change.name)
def test_a_name_without_a_value_selects_all_of_its_values(change: object) -> None:
    name, bare = change.name, change.bare  # type: ignore[attr-defined]
    assert read_variations(name) == tuple(Variation(**change.read(value)) for value in bare)  # type: ignore[attr-defined]


def test_bare_names_are_crossed() -> None:
    assert len(read_variations("amp,optimizer")) == len(read_variations("amp")) * len(read_variations("optimizer"))


@pytest.mark.parametrize(
    "text", ["", "speed", "amp=int8", "batch", "batch=0", "batch=x", "zero_grad=maybe", "checkpoint="]
)
def test_an_invalid_change_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0] or "unknown change ''"):
        read_variations(text)


def test_off_turns_autocast_off() -> None:
    assert Variation(amp="off").of_target == {"amp": None}
    assert Variation().of_target == {}
    assert Variation(batch=3, optimizer="sgd").of_target == {"batch": 3, "optimizer": "sgd"}
