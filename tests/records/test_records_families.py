"""Every family that the classifier returns has a display name."""

from __future__ import annotations

from profiler_kit.records.families import FAMILY_NAMES, family_name
from profiler_kit.traces.kernels import classify, families


def test_every_family_has_a_display_name() -> None:
    assert families() == set(FAMILY_NAMES)


def test_display_names_are_distinct_plain_words() -> None:
    assert len(set(FAMILY_NAMES.values())) == len(FAMILY_NAMES)
    for family, words in FAMILY_NAMES.items():
        assert words.strip() == words
        assert ":" not in words
        assert words != family or family in ("attention",)


def test_the_classifier_returns_listed_families() -> None:
    names = (
        "aten::addmm",
        "autograd::engine::evaluate_function: X",
        "ncclDevKernel_AllReduce",
        "unlisted_name",
        "aten::odd",
    )
    for name in names:
        assert classify(name).family in families()


def test_an_unknown_family_keeps_its_name() -> None:
    assert family_name("conv:new_in_2030") == "conv:new_in_2030"
