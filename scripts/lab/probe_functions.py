"""Builders of functions: lookups, losses, reductions, orders, images, algebra, optimizers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.lab.probe_case import Built, Work, builder, leaf, to_device, trainable_parameters, with_autocast


@builder
def embedding(
    device: torch.device,
    rows: int,
    width: int,
    shape: list[int],
    padding: bool = False,
    by_freq: bool = False,
    dtype: str = "tf32",
) -> Built:
    """nn.Embedding with a dense gradient."""
    module = to_device(
        nn.Embedding(rows, width, padding_idx=0 if padding else None, scale_grad_by_freq=by_freq), device, dtype
    )
    at = torch.randint(0, rows, tuple(shape), device=device)
    return (lambda: module(at)), trainable_parameters(module)


@builder
def embedding_bag(
    device: torch.device, rows: int, width: int, bags: int, each: int, mode: str, dtype: str = "tf32"
) -> Built:
    """nn.EmbeddingBag over bags of equal size."""
    module = to_device(nn.EmbeddingBag(rows, width, mode=mode), device, dtype)
    at = torch.randint(0, rows, (bags, each), device=device)
    return (lambda: module(at)), trainable_parameters(module)


@builder
def indexing(device: torch.device, kind: str, rows: int, width: int, count: int, dtype: str = "tf32") -> Built:
    """Indexed reads and writes."""
    x = leaf(device, (rows, width), dtype)
    at = torch.randint(0, rows, (count,), device=device)
    source = leaf(device, (count, width), dtype)
    wide = at.unsqueeze(1).expand(count, width)
    value = torch.zeros(rows, width, device=device, dtype=x.dtype)
    works: dict[str, tuple[Work, list[Tensor]]] = {
        "index": (lambda: x[at], [x]),
        "index_two": (lambda: x[at, at % width], [x]),
        "index_columns": (lambda: x[:, at % width], [x]),
        "index_select": (lambda: torch.index_select(x, 0, at), [x]),
        "gather": (lambda: torch.gather(x, 0, wide), [x]),
        "index_add": (lambda: value.index_add(0, at, source), [source]),
        "scatter_add": (lambda: value.scatter_add(0, wide, source), [source]),
        "scatter_reduce": (lambda: value.scatter_reduce(0, wide, source, "amax"), [source]),
        "index_put": (lambda: value.index_put((at,), source.detach()), []),
        "index_put_accumulate": (lambda: value.index_put((at,), source.detach(), accumulate=True), []),
        "masked_select": (lambda: x[x > 0], [x]),
        "masked_fill": (lambda: x.masked_fill(x > 0, 0.0), [x]),
        "nonzero": (lambda: torch.nonzero(x.detach() > 0), []),
        "unique": (lambda: torch.unique(at, return_inverse=True, return_counts=True), []),
        "bincount": (lambda: torch.bincount(at), []),
        "one_hot": (lambda: F.one_hot(at, rows), []),
        "repeat_interleave": (lambda: x.repeat_interleave(at[: x.shape[0]] % 3, 0) if count >= rows else x, [x]),
        "searchsorted": (lambda: torch.searchsorted(torch.arange(rows, device=device), at), []),
    }  # fmt: skip
    return works[kind]


@builder
def softmax(device: torch.device, shape: list[int], dim: int = -1, log: bool = False, dtype: str = "tf32") -> Built:
    """softmax or log_softmax."""
    x = leaf(device, shape, dtype)
    return with_autocast(dtype, lambda: (torch.log_softmax if log else torch.softmax)(x, dim)), [x]


@builder
def cross_entropy(
    device: torch.device,
    shape: list[int],
    smoothing: float = 0.0,
    weighted: bool = False,
    reduction: str = "mean",
    dtype: str = "tf32",
) -> Built:
    """cross_entropy over classes in dimension 1."""
    x = leaf(device, shape, dtype)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), device=device)
    weight = torch.ones(shape[1], device=device, dtype=x.dtype) if weighted else None
    return with_autocast(
        dtype, lambda: F.cross_entropy(x, target, weight, label_smoothing=smoothing, reduction=reduction)
    ), [x]


@builder
def loss(device: torch.device, kind: str, shape: list[int], dtype: str = "tf32") -> Built:
    """A loss between two tensors of the same shape."""
    x, y = leaf(device, shape, dtype), leaf(device, shape, dtype, grad=False).sigmoid()
    return with_autocast(dtype, lambda: getattr(F, kind)(x, y)), [x]


@builder
def ctc(device: torch.device, steps: int, batch: int, classes: int, length: int) -> Built:
    """CTC loss with arguments for cuDNN or ATen."""
    x = leaf(device, (steps, batch, classes), "tf32")
    target = torch.randint(1, classes, (batch, length), device=device)
    lengths = [steps] * batch, [length] * batch  # lists: cuDNN and ATen expect tensors on different devices
    return (lambda: torch.ctc_loss(x.log_softmax(2), target, *lengths, 0, 1, False)), [x]


@builder
def reduce(
    device: torch.device,
    kind: str,
    shape: list[int],
    dims: list[int],
    order: list[int] | None = None,
    keep: bool = False,
    dtype: str = "tf32",
) -> Built:
    """A reduction; `order` permutes a contiguous tensor first. Without dims, over all dimensions."""
    x = leaf(device, shape, dtype, grad=False)
    x = x.permute(order) if order else x
    function = torch.linalg.vector_norm if kind == "norm" else getattr(torch, kind)
    if not dims:
        return (lambda: function(x)), []
    if kind in ("argmax", "max", "median", "prod", "any"):
        return (lambda: function(x, dims[0])), []
    return (lambda: function(x, dim=dims, keepdim=keep)), []


@builder
def broadcast(device: torch.device, kind: str, a: list[int], b: list[int], dtype: str = "tf32") -> Built:
    """Arithmetic whose backward sums over the broadcast dimensions."""
    x, y = leaf(device, a, dtype), leaf(device, b, dtype)
    return (lambda: getattr(torch, kind)(x, y)), [x, y]


@builder
def order(device: torch.device, kind: str, shape: list[int], dim: int = -1, k: int = 8, dtype: str = "tf32") -> Built:
    """Sorting, selecting and scanning."""
    x = leaf(device, shape, dtype)
    plain = x.detach()
    integers = torch.randint(0, 1000, tuple(shape), device=device)
    works: dict[str, tuple[Work, list[Tensor]]] = {
        "sort": (lambda: torch.sort(x, dim), [x]),
        "sort_int": (lambda: torch.sort(integers, dim), []),
        "sort_stable": (lambda: torch.sort(plain, dim=dim, stable=True), []),
        "argsort": (lambda: torch.argsort(plain, dim), []),
        "topk": (lambda: torch.topk(x, min(k, shape[dim]), dim), [x]),
        "kthvalue": (lambda: torch.kthvalue(x, min(k, shape[dim]), dim), [x]),
        "median": (lambda: torch.median(x, dim), [x]),
        "mode": (lambda: torch.mode(integers, dim), []),
        "cumsum": (lambda: torch.cumsum(x, dim), [x]),
        "cumprod": (lambda: torch.cumprod(x, dim), [x]),
        "cummax": (lambda: torch.cummax(x, dim), [x]),
        "logcumsumexp": (lambda: torch.logcumsumexp(x, dim), [x]),
        "multinomial": (lambda: torch.multinomial(plain.view(-1, shape[-1]).abs() + 0.1, 1), []),
        "randperm": (lambda: torch.randperm(math.prod(shape), device=device), []),
        "quantile": (lambda: torch.quantile(plain.float(), 0.5, dim), []),
        "norm": (lambda: torch.linalg.vector_norm(x, dim=dim), [x]),
        "normalize": (lambda: F.normalize(x, dim=dim), [x]),
        "var": (lambda: torch.var(x, dim), [x]),
        "std_mean": (lambda: torch.std_mean(x, dim), [x]),
        "logsumexp": (lambda: torch.logsumexp(x, dim), [x]),
        "cdist": (lambda: torch.cdist(x.view(-1, shape[-1])[:4096], plain.view(-1, shape[-1])[:64]), [x]),
        "cosine_similarity": (lambda: F.cosine_similarity(x, plain, dim), [x]),
    }  # fmt: skip
    return works[kind]


@builder
def resize(
    device: torch.device,
    mode: str,
    shape: list[int],
    scale: float = 2.0,
    antialias: bool = False,
    cl: bool = False,
    dtype: str = "tf32",
) -> Built:
    """F.interpolate."""
    x = leaf(device, shape, dtype, grad=False)
    x = (x.contiguous(memory_format=torch.channels_last) if cl else x).requires_grad_()
    more: dict[str, Any] = {"align_corners": False} if mode.endswith(("linear", "cubic")) else {}
    if antialias:
        more["antialias"] = True
    return with_autocast(dtype, lambda: F.interpolate(x, scale_factor=scale, mode=mode, **more)), [x]


@builder
def pool(
    device: torch.device,
    kind: str,
    shape: list[int],
    k: int = 2,
    s: int = 2,
    p: int = 0,
    cl: bool = False,
    dtype: str = "tf32",
) -> Built:
    """Pooling in one, two or three dimensions; for adaptive kinds, k is the output's size."""
    x = leaf(device, shape, dtype, grad=False)
    x = (x.contiguous(memory_format=torch.channels_last) if cl else x).requires_grad_()
    function = getattr(F, kind)
    if kind.startswith("adaptive"):
        return (lambda: function(x, k)), [x]
    if kind.startswith("lp"):
        return (lambda: function(x, 2.0, k, s)), [x]
    return (lambda: function(x, k, s, p)), [x]


@builder
def spatial(device: torch.device, kind: str, shape: list[int], dtype: str = "tf32") -> Built:
    """Sampling, padding, folding and shuffling of images."""
    x = leaf(device, shape, dtype)
    n, h, w = shape[0], shape[-2], shape[-1]
    grid = (torch.rand(n, h, w, 2, device=device, dtype=x.dtype) * 2 - 1).requires_grad_()
    works: dict[str, tuple[Work, list[Tensor]]] = {
        "grid_sample": (lambda: F.grid_sample(x, grid, align_corners=False), [x, grid]),
        "affine_grid": (lambda: F.affine_grid(x.new_zeros(n, 2, 3), [*shape], align_corners=False), []),
        "pad_reflect": (lambda: F.pad(x, (2, 2, 2, 2), mode="reflect"), [x]),
        "pad_replicate": (lambda: F.pad(x, (2, 2, 2, 2), mode="replicate"), [x]),
        "pad_circular": (lambda: F.pad(x, (2, 2, 2, 2), mode="circular"), [x]),
        "pad": (lambda: F.pad(x, (2, 2, 2, 2)), [x]),
        "unfold": (lambda: F.unfold(x, 3, padding=1), [x]),
        "fold": (lambda: F.fold(F.unfold(x, 2, stride=2), (h, w), 2, stride=2), [x]),
        "pixel_shuffle": (lambda: F.pixel_shuffle(x, 2), [x]),
        "pixel_unshuffle": (lambda: F.pixel_unshuffle(x, 2), [x]),
        "roll": (lambda: torch.roll(x, (3, 3), (2, 3)), [x]),
        "flip": (lambda: torch.flip(x, (2,)), [x]),
        "cat": (lambda: torch.cat([x, x, x], 1), [x]),
        "stack": (lambda: torch.stack([x, x], 1), [x]),
        "repeat": (lambda: x.repeat(1, 2, 1, 1), [x]),
        "contiguous": (lambda: x.transpose(1, 3).contiguous(), [x]),
        "local_response_norm": (lambda: F.local_response_norm(x, 5), [x]),
        "dropout2d": (lambda: F.dropout2d(x, 0.2, True), [x]),
        "dropout": (lambda: F.dropout(x, 0.2, True), [x]),
        "channel_shuffle": (lambda: F.channel_shuffle(x, 2), [x]),
    }  # fmt: skip
    return works[kind]


@builder
def activation(device: torch.device, kind: str, shape: list[int], dtype: str = "tf32") -> Built:
    """An activation; prelu has a parameter."""
    x = leaf(device, shape, dtype)
    if kind == "prelu":
        weight = leaf(device, (shape[1],), dtype)
        return (lambda: F.prelu(x, weight)), [x, weight]
    return (lambda: getattr(F, kind)(x)), [x]


@builder
def fourier(device: torch.device, kind: str, shape: list[int]) -> Built:
    """Fourier transforms (cuFFT)."""
    x = leaf(device, shape, "tf32")
    window = torch.hann_window(400, device=device)
    works: dict[str, Work] = {
        "rfft": lambda: torch.fft.rfft(x),
        "fft": lambda: torch.fft.fft(x),
        "rfft2": lambda: torch.fft.rfft2(x),
        "fft2": lambda: torch.fft.fft2(x),
        "round_trip": lambda: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
        "stft": lambda: torch.stft(x, 400, 160, window=window, return_complex=True).abs(),
    }
    return works[kind], [x]


@builder
def algebra(device: torch.device, kind: str, shape: list[int]) -> Built:
    """Decompositions and solvers."""
    x = leaf(device, shape, "fp32")
    works: dict[str, Work] = {
        "cholesky": lambda: torch.linalg.cholesky(x @ x.mT + 10 * shape[-1] * torch.eye(shape[-1], device=device)),
        "inv": lambda: torch.linalg.inv(x + 10 * shape[-1] * torch.eye(shape[-1], device=device)),
        "svd": lambda: torch.linalg.svdvals(x),
        "qr": lambda: torch.linalg.qr(x),
        "eigh": lambda: torch.linalg.eigvalsh(x + x.mT),
        "det": lambda: torch.linalg.slogdet(x)[1],
        "solve": lambda: torch.linalg.solve(x + 10 * shape[-1] * torch.eye(shape[-1], device=device), x),
    }
    return works[kind], [x]


@builder
def optimizer(device: torch.device, kind: str, sizes: list[list[int]], options: dict[str, Any]) -> Built:
    """One step of an optimizer with initialized state."""
    parameters = [leaf(device, s, "fp32") for s in sizes]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer_instance = getattr(torch.optim, kind)(parameters, lr=1e-3, **options)
    return (lambda: optimizer_instance.step()), []


@builder
def clip(device: torch.device, sizes: list[list[int]]) -> Built:
    """clip_grad_norm_."""
    parameters = [leaf(device, s, "fp32") for s in sizes]
    for p in parameters:
        p.grad = torch.ones_like(p)
    return (lambda: nn.utils.clip_grad_norm_(parameters, 1.0)), []
