"""The words for kernel families cover what the classifier can say."""

from __future__ import annotations

from profiler_kit.records.families import WORDS, family_words
from profiler_kit.traces.kernels import classify, families


def test_every_family_has_words_and_none_is_left_over() -> None:
    assert families() == set(WORDS)


def test_words_are_words() -> None:
    assert len(set(WORDS.values())) == len(WORDS)
    for family, words in WORDS.items():
        assert words.strip() == words
        assert ":" not in words
        assert words != family or family in ("attention",)


def test_the_list_of_families_holds_what_names_are_classified_as() -> None:
    names = (
        "aten::addmm",
        "autograd::engine::evaluate_function: X",
        "ncclDevKernel_AllReduce",
        "nobody_knows",
        "aten::odd",
    )
    for name in names:
        assert classify(name).family in families()


def test_an_unknown_family_keeps_its_name() -> None:
    assert family_words("conv:of_tomorrow") == "conv:of_tomorrow"
