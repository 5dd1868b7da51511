"""Random networks of many families, for recordings of the prices of ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from scripts.lab.price_networks import other, sequential
from scripts.lab.price_networks.convolutional import BLOCKS, classifier, diffusion, unet
from scripts.lab.price_networks.parts import Draw, Network

FAMILIES: Final[dict[str, Callable[[Draw], Network]]] = {
    **{name: partial(classifier, block=block) for name, block in BLOCKS.items()},
    "conv1d": lambda draw: classifier(draw, BLOCKS[draw.pick("vgg", "resnet", "mobile")], dims=1),
    "conv3d": lambda draw: classifier(draw, BLOCKS[draw.pick("vgg", "resnet")], dims=3),
    "unet": unet,
    "diffusion": diffusion,
    "language": sequential.language,
    "vision": sequential.vision,
    "recurrent": sequential.recurrent,
    "mlp": other.mlp,
    "recommender": other.recommender,
    "graph": other.graph,
    "points": other.points,
    "operators": other.operators,
    "convolutions": other.convolutions,
    "products": other.products,
    "attention": other.attention,
    "sequences": other.sequences,
}
# How many networks of a round are of these families; one of each other.
REPEATED: Final = {
    **dict.fromkeys(("mobile", "conv1d", "unet", "vision", "attention", "sequences"), 2),
    **dict.fromkeys(("resnet", "language", "products"), 3),
    "operators": 6,
    "convolutions": 12,
}


def make(family: str, draw: Draw) -> Network:
    """A network of the family: the module, a function of a device that returns its inputs, and its loss."""
    return FAMILIES[family](draw)


def family_of(number: int) -> str:
    """The family of the network `number`. Each round of successive numbers holds every family, in random order."""
    names = [name for name in FAMILIES for _ in range(REPEATED.get(name, 1))]
    index, position = divmod(number, len(names))
    return Random(index).sample(names, len(names))[position]
