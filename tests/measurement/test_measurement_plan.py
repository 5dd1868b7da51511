"""The configurations of each device, their names, and the cost of algorithm search."""

from __future__ import annotations

import dataclasses

import pytest

from profiler_kit.configurations.naming import parse_config
from profiler_kit.errors import UsageError
from profiler_kit.measurement.plan import make_plan, with_memory_limit, with_tuning
from profiler_kit.records.configs import Backend, RunConfig
from profiler_kit.records.notes import Note
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import InputInfo, TargetInfo

INFO = TargetInfo(
    spec="net.py",
    name="Net",
    inputs=(InputInfo(name="x", shape=(8, 3, 16, 16), dtype="float32"),),
    mode="train",
    loss="auto",
    optimizer="adamw",
)


def names(configs: tuple[RunConfig, ...]) -> list[str]:
    return [config.name for config in configs]


def threads(patch: pytest.MonkeyPatch, count: int) -> None:
    patch.setattr("torch.get_num_threads", lambda: count)


def test_cuda_has_the_nine_valid_configurations_and_the_repetition() -> None:
    names = [c.name for c in make_plan("cudnn").configs]
    assert names == [
        "default", "benchmark", "deterministic", "benchmark+deterministic",
        "no-tf32", "benchmark+no-tf32", "deterministic+no-tf32", "benchmark+deterministic+no-tf32",
        "cudnn-off", "default (again)",
    ]  # fmt: skip


def test_no_two_configurations_have_the_same_flags() -> None:
    configs = make_plan("cudnn", again=False).configs
    assert len({dataclasses.replace(c, name="") for c in configs}) == len(configs)


@pytest.mark.parametrize(
    ("backend", "count", "word"),
    [("mps", 1, "Metal"), ("miopen", 5, "MIOpen")],
)
def test_other_devices_run_fewer_configurations_and_one_note_says_why(backend: Backend, count: int, word: str) -> None:
    made = make_plan(backend, again=False)
    assert len(made.configs) == count
    assert [word in note for note in map(str, made.notes)] == [True]
    assert all(note.endswith(".") for note in map(str, made.notes))


def test_a_cpu_has_a_note_on_cudnn_only_if_its_flags_are_requested() -> None:
    assert make_plan("cpu", again=False).notes == ()
    notes = [*map(str, make_plan("cpu", only=["benchmark"], again=False).notes)]
    assert ["have no effect on a CPU" in note for note in notes] == [True, False]


@pytest.mark.parametrize(("has_tf32", "float32"), [(False, True), (True, False)])
def test_tf32_configurations_are_skipped_where_the_flag_has_no_effect(has_tf32: bool, float32: bool) -> None:
    made = make_plan("cudnn", has_tf32=has_tf32, float32=float32)
    assert len(made.configs) == 6
    assert all(c.allow_tf32 is None for c in made.configs)
    assert len(made.notes) == 1


def test_a_model_without_a_cudnn_op_needs_one_configuration() -> None:
    made = make_plan("cudnn", uses_cudnn=False)
    assert [c.name for c in made.configs] == ["default"]
    assert "no convolution" in str(made.notes[0])


def test_only_keeps_the_order_of_the_plan() -> None:
    assert [c.name for c in make_plan("cudnn", only=["benchmark", "default"]).configs] == [
        "default",
        "benchmark",
        "default (again)",
    ]


def test_only_an_unknown_name_is_an_error_that_lists_the_choices() -> None:
    with pytest.raises(UsageError, match="'fastest'") as caught:
        make_plan("cudnn", only=["fastest"])
    assert caught.value.hint is not None
    assert "cudnn-off" in caught.value.hint


def test_only_with_a_configuration_without_effect_is_a_note() -> None:
    made = make_plan("cpu", only=["benchmark"])
    assert [c.name for c in made.configs] == ["default"]
    assert any("benchmark" in note and "default" in note for note in map(str, made.notes))


def test_only_accepts_any_name_and_drops_duplicates() -> None:
    made = make_plan("cudnn", only=["benchmark+batch=2X", "default", "batch=2x+benchmark", "default+benchmark"])
    assert names(made.configs) == ["default", "benchmark", "benchmark+batch=2x", "default (again)"]
    assert made.notes == ()


def test_also_adds_to_the_devices_own_and_nothing_twice() -> None:
    made = make_plan("cudnn", also=["benchmark", "channels_last", "channels_last+benchmark", "channels_last"])
    assert len(made.configs) == 9 + 2 + 1
    assert names(made.configs)[9:] == ["channels_last", "benchmark+channels_last", "default (again)"]


def test_a_flag_that_the_device_does_not_have_is_left_out_of_a_name() -> None:
    made = make_plan("cudnn", has_tf32=False, only=["default", "no-tf32+channels_last", "no-tf32"])
    assert names(made.configs) == ["default", "channels_last", "default (again)"]
    assert any(note.startswith("no-tf32+channels_last runs as channels_last") for note in map(str, made.notes))
    assert any(note.startswith("Skipped no-tf32:") for note in map(str, made.notes))


def test_flags_are_left_out_where_the_model_has_no_op_of_cudnns() -> None:
    made = make_plan("cudnn", uses_cudnn=False, also=["benchmark", "benchmark+no_item"])
    assert names(made.configs) == ["default", "no_item", "default (again)"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("batch=8", "already 8"),
        ("benchmark+batch=1.01x", "already 8"),
        ("threads=2", "a CUDA device"),
        ("amp_bf16", "already runs under bfloat16"),
        ("fused_optimizer", "inference has"),
        ("checkpoint=a", "inference saves nothing"),
        ("channels_last", "four or five dimensions"),
        ("dtype=float32", "already float32"),
        ("matmul_tf32", "matrix products run in bfloat16"),
        ("compile", "already compiled"),
    ],
)
def test_a_configuration_without_effect_is_a_note(name: str, reason: str) -> None:
    info = dataclasses.replace(
        INFO, inputs=(InputInfo(name="x", shape=(8, 4), dtype="float32"),), mode="infer", amp="bfloat16",
        notes=(Note(code="compiled_whole", text="the whole model is compiled"),),
    )  # fmt: skip
    made = make_plan("cudnn", only=["default"], also=[name], info=info)
    assert names(made.configs) == ["default"]
    assert [name in note and reason in note for note in map(str, made.notes)] == [True]


def test_a_cpu_has_optional_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 4)
    made = make_plan("cpu", info=INFO)
    assert names(made.configs) == ["default", "default (again)"]
    assert names(made.optional) == ["amp_bf16", "threads=half", "no_onednn", "channels_last"]


def test_optional_configurations_without_effect_are_dropped_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 1)
    flat = dataclasses.replace(INFO, inputs=(InputInfo(name="x", shape=(8, 4), dtype="float32"),), amp="bfloat16")
    made = make_plan("cpu", info=flat, uses_cudnn=False)
    assert (names(made.configs), made.optional, len(made.notes)) == (["default"], (), 0)


def test_a_named_configuration_is_not_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 4)
    made = make_plan("cpu", info=INFO, also=["threads=1", "amp_bf16"])
    assert names(made.configs) == ["default", "threads=1", "amp_bf16", "default (again)"]
    assert names(made.optional) == ["threads=half", "no_onednn", "channels_last"]


def test_default_alone_is_one_run() -> None:
    made = make_plan("cpu", only=["default"], info=INFO)
    assert (names(made.configs), made.optional) == (["default"], ())


def test_metal_has_optional_configurations() -> None:
    assert names(make_plan("mps", info=INFO).optional) == ["channels_last", "amp_fp16"]


def test_a_configuration_with_a_memory_limit() -> None:
    config = parse_config("benchmark+amp_bf16", make_plan("cudnn").configs[0])
    small = with_memory_limit(config, 3 << 29)
    assert small.name == "benchmark+amp_bf16+memory_limit=1536MiB"
    assert small == parse_config(small.name, make_plan("cudnn").configs[0])
    assert (
        with_memory_limit(dataclasses.replace(small, repeat_of="x"), 10**9).name
        == "benchmark+amp_bf16+memory_limit=1GB"
    )


def run(benchmark: bool, first: int | None, steady: int | None, *, deterministic: bool = False) -> ConfigRun:
    return ConfigRun(
        config=RunConfig(name="", enabled=True, benchmark=benchmark, deterministic=deterministic, allow_tf32=True),
        first_step_ns=first,
        step_ns=Interval(median=steady, low=steady, high=steady) if steady is not None else None,
    )


def test_tuning_is_the_time_that_benchmark_adds_to_the_first_step() -> None:
    tuned = with_tuning([run(False, 152, 26), run(True, 5088, 15), run(True, 900, 20, deterministic=True)])
    assert [r.tuning_ns for r in tuned] == [None, (5088 - 15) - (152 - 26), None]


def test_tuning_is_unknown_if_a_side_is_unknown() -> None:
    assert [r.tuning_ns for r in with_tuning([run(False, None, None), run(True, 5088, 15)])] == [None, None]


def named_run(name: str, first: int, steady: int) -> ConfigRun:
    config = parse_config(name.removesuffix(" (again)"), make_plan("cudnn").configs[0])
    if name.endswith("(again)"):
        config = dataclasses.replace(config, name=name, repeat_of=config.name)
    return ConfigRun(config=config, first_step_ns=first, step_ns=Interval(median=steady, low=steady, high=steady))


def test_the_twin_of_a_benchmark_run_has_the_same_settings() -> None:
    runs = [named_run("default", 152, 26), named_run("channels_last", 80, 20)]
    tuned = with_tuning([*runs, named_run("benchmark+channels_last", 900, 10), named_run("benchmark+amp_bf16", 700, 9)])
    assert [r.tuning_ns for r in tuned] == [None, None, (900 - 10) - (80 - 20), None]


def test_the_twin_ignores_axes_of_algorithm_search() -> None:
    tuned = with_tuning([named_run("default", 152, 26), named_run("benchmark_limit=2", 400, 16)])
    assert tuned[1].tuning_ns == (400 - 16) - (152 - 26)


def test_a_repetition_has_the_twin_that_its_own_run_has() -> None:
    tuned = with_tuning([named_run("default", 152, 26), named_run("benchmark (again)", 400, 16)])
    assert tuned[1].tuning_ns == (400 - 16) - (152 - 26)


def test_a_torch_without_cudnn_has_one_configuration_and_one_sentence() -> None:
    """Nine equal configurations would take nine times as long, and their differences would be noise."""
    bare = make_plan("native")
    assert [(c.name, c.enabled, c.benchmark, c.allow_tf32) for c in bare.configs] == [("default", None, None, None)]
    assert bare.optional == ()
    (note,) = map(str, bare.notes)
    assert "no cuDNN" in note
    asked = make_plan(
        "native", only=["default", "benchmark", "cudnn-off"], also=["no-tf32", "channels_last"], info=INFO
    )
    assert names(asked.configs) == ["default", "channels_last", "default (again)"]
    assert any(note.startswith("Skipped benchmark, cudnn-off, no-tf32:") for note in map(str, asked.notes))


def test_a_target_with_a_loader_of_its_own_has_no_batch_to_choose() -> None:
    info = TargetInfo(
        spec="net.py", name="Net", inputs=(InputInfo(name="x", shape=(8, 4), dtype="float32"),), mode="train", loss=None,
        optimizer=None,
    )  # fmt: skip
    free = make_plan("cpu", also=["batch=2x"], only=["default"], info=info)
    assert "batch=2x" in {config.name for config in free.configs}
    fed = make_plan("cpu", also=["batch=2x"], only=["default"], info=dataclasses.replace(info, has_loader=True))
    assert {config.name for config in fed.configs} == {"default"}
    assert any("loader" in note for note in map(str, fed.notes))
