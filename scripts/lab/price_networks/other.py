"""Random networks of tables, graphs and points, and single ops of random shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.lab.price_networks import parts
from scripts.lab.price_networks.parts import Draw, Layer, Network


def mlp(draw: Draw) -> Network:
    """Linear layers with and without norms and dropout."""
    inputs, batch = draw.pick(16, 64, 256, 784, 1024, 2048, 3000), draw.pick(16, 64, 128, 256, 1000, 4096, 8192, 32768)
    layers: list[nn.Module] = []
    width = inputs
    for _ in range(draw.pick(2, 3, 5)):
        outputs = draw.width(64, 128, 256, 512, 1024, 2048, 4096)
        norm = draw.layer(nn.Identity, nn.BatchNorm1d, nn.LayerNorm)
        activation = draw.layer(nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Sigmoid)
        layers += [nn.Linear(width, outputs), norm(outputs), activation(), nn.Dropout(draw.pick(0.0, 0.2))]
        width = outputs
    layers.append(nn.Linear(width, draw.pick(1, 10, 784)))
    return nn.Sequential(*layers), parts.normal(batch, inputs), draw.choice(LOSSES)


LOSSES: Final = (parts.binary, *(parts.regression(each) for each in (F.mse_loss, F.l1_loss, F.smooth_l1_loss)))


class _Recommender(nn.Module):
    """Products of all pairs of embeddings, as in DLRM."""

    def __init__(self, rows: int, features: int, width: int, summed: bool) -> None:
        super().__init__()
        table: Layer = partial(nn.EmbeddingBag, mode="sum") if summed else nn.Embedding
        self.tables, self.summed = nn.ModuleList([table(rows, width) for _ in range(features)]), summed
        self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        top = [nn.Linear((features + 1) * features // 2 + width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()]
        self.top = nn.Sequential(*top, nn.Linear(256, 1))

    def forward(self, dense: Tensor, rows: Tensor) -> Tensor:
        dense = self.dense(dense)
        outputs = [table(rows[:, index]) for index, table in enumerate(self.tables)]
        vectors = torch.stack([dense, *(each if self.summed else each.sum(1) for each in outputs)], 1)
        left, right = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1, device=dense.device)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, left, right]
        y: Tensor = self.top(torch.cat([dense, products], 1))
        return y


def recommender(draw: Draw) -> Network:
    """Embeddings of many features."""
    features, rows, batch = draw.pick(4, 8, 26), draw.pick(1000, 20000, 100000), draw.pick(256, 1024, 4096, 16384)
    model = _Recommender(rows, features, draw.pick(16, 32, 64, 128), draw.chance(0.5))
    dense, indices = parts.normal(batch, 13), parts.indices(rows, batch, features, draw.pick(1, 4, 10))
    return model, lambda device: (*dense(device), *indices(device)), parts.binary


class _GraphNetwork(nn.Module):
    """Sums of neighbors. `kind`: "add", "scatter" or "attention"."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind, self.layers = kind, nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.weight, self.logits = nn.Linear(2 * width, 1), nn.Linear(width, 40)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(self._neighbors(layer(x), *edges)) + x
        logits: Tensor = self.logits(x)
        return logits

    def _neighbors(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        messages, zeros = x[sources], torch.zeros_like(x)
        if self.kind == "scatter":
            return zeros.scatter_add_(0, targets[:, None].expand_as(messages), messages)
        if self.kind == "attention":
            messages = messages * F.leaky_relu(self.weight(torch.cat([messages, x[targets]], 1)), 0.2).exp()
        return zeros.to(messages.dtype).index_add(0, targets, messages)


def graph(draw: Draw) -> Network:
    """Message passing along random edges."""
    nodes, width = draw.pick(2000, 10000, 50000), draw.pick(16, 64, 128, 256)
    features, edges = parts.normal(nodes, width), parts.indices(nodes, 2, nodes * draw.pick(4, 10))
    model = _GraphNetwork(width, draw.pick("add", "scatter", "attention"))
    return model, lambda device: (*features(device), *edges(device)), parts.cross_entropy


def _neighborhoods(points: Tensor) -> Tensor:
    """The 16 nearest points of each point, and their offsets. (batch, 3, points) -> (batch, 6, points, 16)."""
    rows = points.transpose(1, 2)
    nearest = torch.cdist(rows.float(), rows.float()).topk(16, largest=False)[1]
    near = rows[torch.arange(len(rows), device=rows.device)[:, None, None], nearest]
    return torch.cat([near, near - rows[:, :, None]], -1).permute(0, 3, 1, 2)


def points(draw: Draw) -> Network:
    """Point clouds: pointwise convolutions, alone or over the nearest points, and a maximum."""
    count, batch, width = draw.pick(512, 1024, 2048, 4096), draw.pick(8, 16, 32), draw.pick(32, 64)
    maximum = parts.Call(lambda x: x.amax(-1))
    near = draw.chance(0.33)
    conv, norm = (nn.Conv2d, nn.BatchNorm2d) if near else (nn.Conv1d, nn.BatchNorm1d)
    layers: list[nn.Module] = [parts.Call(_neighborhoods)] if near else []
    layers += [
        conv(6 if near else 3, width, 1),
        norm(width),
        nn.ReLU(),
        conv(width, 2 * width, 1),
        norm(2 * width),
        nn.ReLU(),
    ]
    layers += [maximum] if near else []
    layers += [nn.Conv1d(2 * width, 16 * width, 1), nn.BatchNorm1d(16 * width), nn.ReLU(), maximum]
    return nn.Sequential(*layers, nn.Linear(16 * width, 40)), parts.normal(batch, 3, count), parts.cross_entropy


IMAGE_RANK: Final = 4


class _Alone(nn.Module):
    """The mean output of layers, each with an input of its own. `layers`: with the shapes of their inputs.

    The dtype and device of the inputs are those of the tensor that `forward` is given. Multiplications separate a layer from the
    creation of its input and from the mean.
    """

    def __init__(self, layers: list[tuple[nn.Module, tuple[int, ...]]], memory_format: torch.memory_format) -> None:
        super().__init__()
        self.layers, self.shapes = nn.ModuleList([layer for layer, _ in layers]), [shape for _, shape in layers]
        self.memory_format, self.scale = memory_format, nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        total = (x * self.scale).sum().float()
        for layer, shape in zip(self.layers, self.shapes, strict=True):
            inputs = torch.randn(shape, device=x.device, dtype=x.dtype, requires_grad=True)
            ordered = inputs.to(memory_format=self.memory_format) if len(shape) == IMAGE_RANK else inputs
            output = layer(ordered * 1.0)
            total = total + (output * 1.0).float().mean()
        return total


def _alone(layers: list[tuple[nn.Module, tuple[int, ...]]], channels_last: bool = False) -> Network:
    memory_format = torch.channels_last if channels_last else torch.preserve_format
    return _Alone(layers, memory_format), parts.normal(2), lambda output: output


def convolutions(draw: Draw) -> Network:
    """Single convolutions of random shapes."""
    return _alone([_convolution(draw) for _ in range(6)], draw.chance(0.4))


def _convolution(draw: Draw) -> tuple[nn.Module, tuple[int, ...]]:
    widths = (8, 16, 32, 64, 128, 256, 512, 1024)
    inputs, outputs = (_channels(draw, *widths) for _ in range(2))
    dims = draw.pick(1, 2, 2, 2, 2, 2, 3)
    size = draw.choice(SIZES[dims])
    kernel, stride = draw.pick(1, 1, 2, 3, 3, 3, 4, 5, 7, 11, 16), draw.pick(1, 1, 1, 2, 4)
    kernel = min(kernel, 5) if dims == 3 else kernel * 8 if dims == 1 and draw.chance(0.1) else kernel
    dilation = draw.pick(1, 1, 1, 2, 4) if kernel > 1 else 1
    groups = draw.pick(1, 1, 1, 1, 1, 2, 4, 16, math.gcd(inputs, outputs))
    if draw.chance(0.15):
        groups = outputs = inputs  # depthwise
    groups = math.gcd(math.gcd(inputs, outputs), groups)
    padding, bias = dilation * (kernel // 2), draw.chance(0.3)
    layer: nn.Module
    if draw.chance(0.15):
        layer = TRANSPOSED[dims](inputs, outputs, kernel, stride, min(padding, kernel // 2), 0, groups, bias)
        size = max(1, size // stride)
    else:
        layer = CONVOLUTIONS[dims](inputs, outputs, kernel, stride, padding, dilation, groups, bias)
    positions, weights = size**dims, inputs * outputs // groups * kernel**dims
    limits = 3e11 / (positions * weights), 1e8 / (positions * max(inputs, outputs))
    batch = max(1, min(draw.pick(1, 4, 8, 16, 32, 64, 128, 256), *(int(each) for each in limits)))
    return layer, (batch, inputs, *(size,) * dims)


def _channels(draw: Draw, *widths: int) -> int:
    """A usual number of channels, or rarely any."""
    return draw.pick(1, 2, 3, 4, 6, draw.randint(1, 600)) if draw.chance(0.12) else draw.width(*widths)


# By the number of dimensions.
SIZES: Final = {
    1: (32, 100, 500, 1000, 4000, 16000),
    2: (1, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 256),
    3: (4, 7, 8, 14, 16, 28, 32),
}
CONVOLUTIONS: Final[dict[int, Layer]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: Final[dict[int, Layer]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def attention(draw: Draw) -> Network:
    """Single calls of scaled dot-product attention of random shapes, with and without masks."""
    return _alone([_attention(draw) for _ in range(4)])


def _attention(draw: Draw) -> tuple[nn.Module, tuple[int, ...]]:
    width, length = (
        draw.pick(16, 32, 40, 64, 64, 64, 80, 96, 128),
        draw.pick(49, 64, 77, 128, 197, 256, 512, 1024, 2048, 4096),
    )
    heads, is_causal, is_masked = draw.pick(1, 3, 6, 8, 12, 16), draw.chance(0.3), draw.chance(0.15)
    columns = length if is_causal or draw.chance(0.8) else draw.pick(32, 77, 128, 512)
    batch = max(
        1,
        min(
            draw.pick(1, 4, 8, 16, 32, 64),
            int(3e11 / (length**2 * heads * width * 4)),
            int(3e7 / (length * heads * width)),
        ),
    )

    def apply(x: Tensor) -> Tensor:
        key = x[..., :columns, :] * 1.0
        mask = torch.ones(length, key.shape[-2], dtype=torch.bool, device=x.device) if is_masked else None
        return F.scaled_dot_product_attention(x, key, key * 1.0, mask, is_causal=is_causal and not is_masked)

    return parts.Call(apply), (batch, heads, length, width)


def sequences(draw: Draw) -> Network:
    """Single recurrent layers and embeddings of random sizes."""
    return _alone([draw.choice((_recurrent, _recurrent, _embedding))(draw) for _ in range(3)])


def _recurrent(draw: Draw) -> tuple[nn.Module, tuple[int, ...]]:
    inputs, hidden = draw.width(32, 64, 128, 256, 512, 1024), draw.width(32, 64, 128, 256, 512, 1024, 1500)
    layers, batch, steps = (
        draw.pick(1, 1, 2, 3),
        draw.pick(1, 8, 16, 20, 32, 64, 128),
        draw.pick(10, 20, 35, 50, 100, 200),
    )
    kind = draw.layer(nn.LSTM, nn.LSTM, nn.GRU, nn.RNN)
    layer = kind(inputs, hidden, layers, batch_first=draw.chance(0.5), bidirectional=draw.chance(0.4))
    shape = (batch, steps, inputs) if layer.batch_first else (steps, batch, inputs)
    return nn.Sequential(layer, parts.Call(lambda outputs: outputs[0])), shape


def _embedding(draw: Draw) -> tuple[nn.Module, tuple[int, ...]]:
    rows, width = draw.pick(100, 1000, 10000, 30000, 100000, 1000000), draw.pick(1, 8, 16, 32, 64, 128, 256, 512, 768)
    rows = min(rows, int(2e8 / width))
    table: nn.Module = (
        nn.EmbeddingBag(rows, width, mode=draw.pick("sum", "mean")) if draw.chance(0.4) else nn.Embedding(rows, width)
    )
    shape = (draw.pick(64, 256, 1024, 4096, 16384), draw.pick(1, 1, 4, 20, 50))

    numbers = parts.Call(lambda x: (x.detach().float().abs() * rows / 5).long().clamp(max=rows - 1))
    return nn.Sequential(numbers, table), shape


def products(draw: Draw) -> Network:
    """Single matrix products of random shapes, also in batches."""
    return _alone([each for _ in range(8) for each in _products(draw)])


def _products(draw: Draw) -> list[tuple[nn.Module, tuple[int, ...]]]:
    widths = (8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
    inputs, outputs = draw.width(*widths), draw.width(*widths)
    rows = draw.pick(1, 8, 32, 64, 100, 128, 197, 256, 512, 1000, 2048, 4096, 8192, 16384, 32768)
    rows = max(1, min(rows, int(2e11 / (inputs * outputs)), int(1e8 / max(inputs, outputs))))
    linear = (nn.Linear(inputs, outputs, bias=draw.chance(0.5)), (rows, inputs))
    length, width = draw.pick(16, 32, 64, 128, 197, 256, 512), draw.pick(32, 64, 64, 128)
    batched = parts.Call(lambda x: x @ x.transpose(1, 2) @ x), (draw.pick(8, 32, 96, 384), length, width)
    return [linear, batched] if draw.chance(0.67) else [linear]


def operators(draw: Draw) -> Network:
    """Single pointwise ops, reductions, index ops and resamplings of random shapes."""
    return _alone([(parts.Call(draw.choice(OPERATORS)), _image_shape(draw)) for _ in range(draw.pick(3, 6, 9))])


def _image_shape(draw: Draw) -> tuple[int, ...]:
    channels, size = draw.pick(1, 3, 4, 16, 21, 64, 256, 1000), draw.pick(1, 8, 16, 28, 33, 56, 112, 256, 512)
    batch = min(draw.pick(1, 2, 8, 32, 64, 256), int(1e8 / (channels * size**2)))
    return max(1, batch), channels, size, size


# Names of functions of torch with one argument, and of those with a dimension, which are called for each of three dimensions.
POINTWISE: Final = (
    "exp abs log1p sqrt rsqrt tanh sigmoid sin erf reciprocal relu nan_to_num sign isfinite tril std randn_like"
)
BY_DIMENSION: Final = "sum mean amax max var softmax log_softmax cumsum prod norm argmax flip sort argsort unbind glu"


def _along(name: str, dim: int) -> Callable[[Tensor], Tensor]:
    function: Any = F.glu if name == "glu" else getattr(torch, name)

    def apply(x: Tensor) -> Tensor:
        if name == "glu" and x.shape[dim] % 2:
            return x
        result = function(x, dims=(dim,)) if name == "flip" else function(x, dim=dim)
        return result if isinstance(result, Tensor) else result[0]

    return apply


OPERATORS: Final[list[Callable[[Tensor], Tensor]]] = [
    *(getattr(torch, name) for name in POINTWISE.split()),
    *(_along(name, dim) for name in BY_DIMENSION.split() for dim in (1, 2, 3)),
    *(F.softplus, F.elu, F.mish, F.gelu, F.hardswish, F.normalize),
    lambda x: torch.where(x > 0, x, 0.1 * x) * 2,
    lambda x: x.pow(3) + x / (1 + x.abs()),
    lambda x: torch.maximum(x, x * 0.5) - torch.minimum(x, x * 0.2),
    lambda x: x.clamp(-1, 1).masked_fill(x > 1, 0.0),
    lambda x: x * x[:1, :, :1, :1] + x[:1, :, :1, :1],
    lambda x: x.sum((2, 3)),
    lambda x: x.flatten(1).sort(-1)[0],
    lambda x: x.flatten(2).topk(4)[0],
    lambda x: F.layer_norm(x, x.shape[1:]),
    lambda x: F.dropout(x, 0.3),
    lambda x: x.half().float(),
    lambda x: x.to(torch.bfloat16) * 2,
    lambda x: x.permute(0, 2, 3, 1).contiguous(),
    lambda x: x.transpose(2, 3).contiguous() * 2,
    lambda x: torch.roll(x, 1, 2),
    lambda x: torch.cat([x, x[:, : x.shape[1] // 2]], 1),
    lambda x: torch.stack([x, x], 1),
    lambda x: x.repeat(1, 2, 1, 1),
    lambda x: x.expand(2, *x.shape).sum(0),
    lambda x: x.new_zeros(x.shape) + x,
    lambda x: x.unfold(2, 2, 2).sum(-1),
    lambda x: x.gather(3, torch.randint(0, x.shape[3], x.shape, device=x.device)),
    lambda x: x.index_select(1, torch.randint(0, x.shape[1], x.shape[1:2], device=x.device)),
    lambda x: F.one_hot(x[:, 0].long().clamp(0, 9), 10),
    lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    lambda x: torch.bmm(x.flatten(2), x.flatten(2).transpose(1, 2)),
    lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    lambda x: F.pad(x, (2, 2, 2, 2)),
    lambda x: F.unfold(x[:, :16], 3, padding=1),
    lambda x: F.pixel_unshuffle(x, 2),
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda x: F.adaptive_avg_pool2d(x, 4),
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: F.interpolate(x[:1], (256, 256), mode="bilinear"),
    lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic"),
    lambda x: 1 - x,
    lambda x: x.flatten(1).cumprod(1),
    lambda x: F.max_pool2d(x, 2),
    lambda x: x.clone().index_add_(0, torch.randint(0, len(x), (len(x),), device=x.device), x),
    lambda x: x[torch.randint(0, len(x), (2 * len(x),), device=x.device)],
    lambda x: F.group_norm(x, 1),
    lambda x: x * x.mean((2, 3), keepdim=True),
    lambda x: torch.cat([x, x], -1),
    lambda x: (x.unsqueeze(-1) * x.new_ones(4)).sum(-1),
    lambda x: F.grid_sample(x, torch.rand_like(x[:, :2]).permute(0, 2, 3, 1) * 2 - 1, align_corners=False),
]
