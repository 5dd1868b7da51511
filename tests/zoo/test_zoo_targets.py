"""Zoo targets without a zoo: what is said where a package, a config or a name is missing, and inputs made up from a config."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.errors import TARGET_FAILED, USAGE, KitError
from profiler_kit.loading import load
from profiler_kit.loading.inputs import parse_inputs
from profiler_kit.loading.zoo.transformers_inputs import random_inputs
from profiler_kit.loading.zoo.transformers_models import offline
from profiler_kit.meta.batch import forward_of
from profiler_kit.records.target import TargetSpec


@pytest.mark.parametrize(("zoo", "package"), [("hf", "transformers"), ("timm", "timm"), ("torchvision", "torchvision")])
def test_a_zoo_that_is_not_installed_says_how_to_install_it(
    zoo: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KitError) as told:
        load(TargetSpec(spec=f"{zoo}:some_model"))
    assert package in told.value.message
    assert "pip install" in (told.value.hint or "")
    assert ("--no-deps" in (told.value.hint or "")) == (zoo != "hf")  # transformers does not depend on torch
    assert told.value.exit_code == TARGET_FAILED


def test_a_zoo_without_a_name_is_a_usage_error() -> None:
    with pytest.raises(KitError, match="hf:") as told:
        load(TargetSpec(spec="hf:"))
    assert told.value.exit_code == USAGE


def test_the_hub_is_offline_while_it_lasts_and_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "0")
    constants = SimpleNamespace(HF_HUB_OFFLINE=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)  # type: ignore[arg-type]

    def fails_inside() -> None:
        with offline():
            assert os.environ["HF_HUB_OFFLINE"] == "1"
            assert constants.HF_HUB_OFFLINE
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fails_inside()
    assert "HF_HUB_OFFLINE" not in os.environ
    assert os.environ["TRANSFORMERS_OFFLINE"] == "0"
    assert not constants.HF_HUB_OFFLINE


class Config(SimpleNamespace):
    """As much of a transformers config as making up inputs asks for."""

    def get_text_config(self) -> Config:
        return self


class TinyForCausalLM(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2, dtype=dtype)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, use_cache: bool | None = None) -> Tensor:
        return input_ids


class TinyForImageClassification(TinyForCausalLM):
    main_input_name = "pixel_values"

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return pixel_values


def texts(model: nn.Module, config: Config, *given: str, training: bool = True) -> tuple[list[str], dict[str, Any]]:
    made, extras = random_inputs(config, model, forward_of(model), parse_inputs(given), training=training)
    return [str(text) for text in made], dict(extras)


LANGUAGE = Config(vocab_size=99, max_position_embeddings=512)
IMAGES = Config(image_size=[32, 48], num_channels=1, num_labels=7)


def test_a_language_model_gets_tokens_and_labels_of_its_vocabulary() -> None:
    made, extras = texts(TinyForCausalLM(), LANGUAGE)
    assert made == ["input_ids=1,128:int64[0:99]", "labels=1,128:int64[0:99]"]
    assert extras == {"use_cache": False}


def test_labels_follow_the_size_that_was_asked_for() -> None:
    made, _ = texts(TinyForCausalLM(), LANGUAGE, "4,17:int64")
    assert made == ["input_ids=4,17:int64[0:99]", "labels=4,17:int64[0:99]"]


def test_a_model_that_takes_fewer_tokens_gets_fewer() -> None:
    assert texts(TinyForCausalLM(), Config(vocab_size=9, max_position_embeddings=16), training=False) == (
        ["input_ids=1,16:int64[0:9]"],
        {},
    )


def test_an_image_model_gets_pixels_in_its_own_type() -> None:
    assert texts(TinyForImageClassification(), IMAGES)[0] == ["pixel_values=1,1,32,48", "labels=1:int64[0:7]"]
    made, _ = texts(TinyForImageClassification(torch.bfloat16), IMAGES, training=False)
    assert made == ["pixel_values=1,1,32,48:bfloat16"]


BAD_CONFIGS = {
    "no folder": (None, "no such file or folder"),
    "no config": ("", "config.json"),
    "no json": ("{", "JSON"),
    "no type": (json.dumps({"hidden_size": 4}), "model_type"),
    "unknown type": (json.dumps({"model_type": "nobody_has_this"}), "unknown model_type 'nobody_has_this'"),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_config_that_cannot_be_used_is_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    content, message = BAD_CONFIGS[name]
    folder = tmp_path / "model"
    if content is not None:
        folder.mkdir()
    if content:
        (folder / "config.json").write_text(content)
    with pytest.raises(KitError, match=message) as told:
        load(TargetSpec(spec=f"hf:{folder}"))
    assert told.value.where
    assert told.value.hint
