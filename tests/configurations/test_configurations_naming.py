"""Names of configurations: read, printed, read again; and every wrong one told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import profiler_kit.configurations.axes as family
from profiler_kit.configurations.axis import ON, Axis
from profiler_kit.configurations.naming import CUDNN_FLAGS, all_axes, axis_syntax, config_choices, name_of, parse_config
from profiler_kit.errors import UsageError
from profiler_kit.records.configs import RunConfig

CUDA = RunConfig(name="default", enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
CPU = RunConfig(name="default")

# Values that an axis takes beside its bare name; an axis that is not here has a line to add.
VALUES = {
    "batch": st.one_of(
        st.integers(1, 2**31 - 1).map(str), st.sampled_from(["2x", "0.5x", "0.25x", "1.5X", "3.000x", "000.5x"])
    ),
    "compile": st.sampled_from(["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]),
    "checkpoint": st.from_regex(r"[a-z][a-z_0-9]{0,5}(\.[a-z0-9]{1,3}){0,3}", fullmatch=True),
    "benchmark_limit": st.integers(0, 1000).map(str),
    "memory_limit": st.one_of(
        st.integers(1, 2**40).map(str),
        st.tuples(st.integers(1, 999), st.sampled_from(["GiB", "MB", "kib", " GB"])).map(lambda p: f"{p[0]}{p[1]}"),
        st.sampled_from(["1.5GiB", "0.7gib", "123.456MB"]),
    ),
    "bucket_mb": st.integers(1, 100_000).map(str),
    "loader_workers": st.integers(0, 1024).map(str),
    "threads": st.one_of(st.just("half"), st.integers(1, 4096).map(str)),
    "dtype": st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
}


def word_of(axis: Axis) -> st.SearchStrategy[str]:
    written = [st.just(axis.name)] if axis.bare else []
    if axis.values:
        written.append(VALUES[axis.name].map(lambda value: f"{axis.name}={value}"))
    return st.one_of(written)


@st.composite
def names(draw: st.DrawFn) -> str:
    words = list(draw(st.sets(st.sampled_from(sorted(CUDNN_FLAGS)))))
    axes = draw(st.lists(st.sampled_from(all_axes()), unique_by=lambda axis: axis.name, max_size=5))
    for axis in axes:
        if not any(axis.name in other.excludes for other in axes):
            words += [draw(word_of(axis)) for _ in range(draw(st.integers(1, 3)) if axis.several else 1)]
    return "+".join(draw(st.permutations(words))) or "default"


@given(name=names(), plain=st.sampled_from([CUDA, CPU]))
def test_a_name_is_read_printed_and_read_again(name: str, plain: RunConfig) -> None:
    config = parse_config(name, plain)
    assert config.name == name_of(config)
    assert parse_config(config.name, plain) == config
    assert [item.name for item in config.settings] == sorted(item.name for item in config.settings)
    assert parse_config("+".join(reversed(config.name.split("+"))), plain) == config


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("default", "default"),
        ("no-tf32 + deterministic+benchmark", "benchmark+deterministic+no-tf32"),
        ("cudnn-off+benchmark", "cudnn-off"),
        ("channels_last+benchmark", "benchmark+channels_last"),
        ("batch=2.0X", "batch=2x"),
        ("batch=016", "batch=16"),
        ("compile=default", "compile"),
        ("checkpoint=b+checkpoint=a.0+checkpoint=b", "checkpoint=a.0+checkpoint=b"),
        ("memory_limit=1024MiB", "memory_limit=1GiB"),
        ("memory_limit=1.5GiB", "memory_limit=1536MiB"),
        ("memory_limit=500000kb", "memory_limit=500MB"),
        ("memory_limit=12345", "memory_limit=12345B"),
        ("benchmark_limit=3", "benchmark+benchmark_limit=3"),
    ],
)
def test_what_a_name_is_printed_as(name: str, printed: str) -> None:
    assert parse_config(name, CUDA).name == printed


def test_a_flag_means_nothing_where_there_is_no_such_choice() -> None:
    assert parse_config("benchmark+no-tf32+cudnn-off+batch=2", CPU) == parse_config("batch=2", CPU)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fastest", "'fastest'"),
        ("default+", "unknown word ''"),
        ("benchmark=1", "unknown word 'benchmark=1'"),
        ("default (again)", "unknown word"),
        ("channels_last=2", "does not take a value"),
        ("no_item=", "needs a value"),
        ("batch", "needs a value"),
        ("batch=", "needs a value"),
        ("batch=0", "not a number from 1"),
        ("batch=-1", "neither a number of rows"),
        ("batch=1.5", "neither a number of rows"),
        ("batch=99999999999", "neither a number of rows"),
        ("batch=9999999999", "not a number from 1"),
        ("batch=0x", "empty batch"),
        ("batch=1x", "does not change the batch"),
        ("batch=2+batch=4", "batch is set twice"),
        ("compile=fast", "default, reduce-overhead"),
        ("amp_bf16+amp_fp16", "exclude each other"),
        ("dtype=half", "not one of float32"),
        ("checkpoint", "needs a value"),
        ("checkpoint=a=b", "not a module path"),
        ("checkpoint=a b", "not a module path"),
        ("memory_limit", "needs a value"),
        ("memory_limit=much", "is not bytes"),
        ("memory_limit=0", "at least 1 byte"),
        ("benchmark_limit=-1", "not a number of algorithms"),
        ("benchmark_limit=all", "not a number of algorithms"),
        ("threads=0", "neither a number of threads nor"),
        ("threads", "needs a value"),
    ],
)
@pytest.mark.parametrize("plain", [CUDA, CPU], ids=["cuda", "cpu"])
def test_a_name_that_makes_no_sense_is_one_clear_message(name: str, said: str, plain: RunConfig) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(name, plain)
    assert said in caught.value.message
    assert "\n" not in str(caught.value).replace("\nhint: ", "")
    assert caught.value.hint


@given(st.text(max_size=20))
def test_any_text_is_a_configuration_or_a_usage_error(text: str) -> None:
    try:
        config = parse_config(text, CUDA)
    except UsageError:
        return
    assert parse_config(config.name, CUDA) == config


@given(axis=st.sampled_from(all_axes()), value=st.text(min_size=1, max_size=12))
def test_any_value_of_an_axis_is_read_for_good_or_refused(axis: Axis, value: str) -> None:
    try:
        read = axis.parse_value(value)
    except ValueError:
        return
    assert axis.parse_value(read) == read
    assert not set(read) & set("+,=")


@pytest.mark.parametrize("axis", all_axes(), ids=lambda axis: axis.name)
def test_every_axis_can_be_told(axis: Axis) -> None:
    assert axis.devices <= {"cuda", "cpu", "mps"}
    assert axis.devices
    assert axis.doc
    assert "\n" not in axis.doc
    assert axis_syntax(axis) in config_choices()
    assert axis.flag in {"", *CUDNN_FLAGS}
    assert axis.excludes <= {other.name for other in all_axes()} - {axis.name}
    assert any(part is not None for part in (axis.process, axis.spec, axis.runner, axis.replicas))
    if axis.bare:
        assert axis.parse_value(axis.bare) == ON


def test_a_newcomer_adds_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warping.py").write_text(
        "from profiler_kit.configurations.axis import Axis\n"
        "AXES = (Axis(name='warp', values='N', bare='', doc='faster', devices=frozenset({'cpu'}), parse_value=lambda v: v),)\n"
    )
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    assert parse_config("warp=9", CPU).name == "warp=9"
    assert "warp=N" in config_choices()


@pytest.mark.parametrize("text", ["AXES = None\n", "AXES = ('channels_last',)\n", "x = 1\n"])
def test_a_file_without_axes_is_told(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"no_axes_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    with pytest.raises(TypeError, match=rf"{name}\.py: .*AXES"):
        all_axes()


def test_two_axes_of_one_name_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zz_again.py").write_text("from profiler_kit.configurations.axes.batch import AXES as AXES\n")
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    with pytest.raises(TypeError, match="'batch'"):
        all_axes()
