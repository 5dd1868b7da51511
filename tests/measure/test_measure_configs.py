"""Which configurations run where, what they are called, and what tuning cost."""

from __future__ import annotations

import dataclasses

import pytest

from profiler_kit.errors import UsageError
from profiler_kit.measure.configs import AGAIN, Backend, plan, with_tuning
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval


def test_cuda_has_the_nine_valid_configurations_and_the_repetition() -> None:
    names = [c.name for c in plan("cudnn").configs]
    assert names == [
        "default", "benchmark", "deterministic", "benchmark+deterministic",
        "no-tf32", "benchmark+no-tf32", "deterministic+no-tf32", "benchmark+deterministic+no-tf32",
        "cudnn-off", AGAIN,
    ]  # fmt: skip


def test_no_two_configurations_have_the_same_flags() -> None:
    configs = plan("cudnn", again=False).configs
    assert len({dataclasses.replace(c, name="") for c in configs}) == len(configs)


@pytest.mark.parametrize(
    ("backend", "count", "word"),
    [("cpu", 1, "oneDNN"), ("mps", 1, "Metal"), ("miopen", 6, "MIOpen")],
)
def test_elsewhere_rows_collapse_and_one_sentence_says_why(backend: Backend, count: int, word: str) -> None:
    made = plan(backend)
    assert len(made.configs) == count
    assert [word in note for note in made.notes] == [True]
    assert all(note.endswith(".") for note in made.notes)


@pytest.mark.parametrize(("has_tf32", "float32"), [(False, True), (True, False)])
def test_tf32_rows_go_where_the_flag_changes_nothing(has_tf32: bool, float32: bool) -> None:
    made = plan("cudnn", has_tf32=has_tf32, float32=float32)
    assert len(made.configs) == 6
    assert all(c.allow_tf32 is None for c in made.configs)
    assert len(made.notes) == 1


def test_a_model_without_a_cudnn_op_needs_one_configuration() -> None:
    made = plan("cudnn", uses_cudnn=False)
    assert [c.name for c in made.configs] == ["default"]
    assert "no convolution" in made.notes[0]


def test_only_keeps_the_named_ones_in_the_plan_s_order() -> None:
    assert [c.name for c in plan("cudnn", only=["benchmark", "default"]).configs] == ["default", "benchmark", AGAIN]


def test_only_an_unknown_name_is_an_error_that_lists_the_choices() -> None:
    with pytest.raises(UsageError, match="no configuration 'fastest'") as caught:
        plan("cudnn", only=["fastest"])
    assert caught.value.hint is not None
    assert "cudnn-off" in caught.value.hint


def test_only_a_configuration_that_means_nothing_here_is_a_note() -> None:
    made = plan("cpu", only=["benchmark"])
    assert [c.name for c in made.configs] == ["default"]
    assert any("benchmark" in note and "same as default" in note for note in made.notes)


def run(benchmark: bool, first: int | None, steady: int | None, *, deterministic: bool = False) -> ConfigRun:
    return ConfigRun(
        config=RunConfig(name="", enabled=True, benchmark=benchmark, deterministic=deterministic, allow_tf32=True),
        first_step_ns=first,
        step_ns=Interval(median=steady, low=steady, high=steady) if steady is not None else None,
    )


def test_tuning_is_what_benchmark_adds_to_the_first_step() -> None:
    tuned = with_tuning([run(False, 152, 26), run(True, 5088, 15), run(True, 900, 20, deterministic=True)])
    assert [r.tuning_ns for r in tuned] == [None, (5088 - 15) - (152 - 26), None]


def test_tuning_is_unknown_where_a_side_is() -> None:
    assert [r.tuning_ns for r in with_tuning([run(False, None, None), run(True, 5088, 15)])] == [None, None]
