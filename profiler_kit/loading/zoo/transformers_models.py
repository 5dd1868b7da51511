"""``hf:...``: a transformers model from a config on disk, a config class or a model type. No weights, no network access."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.foreign import attribute_of
from profiler_kit.loading.zoo.recipe import Recipe, import_package
from profiler_kit.loading.zoo.transformers_inputs import random_inputs
from profiler_kit.records.notes import Note
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import define_missing_ops
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.process_settings import settings_restored

INSTALL: Final = (("transformers",),)
CONFIG: Final = "config.json"
HINT: Final = "use a folder with config.json, or a class such as hf:LlamaConfig"
# The head of a config without `architectures`: that of the first task that supports its model type.
_TASKS: Final = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MASKED_LM", "CAUSAL_LM", "CTC",
    "ZERO_SHOT_IMAGE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION",
    "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION", "DEPTH_ESTIMATION", "MASK_GENERATION",
    "TEXT_TO_SPECTROGRAM", "TEXT_TO_WAVEFORM", "TIME_SERIES_PREDICTION", "PRETRAINING",
)  # fmt: skip


def recipe(spec: TargetSpec, name: str, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe of the transformers model `name`. Raises TargetError or UsageError.

    `name` is a folder with a config.json (or the file itself), a repository with a config in the local hub cache, a model
    type (``gpt2``), a config class (``LlamaConfig``) or a model class (``BertForMaskedLM``). `arguments` change the config.
    """
    with offline():
        define_missing_ops()  # transformers imports torchvision for its image types
        transformers = import_package("transformers", spec.spec, INSTALL)
        try:
            config, model_class, where, source = _find_model(transformers, spec, name, arguments)
        except (TargetError, UsageError):
            raise
        except Exception as error:
            raise TargetError(
                f"cannot read the config: {one_line_message(error)}",
                where=spec.spec,
                hint=f"check the config and the --kw options, or {HINT}",
            ) from error
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        # labels are shifted with this token; its value does not change any count
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
    return Recipe(
        name=model_class.__name__,
        factory=lambda: model_class._from_config(config),
        where=where,
        source=source,
        inputs=lambda model, forward, texts: random_inputs(
            config, model, forward, texts, training=spec.mode == "train"
        ),
        notes=(Note(subject="model", text=f"{model_class.__name__} from {source}, with random weights"),),
        surroundings=offline,
    )


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Disable network access of the Hugging Face hub inside the block: only files on disk are used."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    was_offline = names[0] in os.environ
    constants = sys.modules.get("huggingface_hub.constants")  # reads the variable only when it is imported
    saved_constant = attribute_of(constants, "HF_HUB_OFFLINE", bool)
    try:
        with settings_restored("os.environ"):
            os.environ.update(dict.fromkeys(names, "1"))
            if constants is not None:
                constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
            yield
    finally:
        constants = sys.modules.get("huggingface_hub.constants")
        if constants is not None:
            was_offline = was_offline if saved_constant is None else saved_constant
            constants.HF_HUB_OFFLINE = was_offline  # type: ignore[attr-defined]


def _find_model(
    transformers: Any, spec: TargetSpec, name: str, arguments: Mapping[str, Any]
) -> tuple[Any, Any, str, str]:
    """(config, model class, where, source) of `name`."""
    file = _config_file(spec, name)
    if file is not None:
        config = _read_config(transformers, file, arguments)
        return config, _model_class(transformers, spec, config), str(file), str(file)
    kind = _find_class(transformers, name)
    if kind is None:
        raise _unknown_name_error(transformers, spec, name)
    config_class = kind if issubclass(kind, transformers.PreTrainedConfig) else kind.config_class
    _check_arguments(spec, config_class(), arguments)
    config = config_class(**_config_values(arguments))
    model_class = _model_class(transformers, spec, config) if config_class is kind else kind
    source = f"the default {config_class.__name__}" + (f" with {', '.join(spec.kwargs)}" if arguments else "")
    return config, model_class, spec.spec, source


def _config_file(spec: TargetSpec, name: str) -> Path | None:
    """The config.json of `name`; None if `name` is a class or a model type."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise TargetError(f"no {CONFIG} in this folder", where=spec.spec, hint=HINT)
        return path / CONFIG
    if path.is_file():
        return path
    if path.suffix == ".json" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TargetError("no such file or folder", where=name, hint=HINT)
    if "/" not in name:
        return None
    hub = import_package("huggingface_hub", spec.spec, "huggingface_hub")
    cached = hub.try_to_load_from_cache(name, CONFIG)
    if not isinstance(cached, str):
        raise TargetError(
            f"no config on disk for {name}, and profiler_kit does not download", where=spec.spec, hint=HINT
        )
    return Path(cached)


def _read_config(transformers: Any, file: Path, arguments: Mapping[str, Any]) -> Any:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TargetError(f"not JSON: {one_line_message(error)}", where=str(file), hint=HINT) from error
    kind = values.get("model_type") if isinstance(values, dict) else None
    mapping = transformers.CONFIG_MAPPING
    if kind not in mapping:
        problem = f"unknown model_type {kind!r}" if kind else "no model_type"
        raise TargetError(
            f"{problem}: transformers {transformers.__version__} has no class for this config",
            where=str(file),
            hint="install a newer transformers, or use the model's Python file as the target: file.py:Net",
        )
    _check_arguments(TargetSpec(spec=str(file)), mapping[kind].from_dict(values), arguments)
    for key, value in _config_values(arguments).items():
        values[key] = (
            {**values[key], **value} if isinstance(value, dict) and isinstance(values.get(key), dict) else value
        )
    return mapping[kind].from_dict(values)


def _config_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as config values; a single architecture becomes a list."""
    changed = dict(arguments)
    if isinstance(changed.get("architectures"), str):
        changed["architectures"] = [changed["architectures"]]
    return changed


def _check_arguments(spec: TargetSpec, config: Any, arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that the config does not have: transformers would accept and ignore it."""
    names = sorted({*config.to_dict(), *config.attribute_map, "architectures"})
    for key in arguments:
        if key not in names and not hasattr(config, key):
            matches = difflib.get_close_matches(key, names, n=1)
            raise UsageError(
                f"{type(config).__name__} has no {key!r}" + (f"; did you mean {matches[0]!r}?" if matches else ""),
                where=spec.spec,
                hint=f"its fields are {', '.join(names)}",
            )


def _find_class(transformers: Any, name: str) -> Any:
    """The config class of the model type `name`, or the config or model class `name`; None if there is neither."""
    for kind in (name, name.replace("-", "_"), name.replace("_", "-")):
        if kind in transformers.CONFIG_MAPPING:
            return transformers.CONFIG_MAPPING[kind]
    value = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(value, type) and issubclass(value, (transformers.PreTrainedConfig, transformers.PreTrainedModel)):
        return value if value not in (transformers.PreTrainedConfig, transformers.PreTrainedModel) else None
    return None


def _model_class(transformers: Any, spec: TargetSpec, config: Any) -> Any:
    """The class of the config's first architecture, or the class with the usual head of its model type."""
    for architecture in config.architectures or ():
        model_class = getattr(transformers, architecture, None)
        if model_class is None:
            raise TargetError(
                f"transformers {transformers.__version__} has no class {architecture}",
                where=spec.spec,
                hint="select another class with --kw architectures=NAME, or install a newer transformers",
            )
        return model_class
    auto = transformers.models.auto.modeling_auto
    tables = [getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}) for task in _TASKS]
    for table in (*tables, auto.MODEL_MAPPING_NAMES):
        names = table.get(config.model_type)
        if names is not None:
            return getattr(transformers, names if isinstance(names, str) else names[0])
    raise TargetError(
        f"no model class uses {type(config).__name__}",
        where=spec.spec,
        hint="use the name of a model class, for example hf:BertForMaskedLM",
    )


def _unknown_name_error(transformers: Any, spec: TargetSpec, name: str) -> TargetError:
    names = [*transformers.CONFIG_MAPPING, *(kind for kind in dir(transformers) if kind.endswith("Config"))]
    matches = difflib.get_close_matches(name, names, n=3)
    return TargetError(
        f"{name!r} is not a config on disk, a model type or a class"
        + (f"; did you mean {' or '.join(matches)}?" if matches else ""),
        where=spec.spec,
        hint=HINT,
    )
