"""Small and medium networks that validate the memory simulation, as targets on meta tensors.

They need only torch. scripts/lab/probe_models.py of commit 9a0182c9 measured them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from profiler_kit.loading import Target, from_model
from scripts.bench.networks import images, sequences
from scripts.bench.networks.layers import stack

Batch = tuple[tuple[Tensor, ...], Tensor]  # inputs and labels


@dataclass(frozen=True, slots=True)
class Recipe:
    """Functions that build a model, make a batch of a size and compute the loss."""

    build: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    loss: Callable[[Any, Any], Tensor]


def tokens_of(out: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy over classes in the last dimension."""
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1))


def image(
    build: Callable[[], nn.Module], shape: Sequence[int], classes: int, *positions: int, loss: Any = F.cross_entropy
) -> Recipe:
    """One tensor per sample, and one class per sample or per position."""
    return Recipe(build, lambda n: ((torch.randn(n, *shape),), torch.randint(0, classes, (n, *positions))), loss)


def pair(build: Callable[[], nn.Module], shape: Sequence[int], result: Sequence[int], loss: Any = F.mse_loss) -> Recipe:
    """One input tensor and one target tensor per sample."""
    return Recipe(build, lambda n: ((torch.randn(n, *shape),), torch.rand(n, *result)), loss)


def text(build: Callable[[], nn.Module], length: int, vocabulary: int, classes: int = 0, inputs: int = 1) -> Recipe:
    """Token sequences, and one class per sample; with `classes` 0, one token per position."""

    def batch(n: int) -> Batch:
        tokens = tuple(torch.randint(1, vocabulary, (n, length)) for _ in range(inputs))
        return tokens, torch.randint(0, classes or vocabulary, (n,) if classes else (n, length))

    return Recipe(build, batch, F.cross_entropy if classes else tokens_of)


def sentences(kind: str) -> Recipe:
    """Token sequences of decreasing length."""

    def batch(n: int) -> Batch:
        lengths = torch.tensor([max(4, 48 - 40 * i // n) for i in range(n)])
        return (torch.randint(1, 8000, (n, 48)), lengths), torch.randint(0, 4, (n,))

    return Recipe(partial(sequences.packed, kind), batch, F.cross_entropy)


def graph(n: int) -> Batch:
    """Nodes and edges of `n` small graphs."""
    return (torch.randn(200 * n, 16), torch.randint(0, 200 * n, (2, 1000 * n))), torch.randint(0, 7, (200 * n,))


def clicks(n: int) -> Batch:
    """Dense features and four bags of ten indices, 32 samples per unit of the batch."""
    sparse = (torch.randint(0, most, (32 * n, 10)) for most in (20000, 5000, 1000, 50))
    return (torch.randn(32 * n, 13), *sparse), torch.rand(32 * n, 1)


def encoder() -> nn.Module:
    """BERT's shape on nn.TransformerEncoder."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.1, activation="gelu", batch_first=True)
    return stack(
        "Embedding 8000 256; LayerNorm 256; Dropout 0.1; layers; Linear 256 8000",
        layers=lambda: nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
    )


def rows(name: str) -> Callable[[], nn.Module]:
    """A network that is a sequence of layers."""
    if name in sequences.ROWS:
        return partial(sequences.reader, sequences.ROWS[name])
    return partial(stack, images.ROWS[name], block=images.wide_block)


MODELS: Final[dict[str, Recipe]] = {
    "resnet_basic": image(rows("resnet_basic"), (3, 160, 160), 1000),
    "large_kernels": image(images.large_kernels, (3, 64, 64), 10),
    "unet": image(lambda: images.unet(24, 3, 3), (3, 128, 128), 2, 128, 128),
    "language": text(lambda: sequences.language(12000, 256, 4, 4), 256, 12000),
    "audio_m5": image(rows("audio_m5"), (1, 16000), 35),
    "lstm_language": text(rows("lstm_language"), 64, 10000),
    "unet_3d": image(lambda: images.unet(16, 2, 1, dims=3), (1, 32, 32, 32), 2, 32, 32, 32),
    "vision": image(lambda: sequences.vision(128, 16, 192, 6, 3), (3, 128, 128), 1000),
    "mobilenet": image(images.mobilenet, (3, 160, 160), 1000),
    "audio_gru": image(rows("audio_gru"), (64, 200), 10),
    "generator": pair(images.generator, (100, 1, 1), (3, 64, 64)),
    "deeplab": image(images.deeplab, (3, 160, 160), 21, 160, 160),
    "vocoder": pair(sequences.vocoder, (80, 32), (1, 8192)),
    "packed_lstm": sentences("LSTM"),
    "lstm_cells": image(lambda: sequences.cells("LSTMCell"), (24, 128), 20, 24, loss=tokens_of),
    "wav2vec": image(sequences.wav2vec, (1, 16000), 32, 49, loss=tokens_of),
    "c3d": image(rows("c3d"), (3, 16, 56, 56), 101),
    "vgg_norm": image(images.vgg, (3, 128, 128), 100),
    "speech": image(rows("speech"), (1, 80, 160), 29, 80, loss=lambda o, t: tokens_of(o.transpose(0, 1), t)),
    "convnext": image(images.convnext, (3, 160, 160), 1000),
    "replk": image(images.replk, (3, 128, 128), 100),
    "resnext": image(lambda: images.resnet_bottleneck(32, 2), (3, 128, 128), 1000),
    "superresolution": pair(images.superresolution, (3, 64, 64), (3, 128, 128)),
    "wavenet": image(sequences.wavenet, (1, 4000), 256, 4000),
    "alexnet": image(rows("alexnet"), (3, 224, 224), 1000),
    "llama": text(sequences.Llama, 256, 8000),
    "crnn": image(rows("crnn"), (1, 32, 160), 80, 40, loss=tokens_of),
    "factored": image(images.factored, (3, 8, 64, 64), 101),
    "inverted": image(images.inverted, (3, 160, 160), 1000),
    "large_kernels_11": image(lambda: images.large_kernels(11), (3, 96, 96), 10),
    "temporal": image(sequences.temporal, (8, 2000), 10, 2000),
    "packed_gru": sentences("GRU"),
    "gru_cells": image(lambda: sequences.cells("GRUCell"), (24, 128), 20, 24, loss=tokens_of),
    "resnet_bottleneck": image(images.resnet_bottleneck, (3, 128, 128), 1000),
    "resnet_3d": image(rows("resnet_3d"), (1, 48, 48, 48), 10),
    "vgg_plain": image(lambda: images.vgg(norm=False), (3, 96, 96), 100),
    "discriminator": pair(images.discriminator, (3, 64, 64), (1,), F.binary_cross_entropy_with_logits),
    "autoencoder": pair(rows("autoencoder"), (3, 96, 96), (3, 96, 96)),
    "densenet": image(images.densenet, (3, 128, 128), 1000),
    "inception": image(images.inception, (3, 128, 128), 1000),
    "encoder": text(encoder, 128, 8000),
    "seq2seq": text(sequences.Seq2Seq, 48, 6000, inputs=2),
    "translator": text(sequences.Translator, 24, 6000, inputs=2),
    "projected": image(rows("projected"), (100, 40), 50, 100, loss=tokens_of),
    "tanh_rnn": text(rows("tanh_rnn"), 80, 5000, 5),
    "conv_lstm": pair(sequences.ConvLSTM, (6, 3, 48, 48), (3, 48, 48)),
    "dilated": image(rows("dilated"), (3, 96, 96), 11),
    "convmixer": image(images.convmixer, (3, 112, 112), 100),
    "mixer": image(images.mixer, (3, 128, 128), 1000),
    "squeezenet": image(images.squeezenet, (3, 160, 160), 1000),
    "shufflenet": image(images.shufflenet, (3, 160, 160), 1000),
    "resnet_cifar": image(rows("resnet_cifar"), (3, 32, 32), 10),
    "unet_resized": image(lambda: images.unet(16, 3, 3, resized=True, groups=True), (3, 96, 96), 2, 96, 96),
    "checkpointed": image(sequences.Checkpointed, (128, 256), 10),
    "perceiver": image(sequences.Perceiver, (1000, 192), 10),
    "graph": Recipe(sequences.Graph, graph, F.cross_entropy),
    "recommender": Recipe(sequences.Recommender, clicks, F.binary_cross_entropy_with_logits),
    "variational": pair(sequences.Variational, (784,), (784,)),
    "perceptron": image(rows("perceptron"), (1024,), 1000),
    "lenet": image(rows("lenet"), (1, 28, 28), 10),
}
OPTIMIZERS: Final = {
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3),
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
}


def target_of(case: str) -> Target:
    """Return the target of a case such as ``unet|b32|sgd|fp32`` or ``unet|b32|infer|fp32``."""
    name, batch, work, dtype = case.split("|")
    recipe = MODELS[name]
    with torch.device("meta"):
        model = recipe.build()
        inputs, labels = recipe.batch(int(batch[1:]))
    return from_model(
        model,
        inputs,
        loss_fn=lambda output, *_: recipe.loss(output, labels),
        configure_optimizer=OPTIMIZERS.get(work, OPTIMIZERS["sgd"]),
        amp="bfloat16" if dtype == "bf16" else None,
        mode="infer" if work == "infer" else "train",
        device="meta",
    )
