"""``hf:...``: a transformers model of a config on disk, of a config class or a model type. No weights, no network."""

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
from profiler_kit.loading.place import first_line
from profiler_kit.loading.zoo.recipe import Recipe, imported
from profiler_kit.loading.zoo.torchvision_ops import define_missing_ops
from profiler_kit.loading.zoo.transformers_inputs import made_up
from profiler_kit.records.target import TargetSpec

INSTALL: Final = "transformers"
CONFIG: Final = "config.json"
HINT: Final = "give a folder with config.json, or hf:LlamaConfig"
# Which head a config without `architectures` gets: the first of these tasks that has one for its model type.
_TASKS: Final = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MASKED_LM", "CAUSAL_LM", "CTC",
    "ZERO_SHOT_IMAGE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION",
    "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION", "DEPTH_ESTIMATION", "MASK_GENERATION",
    "TEXT_TO_SPECTROGRAM", "TEXT_TO_WAVEFORM", "TIME_SERIES_PREDICTION", "PRETRAINING",
)  # fmt: skip


def recipe(spec: TargetSpec, name: str, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe of the transformers model that `name` stands for. Raises TargetError or UsageError.

    `name` is a folder with a config.json (or the file), a repository whose config the hub's cache on disk holds, a model
    type (``gpt2``), a config class (``LlamaConfig``) or a model class (``BertForMaskedLM``). `arguments` change the config.
    """
    with offline():
        define_missing_ops()  # transformers imports torchvision for its image types
        transformers = imported("transformers", spec.spec, INSTALL)
        try:
            config, model_class, where, source = _found(transformers, spec, name, arguments)
        except (TargetError, UsageError):
            raise
        except Exception as error:
            raise TargetError(
                f"the config cannot be read: {first_line(error)}",
                where=spec.spec,
                hint=f"check it, and the --kw; {HINT}",
            ) from error
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        # labels are shifted behind it; which one it is changes no count
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
    return Recipe(
        name=model_class.__name__,
        maker=lambda: model_class._from_config(config),
        where=where,
        source=source,
        inputs=lambda model, forward, given: made_up(config, model, forward, given, training=spec.mode == "train"),
        notes=(f"{model_class.__name__} from {source}, with random weights",),
        surroundings=offline,
    )


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """While it lasts, the hub is never asked for anything: what is not on disk is not there."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    constants = sys.modules.get("huggingface_hub.constants")  # it reads the variable once, when it is imported
    kept = getattr(constants, "HF_HUB_OFFLINE", None)
    if constants is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        constants = sys.modules.get("huggingface_hub.constants")
        if constants is not None:
            constants.HF_HUB_OFFLINE = kept if kept is not None else before["HF_HUB_OFFLINE"] is not None  # type: ignore[attr-defined]


def _found(transformers: Any, spec: TargetSpec, name: str, arguments: Mapping[str, Any]) -> tuple[Any, Any, str, str]:
    """(config, model class, where, source) of `name`."""
    file = _file(spec, name)
    if file is not None:
        config = _read(transformers, file, arguments)
        return config, _model_class(transformers, spec, config), str(file), str(file)
    kind = _class_named(transformers, name)
    if kind is None:
        raise _unknown(transformers, spec, name)
    config_class = kind if issubclass(kind, transformers.PreTrainedConfig) else kind.config_class
    _check(spec, config_class(), arguments)
    config = config_class(**_listed(arguments))
    model_class = _model_class(transformers, spec, config) if config_class is kind else kind
    source = f"the default {config_class.__name__}" + (f" with {', '.join(spec.kwargs)}" if arguments else "")
    return config, model_class, spec.spec, source


def _file(spec: TargetSpec, name: str) -> Path | None:
    """The config.json that `name` points to; None when it is the name of a class or model type."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise TargetError(f"the folder holds no {CONFIG}", where=spec.spec, hint=HINT)
        return path / CONFIG
    if path.is_file():
        return path
    if path.suffix == ".json" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TargetError("no such file or folder", where=name, hint=HINT)
    if "/" not in name:
        return None
    hub = imported("huggingface_hub", spec.spec, "huggingface_hub")
    cached = hub.try_to_load_from_cache(name, CONFIG)
    if not isinstance(cached, str):
        raise TargetError(f"no config on disk for {name}: nothing is downloaded", where=spec.spec, hint=HINT)
    return Path(cached)


def _read(transformers: Any, file: Path, arguments: Mapping[str, Any]) -> Any:
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TargetError(f"is no JSON: {first_line(error)}", where=str(file), hint=HINT) from error
    kind = held.get("model_type") if isinstance(held, dict) else None
    mapping = transformers.CONFIG_MAPPING
    if kind not in mapping:
        said = f"unknown model_type {kind!r}" if kind else "it names no model_type"
        raise TargetError(
            f"{said}: this transformers ({transformers.__version__}) has no class for it",
            where=str(file),
            hint="a model with code of its own is a Python target: file.py:Net; else install a newer transformers",
        )
    _check(TargetSpec(spec=str(file)), mapping[kind].from_dict(held), arguments)
    for key, value in _listed(arguments).items():
        held[key] = {**held[key], **value} if isinstance(value, dict) and isinstance(held.get(key), dict) else value
    return mapping[kind].from_dict(held)


def _listed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, one architecture as the list that a config holds."""
    changed = dict(arguments)
    if isinstance(changed.get("architectures"), str):
        changed["architectures"] = [changed["architectures"]]
    return changed


def _check(spec: TargetSpec, config: Any, arguments: Mapping[str, Any]) -> None:
    """Raises UsageError for an argument that the config knows nothing of; it would take it, and ignore it."""
    known = sorted({*config.to_dict(), *config.attribute_map, "architectures"})
    for key in arguments:
        if key not in known and not hasattr(config, key):
            near = difflib.get_close_matches(key, known, n=1)
            raise UsageError(
                f"{type(config).__name__} has no {key!r}" + (f"; nearest: {near[0]}" if near else ""),
                where=spec.spec,
                hint=f"it has {', '.join(known)}",
            )


def _class_named(transformers: Any, name: str) -> Any:
    """The config or model class that `name` stands for: a model type's, or one of this name; None for neither."""
    for kind in (name, name.replace("-", "_"), name.replace("_", "-")):
        if kind in transformers.CONFIG_MAPPING:
            return transformers.CONFIG_MAPPING[kind]
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(found, type) and issubclass(found, (transformers.PreTrainedConfig, transformers.PreTrainedModel)):
        return found if found not in (transformers.PreTrainedConfig, transformers.PreTrainedModel) else None
    return None


def _model_class(transformers: Any, spec: TargetSpec, config: Any) -> Any:
    """The class of the config's first architecture, else the one with the head that its model type is mostly used with."""
    for architecture in config.architectures or ():
        found = getattr(transformers, architecture, None)
        if found is None:
            raise TargetError(
                f"this transformers ({transformers.__version__}) has no {architecture}",
                where=spec.spec,
                hint="choose another with --kw architectures=NAME, or install a newer transformers",
            )
        return found
    auto = transformers.models.auto.modeling_auto
    tables = [getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}) for task in _TASKS]
    for table in (*tables, auto.MODEL_MAPPING_NAMES):
        names = table.get(config.model_type)
        if names is not None:
            return getattr(transformers, names if isinstance(names, str) else names[0])
    raise TargetError(
        f"{type(config).__name__} belongs to no model",
        where=spec.spec,
        hint="name the model's class: hf:BertForMaskedLM",
    )


def _unknown(transformers: Any, spec: TargetSpec, name: str) -> TargetError:
    names = [*transformers.CONFIG_MAPPING, *(kind for kind in dir(transformers) if kind.endswith("Config"))]
    near = difflib.get_close_matches(name, names, n=3)
    return TargetError(
        f"no config on disk for {name!r}, and no model type or class of this name"
        + (f"; nearest: {', '.join(near)}" if near else ""),
        where=spec.spec,
        hint=HINT,
    )
