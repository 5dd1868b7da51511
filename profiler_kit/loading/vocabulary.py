"""What names mean: of constructor arguments, of parameters of forward, of labels, losses and models.

One table, `CONCEPTS`: to teach the tool a usual name, add a spelling to its row. The names are those of torch.nn, torchvision,
timm, transformers, PyTorch's examples and tutorials, and the notation of papers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import torch
from torch import nn


class Role(Enum):
    """The kind of value that a parameter of forward receives."""

    ATTENTION = "attention"  # queries, keys and values
    DATA = "data"  # images, signals, features: whatever the first layer takes
    TOKENS = "tokens"
    MASK = "mask"
    PADDING_MASK = "padding mask"
    ATTENTION_MASK = "attention mask"
    LENGTHS = "lengths"
    TIME = "time"
    NOISE = "noise"
    CLASS = "class"
    STATE = "state"
    ADJACENCY = "adjacency"
    EDGES = "edges"
    POINTS = "points"
    POSITIONS = "positions"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    LIST = "list"
    DICT = "dict"


Arguments = Mapping[str, Any]
Usual = int | float | bool | Callable[[Arguments], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """A meaning.

    - `arguments`: the spellings of constructor arguments. ``|`` separates words for the same place, ``?`` makes a word optional,
      ``*`` is any words. Underscores, capitals and the words of `_SAME` do not matter: ``in channels`` is ``inputChan``.
    - `usual`: the usual value, or a function of the other arguments that computes one; None without one.
    - `inputs`: words of the names of forward's parameters with the role `role`, the words of the first row that has one decide.
    """

    name: str
    arguments: str = ""
    usual: Usual = None
    role: Role | None = None
    inputs: str = ""


def _classes(bound: Arguments) -> int:
    """1000 classes for images of ImageNet's size, otherwise 10."""
    size = number_of(bound, "image size")
    return 1000 if size is not None and size >= 128 else 10


def _width(bound: Arguments) -> int:
    """The model's width among the bound arguments, otherwise 256."""
    return number_of(bound, "width") or 256


def _heads(bound: Arguments) -> int:
    """The largest usual number of heads that divides the width."""
    return next(count for count in (8, 6, 4, 2, 1) if _width(bound) % count == 0)


def _head_width(bound: Arguments) -> int:
    return max(1, _width(bound) // max(number_of(bound, "heads") or _heads(bound), 1))


def number_of(bound: Arguments, concept: str) -> int | None:
    """The first whole number among the arguments with this meaning; None without one."""
    sizes = (value for name, value in bound.items() if type(value) is int and is_concept(name, concept))
    return next(sizes, None)


# Names of the one model of a program, and of a parameter that takes a model to change or wrap it.
MODELS: Final = ("model", "net", "network", "module")
# Names of labels, the most usual first: parameters of forward and of losses, keys of batches.
LABELS: Final = (
    "labels", "label", "targets", "target", "lm_labels", "y", "y_true", "gt", "gts", "ground_truth", "ys", "truth", "true",
    "expected",
)  # fmt: skip
# Where several rows have a word of a name of an input, the first row decides. Spellings of arguments are in one row each.
CONCEPTS: Final[tuple[Concept, ...]] = (
    Concept(name="mask", role=Role.MASK, inputs="mask masks"),
    Concept(name="length", usual=128, role=Role.LENGTHS, inputs="lengths lens seqlens xlens",
            arguments="block size, context len|size, num ctx, ctx len, max seq len, seq len, num position|positions, "
                      "max position embeddings, max len, num tokens per seq, bptt, pad size, max seq, max position|positions, "
                      "max seq size, seq size, max|? text|context|src|tgt|trg len|size, context, context window"),
    Concept(name="position", role=Role.POSITIONS, inputs="position positions pos"),
    Concept(name="tokens", usual=10_000, role=Role.TOKENS,
            arguments="* vocab, * vocab size, * num tokens, * num vocab, num words, num embeddings, dict size",
            inputs="ids idx tokens token src tgt trg text texts sentence sentences word words caption captions question "
                   "questions premise hypothesis prompt sequence sequences seq seqs input_ids tokenids chars utterance source "
                   "segment segments"),
    Concept(name="time", usual=1000, role=Role.TIME, arguments="num|? timesteps|steps, num|? diffusion steps",
            inputs="t time timestep timesteps times sigma sigmas ts"),
    Concept(name="noise", usual=100, role=Role.NOISE, inputs="z noise latent latents code zs",
            arguments="latent|z|noise|code dim|size, nz, dim z, num latent, latent|z|noise|code features|?, "
                      "bottleneck dim|size|features|?"),
    Concept(name="label", role=Role.CLASS, inputs=" ".join((*LABELS, "classes", "cls", "category", "categories"))),
    Concept(name="state", role=Role.STATE, inputs="h hidden state states hx cx h0 c0 hiddens carry prev"),
    Concept(name="edges", role=Role.EDGES, inputs="edge edges edge_index"),
    Concept(name="points", usual=128, role=Role.POINTS, arguments="num|? nodes|points",
            inputs="xyz pointcloud pcd pc cloud point_cloud points pts"),
    Concept(name="adjacency", role=Role.ADJACENCY, inputs="adj adjacency laplacian graph"),
    Concept(name="switch", usual=False, role=Role.FLAG,
            arguments="bidirectional, pretrained, bilinear, causal, debug, verbose, use|with|is *",
            inputs="training train is use return verbose flag with do"),
    Concept(name="number", role=Role.NUMBER, inputs="ratio temperature alpha lambda lambd eps beta gamma weight"),
    Concept(name="count", role=Role.INTEGER, inputs="num n length len size steps k maxlen step epoch iteration"),
    Concept(name="image", inputs="img imgs image images pixel pixels frame frames photo picture"),
    Concept(name="classes", usual=_classes,
            arguments="num classes|class|cls|labels|categories, class num, classes, num out classes"),
    Concept(name="image channels", usual=3, arguments="in|num|image|? channels, num channels in, in c, c in"),
    Concept(name="output channels", usual=64, arguments="out channels|c, c out, num channels out"),
    Concept(name="inner channels", usual=64, arguments="* channels"),
    Concept(name="image size", usual=224,
            arguments="image size|shape, in resolution|shape, resolution, image resolution, in size, image height, crop size"),
    Concept(name="image side", usual=224,
            arguments="image res|width|h|w, in res|height|width|h|w, height, width px, sample size"),
    Concept(name="patch size", usual=16, arguments="patch size|?, patches"),
    Concept(name="frames", usual=16, arguments="num|? frames, clip len, seq frames"),
    Concept(name="width", usual=256, arguments="d model, dmodel, model dim, dim, emb dim|size, num emb, d word vec, width"),
    Concept(name="feed-forward width", usual=lambda bound: 4 * _width(bound),
            arguments="d ff|inner, dff, d inner hidden, ff|ffn hidden, ff|ffn hidden|? dim|size, mlp dim, dim feedforward, "
                      "intermediate size, ffn emb dim, hidden features"),
    Concept(name="hidden width", usual=256,
            arguments="num|? hidden, hidden size|dim|units, hidden state size, rnn size"),
    Concept(name="layers", usual=2,
            arguments="* depth|layers|blocks|stages, num hidden|encoder|decoder|transformer|rnn|res|? layer|block"),
    Concept(name="block class", arguments="block, block type|cls|fn, layer type, residual block"),
    Concept(name="heads", usual=_heads, arguments="num|attn|? heads, num|attn head, num attention heads, h"),
    Concept(name="head width", usual=_head_width, arguments="dim head, head dim|size, d k|v"),
    Concept(name="symbols", usual=128, arguments="num symbols|chars|characters|letters|phonemes|phones"),
    Concept(name="padding token", usual=0, arguments="* pad|padding tokens|? idx, * pad|padding tokens"),
    Concept(name="special token", usual=1, arguments="* bos|eos|sos|start|end|mask|cls|sep tokens|? idx"),
    Concept(name="filters", usual=64,
            arguments="ngf, ndf, nf, base width|filters|dim, num|? filters, features, init features, features maps, "
                      "start filters, in|out|mid|? planes, nin, nout, features size"),
    Concept(name="variables", usual=64,
            arguments="enc in, num vars|variables|features, features dim, in dim|features|units, num in|states, "
                      "state dim|size, obs|observation dim|size, observation space"),
    Concept(name="outputs", usual=10, arguments="out dim|features|size|units, num out, action dim|size, num actions"),
    Concept(name="kernel size", usual=3, arguments="kernel size|?, ksize, k size"),
    Concept(name="factor of one", usual=1,
            arguments="stride, dilation, groups, upscale, expansion, width|depth mult|multiplier, scale, multiplier"),
    Concept(name="scale factor", usual=2, arguments="up|upscale|? scale factor, upscale factor, upsampling factor"),
    Concept(name="padding", usual=1, arguments="padding"),
    Concept(name="reduction", usual=16, arguments="reduction, squeeze, reduction ratio, r"),
    Concept(name="width ratio", usual=4, arguments="mlp|ff|ffn|expand|expansion ratio|rate|factor"),
    Concept(name="sample rate", usual=16_000, arguments="sample|sampling rate, sr"),
    Concept(name="growth rate", usual=32, arguments="growth rate, k"),
    Concept(name="dropout", usual=0.1, arguments="* drop path|out|? rate|ratio|p|prob|?, * p drop, * keep prob"),
    Concept(name="probability", usual=0.5, arguments="* prob|probability|ratio"),
    Concept(name="learning rate", usual=1e-3, arguments="lr, learning rate"),
    Concept(name="slope", usual=0.2, arguments="alpha, negative|leaky slope"),
    Concept(name="epsilon", usual=1e-5, arguments="eps, epsilon"),
    Concept(name="momentum", usual=0.1, arguments="momentum, beta"),
    Concept(name="weight", usual=1.0, arguments="temperature, tau, gamma, lambda, weight"),
    Concept(name="switch that is on", usual=True, arguments="use|? bias, batch first"),
    Concept(name="batch size", usual=1, arguments="batch size, bs, bsz"),
    Concept(name="parts", usual=8,
            arguments="num experts|expert|queries|groups|group|anchors|masks|codes|relations|mixtures|gaussians"),
    Concept(name="device", usual=lambda bound: torch.get_default_device(), arguments="device"),
    Concept(name="activation", usual=lambda bound: nn.ReLU, arguments="act|activation layer|?, activation fn|fun|function|func"),
    Concept(name="normalization", usual=lambda bound: nn.BatchNorm2d, arguments="norm layer|fn|?, normalization"),
    Concept(name="module",
            arguments="base|inner|student|teacher|image|text|? model|net|network|module|backbone|encoder|decoder|vit|"
                      "transformer|generator|discriminator|emb|unet|fn model|net|?, student|teacher model|net|?, denoise fn"),
    Concept(name="configuration",
            arguments="* config|configs|conf|cfg|args|opt|opts|options|hparams|hps|params|hyperparams|settings|flags"),
)  # fmt: skip
# Spellings of one word. The next word may follow without an underscore: ``maxlen``, ``nclass``.
_SAME: Final = {
    spelling: word
    for word, spellings in {
        "num": "n nb no number of", "in": "inp input inputs", "out": "output outputs", "image": "img images imgs",
        "channels": "channel chans chan ch nc",
        "dim": "dims", "features": "feature feats feat", "len": "length", "seq": "sequence", "actions": "action",
        "depth": "depths", "emb": "embed embd embedding",
        "hidden": "hid", "vocab": "vocabulary", "tokens": "token", "idx": "index id ids", "drop": "dropout dp",
        "timesteps": "timestep",
    }.items()
    for spelling in spellings.split()
}  # fmt: skip
_ANY: Final = "*"
_NAME_WORDS: Final = re.compile(r"[A-Z]?[a-z]+[0-9]*|[A-Z]+(?![a-z])[0-9]*|[0-9]+")
_INPUT_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def spellings_of(concept: Concept) -> Iterator[tuple[str, ...]]:
    """The names of arguments with this meaning, as words that `_SAME` has made equal; ``*`` is any words."""
    for spelling in filter(None, map(str.strip, concept.arguments.split(","))):
        for words in itertools.product(*(place.split("|") for place in spelling.split())):
            yield tuple(_SAME.get(word, word) for word in words if word != "?")


_SPELLINGS: Final = {
    words: (rank, concept) for concept in reversed(CONCEPTS) for rank, words in enumerate(spellings_of(concept))
}
_KNOWN: Final = frozenset(word for words in _SPELLINGS for word in words) | _SAME.keys()
_HEADS: Final = frozenset(word for word in _KNOWN if len(word) > 1) | {"n", "z"}  # words that the next one may follow


@lru_cache(maxsize=4096)
def _spelled(name: str) -> tuple[int, Concept] | None:
    """(place among the spellings, concept) of a constructor argument; None for an unusual name."""
    words: list[str] = []
    for token in _NAME_WORDS.findall(name):
        for part in _parts(token.lower()):
            word = _SAME.get(part, part)
            words += [word] if words[-1:] != [word] else []  # number_of_classes
    keys = [tuple(words), *((_ANY, *words[start:]) for start in range(len(words)))]
    keys += [(*words[:end], _ANY) for end in range(1, len(words))]
    return next((_SPELLINGS[key] for key in keys if key in _SPELLINGS), None)


def _parts(token: str) -> list[str]:
    """The known words that `token` consists of: ``num`` and ``class`` for ``nclass``; `token` itself if it is another word."""
    if token in _KNOWN:
        return [token]
    for end in range(len(token) - 2, 0, -1):
        head, tail = token[:end], _parts(token[end:])
        if all(len(word) > 1 and word in _KNOWN for word in tail) and head in _HEADS:
            return [head, *tail]
    return [token]


def concept_of(name: str) -> Concept | None:
    """The meaning of a constructor argument; None for an unusual name."""
    spelled = _spelled(name)
    return spelled[1] if spelled is not None else None


def is_concept(name: str, concept: str) -> bool:
    """Whether a constructor argument has this meaning."""
    meaning = concept_of(name)
    return meaning is not None and meaning.name == concept


def spelling_rank(name: str, concept: str) -> int | None:
    """The place of a constructor argument among the spellings of a concept, the most certain first; None for another name."""
    spelled = _spelled(name)
    return spelled[0] if spelled is not None and spelled[1].name == concept else None


def name_words(name: str) -> frozenset[str]:
    """The words of a name, in lower case: ``inputIds`` and ``input_ids`` give {input, ids}; also without digits."""
    words = {word.lower() for word in _INPUT_WORDS.findall(name)}
    plain = name.lower().strip("_")
    return frozenset(words | {plain, plain.rstrip("0123456789_")})


@lru_cache(maxsize=4096)
def input_concept(name: str) -> Concept | None:
    """The meaning of a parameter of forward: of the first row with a role and a word of the name; None for an unusual name."""
    words = name_words(name)
    return next((c for c in CONCEPTS if c.role is not None and not words.isdisjoint(c.inputs.split())), None)


def says(name: str, concept: str) -> bool:
    """Whether the name of an input has a word of the concept."""
    inputs = next(c.inputs for c in CONCEPTS if c.name == concept)
    return not name_words(name).isdisjoint(inputs.split())


def is_label(name: str) -> bool:
    """Whether `name` is a usual name of labels."""
    return name.lower() in LABELS
