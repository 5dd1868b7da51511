"""Models of the zoos, counted; each test is skipped where its zoo is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.counting import count_target
from profiler_kit.errors import TARGET_FAILED, USAGE, KitError
from profiler_kit.loading import load
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.target import Mode, TargetSpec
from profiler_kit.user_code.environment import define_missing_ops

SMALL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 101,
    "max_position_embeddings": 32, "tie_word_embeddings": False,
}  # fmt: skip


def zoo(name: str) -> Any:
    define_missing_ops()
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def count(spec: str, *kwargs: str, mode: Mode = "train", **options: Any) -> StaticCount:
    return count_target(load(TargetSpec(spec=spec, kwargs=kwargs, mode=mode, **options)))


def llama_macs(tokens: int) -> int:
    """Multiply-accumulates of `SMALL`'s forward, dense attention."""
    width, inner, half = 64, 96, 32
    layer = tokens * (2 * width * width + 2 * width * half + 3 * width * inner) + 2 * tokens * tokens * width
    return 2 * layer + tokens * width * 101


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_folder_with_a_config_is_a_target(mode: Mode, tmp_path: Path) -> None:
    zoo("transformers")
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    static = count(f"hf:{tmp_path}", mode=mode)
    assert static.device == "meta"
    assert static.uncounted == ()
    # rotary embeddings are a product of positions and frequencies, of 32 x 8
    assert static.forward.macs - llama_macs(32) in (0, 32 * 8)
    assert (static.backward.macs > 0) == (mode == "train")


def test_arguments_change_the_config_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    zoo("transformers")
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    one, two = (count(f"hf:{tmp_path}", f"num_hidden_layers={n}", mode="infer") for n in (1, 2))
    assert two.params > one.params
    with pytest.raises(KitError, match="num_hidden_layers") as told:
        count(f"hf:{tmp_path}", "num_hiden_layers=1")
    assert told.value.exit_code == USAGE


def test_the_loss_is_the_models_own_in_training(tmp_path: Path) -> None:
    zoo("transformers")
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    target = load(TargetSpec(spec=f"hf:{tmp_path}"))
    count_target(target)
    assert [given.name for given in target.info.inputs] == ["input_ids", "labels"]
    assert target.info.inputs_from == "config"


def test_a_repository_is_never_asked_for() -> None:
    zoo("transformers")
    with pytest.raises(KitError, match="nobody/has-this") as told:
        load(TargetSpec(spec="hf:nobody/has-this"))
    assert "config.json" in (told.value.hint or "")
    assert told.value.exit_code == TARGET_FAILED


@pytest.mark.parametrize("name", ["LamaConfig", "gpt3"])
def test_a_name_that_is_nearly_one_is_told_the_nearest(name: str) -> None:
    zoo("transformers")
    with pytest.raises(KitError, match="did you mean"):
        load(TargetSpec(spec=f"hf:{name}"))


TINY = ("hidden_size=32", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=32")


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("BertForMaskedLM", TINY),
        ("ViTForImageClassification", (*TINY, "image_size=32")),
        ("t5", ("d_model=32", "d_kv=8", "d_ff=32", "num_layers=1", "num_heads=2")),
        ("MixtralForCausalLM", (*TINY, "num_key_value_heads=1", "num_local_experts=2", "vocab_size=64")),
        ("Wav2Vec2ForSequenceClassification", (*TINY, "conv_dim=[8,8]", "conv_kernel=[10,3]", "conv_stride=[5,2]")),
    ],
)  # fmt: skip
def test_a_training_step_of_every_kind_of_model_is_counted_whole(name: str, kwargs: tuple[str, ...]) -> None:
    zoo("transformers")
    static = count(f"hf:{name}", *kwargs)
    assert static.uncounted == ()
    assert static.forward.macs > 0
    assert static.backward.macs > static.forward.macs


def test_counts_do_not_depend_on_chance() -> None:
    zoo("transformers")
    one, two = (count("hf:Wav2Vec2ForSequenceClassification", *TINY, "layerdrop=0.5") for _ in range(2))
    assert one == two


PUBLISHED = ("resnet18", "mobilenet_v3_small", "vit_b_16", "swin_t", "r3d_18", "shufflenet_v2_x0_5", "convnext_tiny")


@pytest.mark.parametrize("name", PUBLISHED)
def test_torchvision_agrees_with_what_it_publishes(name: str) -> None:
    torchvision = zoo("torchvision")
    meta = torchvision.models.get_model_weights(name).DEFAULT.meta
    static = count(f"torchvision:{name}", mode="infer")
    assert static.params == meta["num_params"]
    assert static.forward.macs / 1e9 == pytest.approx(meta["_ops"], rel=1e-3, abs=1e-3)


def test_torchvision_says_which_names_are_near() -> None:
    zoo("torchvision")
    with pytest.raises(KitError, match="resnet1"):
        load(TargetSpec(spec="torchvision:resnet19"))


def test_timm_models_take_the_size_they_were_made_for() -> None:
    zoo("timm")
    target = load(TargetSpec(spec="timm:vit_tiny_patch16_384"))
    assert target.info.inputs[0].shape == (1, 3, 384, 384)
    with pytest.raises(KitError, match="timm has no model"):
        load(TargetSpec(spec="timm:no_such_net"))
