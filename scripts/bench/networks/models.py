"""Small and medium networks that validate the memory simulation: measured on CUDA, simulated on any machine.

They need only torch. Measurement and simulation both run `train_step` and `infer_step` of `networks.steps`::

    recipe = MODELS["resnet_basic"]
    inputs, target = recipe.batch(4, "cuda")
    train_step(recipe.build().cuda(), optimizer, inputs, target, recipe.loss, contextlib.nullcontext, mark)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from scripts.bench.networks.images import (
    UNet,
    alexnet,
    c3d,
    factored,
    lenet,
    resnet_3d,
    resnet_basic,
    resnet_bottleneck,
    resnet_cifar,
    vgg,
)
from scripts.bench.networks.mixed import (
    Checkpointed,
    ConvLSTM,
    Graph,
    Perceiver,
    Recommender,
    Seq2Seq,
    Translator,
    Variational,
    autoencoder,
    classes_of,
    clicks,
    dilated_bottle,
    encoder,
    graph,
    image,
    logits_of,
    pair,
    perceptron,
    sentences,
    squares_of,
    text,
    tokens_of,
)
from scripts.bench.networks.mobile import (
    convnext,
    deeplab,
    densenet,
    discriminator,
    generator,
    inception,
    inverted,
    large_kernels,
    mobilenet,
    replk,
    shufflenet,
    squeezenet,
    superresolution,
)
from scripts.bench.networks.sequences import (
    Cells,
    Packed,
    Wavenet,
    audio_gru,
    audio_m5,
    crnn,
    lstm_language,
    projected,
    speech,
    tanh_rnn,
    temporal,
    vocoder,
    wav2vec,
)
from scripts.bench.networks.steps import Recipe
from scripts.bench.networks.transformers import Language, Llama, Vision, convmixer, mixer

MODELS: Final[dict[str, Recipe]] = {
    "resnet_basic": Recipe(resnet_basic, image((3, 160, 160), 1000), classes_of),
    "large_kernels": Recipe(large_kernels, image((3, 64, 64), 10), classes_of),
    "unet": Recipe(lambda: UNet(24, 3, 3), image((3, 128, 128), 2, 128, 128), classes_of),
    "language": Recipe(lambda: Language(12000, 256, 4, 4), text(256, 12000), tokens_of),
    "audio_m5": Recipe(audio_m5, image((1, 16000), 35), classes_of),
    "lstm_language": Recipe(lstm_language, text(64, 10000), tokens_of),
    "unet_3d": Recipe(lambda: UNet(16, 2, 1, dims=3), image((1, 32, 32, 32), 2, 32, 32, 32), classes_of),
    "vision": Recipe(lambda: Vision(128, 16, 192, 6, 3), image((3, 128, 128), 1000), classes_of),
    "mobilenet": Recipe(mobilenet, image((3, 160, 160), 1000), classes_of),
    "audio_gru": Recipe(audio_gru, image((64, 200), 10), classes_of),
    "generator": Recipe(generator, pair((100, 1, 1), (3, 64, 64)), squares_of),
    "deeplab": Recipe(deeplab, image((3, 160, 160), 21, 160, 160), classes_of),
    "vocoder": Recipe(vocoder, pair((80, 32), (1, 8192)), squares_of),
    "packed_lstm": Recipe(lambda: Packed("LSTM"), sentences, classes_of),
    "lstm_cells": Recipe(lambda: Cells("LSTMCell"), image((24, 128), 20, 24), tokens_of),
    "wav2vec": Recipe(wav2vec, image((1, 16000), 32, 49), tokens_of),
    "c3d": Recipe(c3d, image((3, 16, 56, 56), 101), classes_of),
    "vgg_norm": Recipe(vgg, image((3, 128, 128), 100), classes_of),
    "speech": Recipe(speech, image((1, 80, 160), 29, 80), lambda o, t: tokens_of(o.transpose(0, 1), t)),
    "convnext": Recipe(convnext, image((3, 160, 160), 1000), classes_of),
    "replk": Recipe(replk, image((3, 128, 128), 100), classes_of),
    "resnext": Recipe(lambda: resnet_bottleneck(32, 2), image((3, 128, 128), 1000), classes_of),
    "superresolution": Recipe(superresolution, pair((3, 64, 64), (3, 128, 128)), squares_of),
    "wavenet": Recipe(Wavenet, image((1, 4000), 256, 4000), classes_of),
    "alexnet": Recipe(alexnet, image((3, 224, 224), 1000), classes_of),
    "llama": Recipe(Llama, text(256, 8000), tokens_of),
    "crnn": Recipe(crnn, image((1, 32, 160), 80, 40), tokens_of),
    "factored": Recipe(factored, image((3, 8, 64, 64), 101), classes_of),
    "inverted": Recipe(inverted, image((3, 160, 160), 1000), classes_of),
    "large_kernels_11": Recipe(lambda: large_kernels(11), image((3, 96, 96), 10), classes_of),
    "temporal": Recipe(temporal, image((8, 2000), 10, 2000), classes_of),
    "packed_gru": Recipe(lambda: Packed("GRU"), sentences, classes_of),
    "gru_cells": Recipe(lambda: Cells("GRUCell"), image((24, 128), 20, 24), tokens_of),
    "resnet_bottleneck": Recipe(resnet_bottleneck, image((3, 128, 128), 1000), classes_of),
    "resnet_3d": Recipe(resnet_3d, image((1, 48, 48, 48), 10), classes_of),
    "vgg_plain": Recipe(lambda: vgg(norm=False), image((3, 96, 96), 100), classes_of),
    "discriminator": Recipe(discriminator, pair((3, 64, 64), (1,)), logits_of),
    "autoencoder": Recipe(autoencoder, pair((3, 96, 96), (3, 96, 96)), squares_of),
    "densenet": Recipe(densenet, image((3, 128, 128), 1000), classes_of),
    "inception": Recipe(inception, image((3, 128, 128), 1000), classes_of),
    "encoder": Recipe(encoder, text(128, 8000), tokens_of),
    "seq2seq": Recipe(Seq2Seq, text(48, 6000, inputs=2), tokens_of),
    "translator": Recipe(Translator, text(24, 6000, inputs=2), tokens_of),
    "projected": Recipe(projected, image((100, 40), 50, 100), tokens_of),
    "tanh_rnn": Recipe(tanh_rnn, text(80, 5000, 5), classes_of),
    "conv_lstm": Recipe(ConvLSTM, pair((6, 3, 48, 48), (3, 48, 48)), squares_of),
    "dilated": Recipe(dilated_bottle, image((3, 96, 96), 11), classes_of),
    "convmixer": Recipe(convmixer, image((3, 112, 112), 100), classes_of),
    "mixer": Recipe(mixer, image((3, 128, 128), 1000), classes_of),
    "squeezenet": Recipe(squeezenet, image((3, 160, 160), 1000), classes_of),
    "shufflenet": Recipe(shufflenet, image((3, 160, 160), 1000), classes_of),
    "resnet_cifar": Recipe(resnet_cifar, image((3, 32, 32), 10), classes_of),
    "unet_resized": Recipe(
        lambda: UNet(16, 3, 3, resized=True, groups=True), image((3, 96, 96), 2, 96, 96), classes_of
    ),
    "checkpointed": Recipe(Checkpointed, image((128, 256), 10), classes_of),
    "perceiver": Recipe(Perceiver, image((1000, 192), 10), classes_of),
    "graph": Recipe(Graph, graph, classes_of),
    "recommender": Recipe(Recommender, clicks, logits_of),
    "variational": Recipe(Variational, pair((784,), (784,)), squares_of),
    "perceptron": Recipe(perceptron, image((1024,), 1000), classes_of),
    "lenet": Recipe(lenet, image((1, 28, 28), 10), classes_of),
}
OPTIMIZERS: Final[dict[str, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, **options),
    "adamw": lambda parameters, **options: torch.optim.AdamW(parameters, lr=1e-5, **options),
}
