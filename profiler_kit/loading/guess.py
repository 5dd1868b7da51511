"""Inputs guessed from a model's first layer: always announced, never used where it gates."""

from __future__ import annotations

from torch import nn

from profiler_kit.loading.inputs import InputText

IMAGE_SIZE, CLIP_FRAMES, CLIP_SIZE, SIGNAL_LENGTH, SEQUENCE_LENGTH = 224, 16, 112, 256, 128


def guess_input(model: nn.Module) -> tuple[InputText, str, nn.Module] | None:
    """(input, path, layer) that the first layer with a known input suggests; None when there is none."""
    for path, module in model.named_modules():
        text = _input_of(module)
        if text is not None:
            return text, path, module
    return None


def _input_of(module: nn.Module) -> InputText | None:
    match module:
        case nn.Conv2d() | nn.ConvTranspose2d():
            return InputText(shape=(1, module.in_channels, IMAGE_SIZE, IMAGE_SIZE))
        case nn.Conv1d() | nn.ConvTranspose1d():
            return InputText(shape=(1, module.in_channels, SIGNAL_LENGTH))
        case nn.Conv3d() | nn.ConvTranspose3d():
            return InputText(shape=(1, module.in_channels, CLIP_FRAMES, CLIP_SIZE, CLIP_SIZE))
        case nn.Linear():
            return InputText(shape=(1, module.in_features))
        case nn.Embedding() | nn.EmbeddingBag():
            return InputText(shape=(1, SEQUENCE_LENGTH), dtype="int64", low=0, high=module.num_embeddings)
        case nn.RNNBase():
            size = (1, SEQUENCE_LENGTH) if module.batch_first else (SEQUENCE_LENGTH, 1)
            return InputText(shape=(*size, module.input_size))
        case nn.MultiheadAttention():
            size = (1, SEQUENCE_LENGTH) if module.batch_first else (SEQUENCE_LENGTH, 1)
            return InputText(shape=(*size, module.embed_dim))
    return None


def describe_layer(module: nn.Module) -> str:
    """``Conv2d(3, ...)``: a layer and the size of its input."""
    for name in ("in_channels", "in_features", "num_embeddings", "input_size", "embed_dim"):
        if hasattr(module, name):
            return f"{type(module).__name__}({getattr(module, name)}, ...)"
    return type(module).__name__


def first_embedding(model: nn.Module) -> tuple[str, int] | None:
    """(path, number of rows) of the first embedding; None when there is none."""
    for path, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return path, module.num_embeddings
    return None
