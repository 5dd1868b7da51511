"""The grid of everything but convolutions: each case builds its tensors and says how to run forward, once.

A builder takes a device and the case's parameters; it returns the function to run and the leaves to differentiate for.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from probe_device import DTYPES, FAILURES, SLOW_S, STUCK_S, Meter, OpMeter, configured, tensors_of
from torch import Tensor, nn

Work = Callable[[], object]
Built = tuple[Work, list[Tensor]]
BUILDERS: dict[str, Callable[..., Built]] = {}


def builder(function: Callable[..., Built]) -> Callable[..., Built]:
    """Enter a builder under its own name."""
    BUILDERS[function.__name__] = function
    return function


@dataclass(frozen=True, slots=True)
class Case:
    """A builder's name and its parameters.

    Its dtype: `tf32` is PyTorch's default (fp32, TF32 in cuDNN alone), `fp32` is without TF32, `mmtf32` with TF32 in
    cuBLAS too, `amp` is fp32 under bf16 autocast.
    """

    name: str
    parameters: dict[str, Any]
    deterministic: bool = False


def leaf(device: torch.device, shape: Sequence[int], dtype: str, *, grad: bool = True) -> Tensor:
    """A random tensor, by default one to differentiate for."""
    made = torch.randn(tuple(shape), device=device, dtype=DTYPES.get(dtype, torch.float32))
    return made.requires_grad_(grad)


def casting(dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast for `amp`, nothing for the others."""
    return torch.autocast("cuda", torch.bfloat16) if dtype == "amp" else contextlib.nullcontext()


def under(dtype: str, work: Work) -> Work:
    """`work`, under autocast if the dtype says so."""

    def run() -> object:
        with casting(dtype):
            return work()

    return run


def placed(module: nn.Module, device: torch.device, dtype: str, *, train: bool = True) -> nn.Module:
    """The module on the device, in the dtype, in training or evaluation mode."""
    return module.to(device, DTYPES.get(dtype, torch.float32)).train(train)


def trained(module: nn.Module) -> list[Tensor]:
    """The parameters that get gradients."""
    return [p for p in module.parameters() if p.requires_grad]


@builder
def rnn(
    device: torch.device,
    kind: str,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    layers: int = 1,
    bi: bool = False,
    dropout: float = 0.0,
    proj: int = 0,
    packed: bool = False,
    train: bool = True,
    bias: bool = True,
    batch_first: bool = False,
    grad_input: bool = True,
    nonlinearity: str = "tanh",
    dtype: str = "tf32",
) -> Built:
    """nn.RNN, nn.GRU or nn.LSTM."""
    more: dict[str, Any] = {"nonlinearity": nonlinearity} if kind == "RNN" else {}
    if proj:
        more["proj_size"] = proj
    module = getattr(nn, kind)(
        inputs, hidden, layers, bias=bias, batch_first=batch_first, dropout=dropout, bidirectional=bi, **more
    )
    module = placed(module, device, dtype, train=train)
    x = leaf(
        device, (batch, steps, inputs) if batch_first else (steps, batch, inputs), dtype, grad=grad_input and train
    )
    leaves = ([x] if x.requires_grad else []) + (trained(module) if train else [])
    if packed:
        lengths = torch.linspace(steps, max(1, steps // 3), batch).long()

        def run() -> object:
            both = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=batch_first)
            out, state = module(both)
            return nn.utils.rnn.pad_packed_sequence(out, batch_first=batch_first)[0], state

        return (run if train else without_grad(run)), leaves
    run_plain = under(dtype, lambda: module(x))
    return (run_plain if train else without_grad(run_plain)), leaves


def without_grad(work: Work) -> Work:
    """`work` under no_grad."""

    def run() -> object:
        with torch.no_grad():
            return work()

    return run


@builder
def cell(
    device: torch.device, kind: str, batch: int, inputs: int, hidden: int, steps: int, dtype: str = "tf32"
) -> Built:
    """A cell, called `steps` times."""
    module = placed(getattr(nn, kind)(inputs, hidden), device, dtype)
    x = leaf(device, (batch, inputs), dtype)

    def run() -> object:
        state: Any = None
        for _ in range(steps):
            state = module(x, state)
        return state

    return under(dtype, run), [x, *trained(module)]


@builder
def linear(device: torch.device, shape: list[int], out: int, bias: bool = True, dtype: str = "tf32") -> Built:
    """nn.Linear."""
    module = placed(nn.Linear(shape[-1], out, bias=bias), device, dtype)
    x = leaf(device, shape, dtype)
    return under(dtype, lambda: module(x)), [x, *trained(module)]


@builder
def matmul(device: torch.device, a: list[int], b: list[int], turned: bool = False, dtype: str = "tf32") -> Built:
    """torch.matmul; `turned` multiplies with the last two dimensions of b swapped."""
    x, y = leaf(device, a, dtype), leaf(device, b, dtype)
    return under(dtype, lambda: torch.matmul(x, y.transpose(-1, -2) if turned else y)), [x, y]


@builder
def einsum(device: torch.device, equation: str, shapes: list[list[int]], dtype: str = "tf32") -> Built:
    """torch.einsum."""
    inputs = [leaf(device, s, dtype) for s in shapes]
    return under(dtype, lambda: torch.einsum(equation, *inputs)), list(inputs)


@builder
def baddbmm(device: torch.device, b: int, n: int, k: int, m: int, dtype: str = "tf32") -> Built:
    """torch.baddbmm with a bias that is broadcast."""
    c, x, y = leaf(device, (1, n, m), dtype), leaf(device, (b, n, k), dtype), leaf(device, (b, k, m), dtype)
    return (lambda: torch.baddbmm(c, x, y)), [c, x, y]


@builder
def sdpa(
    device: torch.device,
    b: int,
    h: int,
    s: int,
    d: int,
    kv: int = 0,
    kv_heads: int = 0,
    causal: bool = False,
    mask: str = "",
    dropout: float = 0.0,
    backend: str = "",
    packed: bool = False,
    dtype: str = "bf16",
) -> Built:
    """scaled_dot_product_attention; `packed` takes q, k and v out of one projection as transformers do."""
    kind = DTYPES[dtype]
    k_len, k_heads = kv or s, kv_heads or h
    leaves: list[Tensor]
    if packed:
        qkv = leaf(device, (b, s, 3, h, d), dtype)
        leaves = [qkv]
    else:
        q, k, v = (
            leaf(device, (b, h, s, d), dtype),
            leaf(device, (b, k_heads, k_len, d), dtype),
            leaf(device, (b, k_heads, k_len, d), dtype),
        )
        leaves = [q, k, v]
    m: Tensor | None = None
    if mask == "bool":
        m = torch.ones(b, 1, s, k_len, device=device, dtype=torch.bool)
    elif mask == "float":
        m = torch.zeros(s, k_len, device=device, dtype=kind)
    elif mask == "bias":
        m = leaf(device, (1, h, s, k_len), dtype)
        leaves.append(m)

    def run() -> object:
        qq, kk, vv = qkv.permute(2, 0, 3, 1, 4).unbind(0) if packed else (q, k, v)
        with chosen(backend):
            return F.scaled_dot_product_attention(qq, kk, vv, m, dropout, causal, enable_gqa=k_heads != h)

    return run, leaves


def chosen(backend: str) -> contextlib.AbstractContextManager[Any]:
    """The named attention backend alone; any for ''."""
    if not backend:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    context: contextlib.AbstractContextManager[Any] = sdpa_kernel(getattr(SDPBackend, backend))
    return context


@builder
def attention(
    device: torch.device, b: int, s: int, d: int, h: int, train: bool = True, weights: bool = False, dtype: str = "tf32"
) -> Built:
    """nn.MultiheadAttention on one sequence."""
    module = placed(nn.MultiheadAttention(d, h, dropout=0.1, batch_first=True), device, dtype, train=train)
    x = leaf(device, (b, s, d), dtype, grad=train)
    run = under(dtype, lambda: module(x, x, x, need_weights=weights))
    return (run if train else without_grad(run)), ([x, *trained(module)] if train else [])


@builder
def encoder_layer(
    device: torch.device, b: int, s: int, d: int, h: int, train: bool = True, dtype: str = "tf32"
) -> Built:
    """nn.TransformerEncoderLayer."""
    module = placed(nn.TransformerEncoderLayer(d, h, 4 * d, 0.1, batch_first=True), device, dtype, train=train)
    x = leaf(device, (b, s, d), dtype, grad=train)
    run = under(dtype, lambda: module(x))
    return (run if train else without_grad(run)), ([x, *trained(module)] if train else [])


@builder
def layer_norm(
    device: torch.device,
    shape: list[int],
    dims: int = 1,
    turned: bool = False,
    affine: bool = True,
    dtype: str = "tf32",
) -> Built:
    """nn.LayerNorm; `turned` gives it a channels-last view of a channels-first tensor."""
    x = leaf(device, (shape[0], shape[-1], *shape[1:-1]) if turned else shape, dtype)
    module = placed(nn.LayerNorm(shape[-dims:], elementwise_affine=affine), device, dtype)

    def run() -> object:
        return module(x.movedim(1, -1) if turned else x)

    return under(dtype, run), [x, *trained(module)]


@builder
def norm(
    device: torch.device,
    kind: str,
    shape: list[int],
    groups: int = 8,
    train: bool = True,
    cl: bool = False,
    dtype: str = "tf32",
) -> Built:
    """Batch, group, instance or RMS normalisation."""
    c, dims = shape[1], len(shape) - 2
    module: nn.Module
    if kind == "batch":
        module = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dims](c)
    elif kind == "instance":
        module = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[dims](c, affine=True)
    elif kind == "group":
        module = nn.GroupNorm(groups, c)
    else:
        module = nn.RMSNorm(shape[-1])
    module = placed(module, device, dtype, train=train)
    x = leaf(device, shape, dtype, grad=False)
    if cl:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    return under(dtype, lambda: module(x)), [x, *trained(module)]


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
    module = placed(
        nn.Embedding(rows, width, padding_idx=0 if padding else None, scale_grad_by_freq=by_freq), device, dtype
    )
    at = torch.randint(0, rows, tuple(shape), device=device)
    return (lambda: module(at)), trained(module)


@builder
def embedding_bag(
    device: torch.device, rows: int, width: int, bags: int, each: int, mode: str, dtype: str = "tf32"
) -> Built:
    """nn.EmbeddingBag over bags of equal size."""
    module = placed(nn.EmbeddingBag(rows, width, mode=mode), device, dtype)
    at = torch.randint(0, rows, (bags, each), device=device)
    return (lambda: module(at)), trained(module)


@builder
def indexing(device: torch.device, kind: str, rows: int, width: int, count: int, dtype: str = "tf32") -> Built:
    """Reading and writing by indices."""
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
    return under(dtype, lambda: (torch.log_softmax if log else torch.softmax)(x, dim)), [x]


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
    return under(dtype, lambda: F.cross_entropy(x, target, weight, label_smoothing=smoothing, reduction=reduction)), [x]


@builder
def loss(device: torch.device, kind: str, shape: list[int], dtype: str = "tf32") -> Built:
    """A loss between two tensors of the same shape."""
    x, y = leaf(device, shape, dtype), leaf(device, shape, dtype, grad=False).sigmoid()
    return under(dtype, lambda: getattr(F, kind)(x, y)), [x]


@builder
def ctc(device: torch.device, steps: int, batch: int, classes: int, length: int) -> Built:
    """CTC loss, as cuDNN or ATen takes it."""
    x = leaf(device, (steps, batch, classes), "tf32")
    target = torch.randint(1, classes, (batch, length), device=device)
    sizes = torch.full((batch,), steps, dtype=torch.long), torch.full((batch,), length, dtype=torch.long)
    return (lambda: F.ctc_loss(x.log_softmax(2), target, sizes[0], sizes[1])), [x]


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
    """A reduction; `order` permutes a contiguous tensor first. No dims: over everything."""
    x = leaf(device, shape, dtype, grad=False)
    x = x.permute(order) if order else x
    function = getattr(torch, kind)
    if not dims:
        return (lambda: function(x)), []
    if kind in ("argmax", "max", "median", "prod", "any"):
        return (lambda: function(x, dims[0])), []
    return (lambda: function(x, dims, keepdim=keep)), []


@builder
def broadcast(device: torch.device, kind: str, a: list[int], b: list[int], dtype: str = "tf32") -> Built:
    """Arithmetic whose backward sums over what was broadcast."""
    x, y = leaf(device, a, dtype), leaf(device, b, dtype)
    return (lambda: getattr(torch, kind)(x, y)), [x, y]


@builder
def order(device: torch.device, kind: str, shape: list[int], dim: int = -1, k: int = 8, dtype: str = "tf32") -> Built:
    """Sorting, selecting and scanning."""
    x = leaf(device, shape, dtype)
    plain = x.detach()
    whole = torch.randint(0, 1000, tuple(shape), device=device)
    works: dict[str, tuple[Work, list[Tensor]]] = {
        "sort": (lambda: torch.sort(x, dim), [x]),
        "sort_int": (lambda: torch.sort(whole, dim), []),
        "sort_stable": (lambda: torch.sort(plain, dim=dim, stable=True), []),
        "argsort": (lambda: torch.argsort(plain, dim), []),
        "topk": (lambda: torch.topk(x, min(k, shape[dim]), dim), [x]),
        "kthvalue": (lambda: torch.kthvalue(x, min(k, shape[dim]), dim), [x]),
        "median": (lambda: torch.median(x, dim), [x]),
        "mode": (lambda: torch.mode(whole, dim), []),
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
    return under(dtype, lambda: F.interpolate(x, scale_factor=scale, mode=mode, **more)), [x]


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
    """Pooling of one, two or three dimensions; adaptive kinds take k as the output's size."""
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
    """An activation; prelu has a parameter of its own."""
    x = leaf(device, shape, dtype)
    if kind == "prelu":
        weight = leaf(device, (shape[1],), dtype)
        return (lambda: F.prelu(x, weight)), [x, weight]
    return (lambda: getattr(F, kind)(x)), [x]


@builder
def fourier(device: torch.device, kind: str, shape: list[int]) -> Built:
    """Transforms by cuFFT."""
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
    """One step of an optimizer whose state exists."""
    parameters = [leaf(device, s, "fp32") for s in sizes]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    made = getattr(torch.optim, kind)(parameters, lr=1e-3, **options)
    return (lambda: made.step()), []


@builder
def clip(device: torch.device, sizes: list[list[int]]) -> Built:
    """clip_grad_norm_."""
    parameters = [leaf(device, s, "fp32") for s in sizes]
    for p in parameters:
        p.grad = torch.ones_like(p)
    return (lambda: nn.utils.clip_grad_norm_(parameters, 1.0)), []


MOST_OPS: Final = 100


def measured(case: Case, meter: Meter) -> dict[str, Any]:
    """Every op's figures in the first and in the steady pass, the phases' totals, and the allocations of what took any.

    A pass that is slow is the case's last: `slow_s` says how long it took. A first pass that is stuck stands for both.
    """
    dtype = str(case.parameters.get("dtype", "tf32"))
    with configured(dtype, deterministic=case.deterministic):
        meter.wait()
        work, leaves = BUILDERS[case.name](meter.device, **case.parameters)
        first = _pass(work, leaves, meter, frozenset())
        steady = first if first.took_s > STUCK_S else _pass(work, leaves, meter, frozenset())
        row: dict[str, Any] = {"totals": [first.totals, steady.totals]}
        aligned = [op[:2] for op in first.ops] == [op[:2] for op in steady.ops]
        earlier = first.ops if aligned else steady.ops
        rows = [
            [i, *op, None if op[3] == was[3] else was[3]]
            for i, (op, was) in enumerate(zip(steady.ops, earlier, strict=True))
        ]
        if len(rows) > MOST_OPS:
            row["left_out"] = len(rows) - MOST_OPS
            rows = sorted(sorted(rows, key=lambda op: -hidden(op[4]))[:MOST_OPS], key=lambda op: op[0])
        row["ops"] = rows
        row["aligned"] = aligned
        if steady.unmetered:
            row["unmetered"] = steady.unmetered
        if steady.took_s > SLOW_S:
            row["slow_s"] = round(steady.took_s, 3)
            return row
        taking = [i for i, op in enumerate(steady.ops) if hidden(op[3]) >= 512]
        if taking and meter.tracing:
            events = _pass(work, leaves, meter, frozenset(taking[:24])).events
            row["ev"] = {str(i): e for i, e in events.items()}
        meter.wait()
    return row


def hidden(figures: list[int]) -> int:
    """What an op took and gave back, or keeps without returning it: whichever is more."""
    peak, growth, returned, _ = figures
    return max(peak - max(growth, 0), growth - returned)


@dataclass(frozen=True, slots=True)
class _Passed:
    """What one pass told."""

    ops: list[list[Any]]
    totals: dict[str, list[int]]
    events: dict[int, list[Any]]
    unmetered: int
    took_s: float


def _pass(work: Work, leaves: list[Tensor], meter: Meter, traced: frozenset[int]) -> _Passed:
    """Forward, and backward unless nothing asks for it or forward was stuck."""
    totals: dict[str, list[int]] = {}
    meter.reset()
    started = time.perf_counter()
    with OpMeter(meter, traced) as ops:
        result = work()
        totals["fwd"] = ops.phase_total()
        if leaves and time.perf_counter() - started <= STUCK_S:
            ops.phase = "bwd"
            out = [t for t in tensors_of(result) if t.requires_grad]
            seeds = [torch.ones_like(t) for t in out]
            ops.phase_total()
            gradients = torch.autograd.grad(out, leaves, seeds, retain_graph=True, allow_unused=True)
            totals["bwd"] = ops.phase_total()
            del gradients, out, seeds
        del result
    return _Passed(ops.ops, totals, ops.events, ops.unmetered, time.perf_counter() - started)


def _each(name: str, dtypes: str, **options: Any) -> Iterator[Case]:
    """The case in each dtype; every option that is a tuple is varied."""
    varied: list[dict[str, Any]] = [{}]
    for option, value in options.items():
        values = value if isinstance(value, tuple) else (value,)
        varied = [{**v, option: one} for v in varied for one in values]
    for parameters in varied:
        if not dtypes:
            yield Case(name, parameters)
        for dtype in dtypes.split():
            yield Case(name, {**parameters, "dtype": dtype})


ALL: Final = "tf32 bf16"
SIZES: Final = [[1000, 512], [2048, 2048], [64, 3, 7, 7], [512], [50000, 256], [512, 512, 3, 3]]


def _recurrent() -> Iterator[Case]:
    kinds = ("LSTM", "GRU", "RNN")
    yield from _each(
        "rnn", "tf32 bf16 amp", kind=kinds, steps=64, batch=16, inputs=256, hidden=256, layers=(1, 2), bi=(False, True)
    )
    yield from _each(
        "rnn", "tf32", kind=("LSTM", "GRU"), steps=(16, 128), batch=(4, 64), inputs=(64, 512), hidden=(128, 512)
    )
    yield from _each(
        "rnn", "tf32 bf16", kind=kinds, steps=32, batch=8, inputs=100, hidden=(50, 300, 1024), layers=(1, 3)
    )
    yield from _each(
        "rnn",
        "tf32 fp32 fp16 amp",
        kind=kinds,
        steps=50,
        batch=32,
        inputs=80,
        hidden=128,
        layers=2,
        dropout=0.2,
        batch_first=True,
    )
    yield from _each(
        "rnn",
        "tf32 bf16",
        kind="LSTM",
        steps=40,
        batch=16,
        inputs=128,
        hidden=256,
        proj=(32, 128),
        layers=(1, 2),
        bi=(False, True),
    )
    yield from _each(
        "rnn",
        "tf32 bf16",
        kind=kinds,
        steps=48,
        batch=(8, 32),
        inputs=128,
        hidden=192,
        layers=(1, 2),
        bi=(False, True),
        packed=True,
    )
    yield from _each(
        "rnn",
        "tf32 bf16",
        kind=kinds,
        steps=64,
        batch=16,
        inputs=128,
        hidden=256,
        layers=(1, 2),
        bi=(False, True),
        train=False,
    )
    yield from _each("rnn", "tf32", kind=kinds, steps=64, batch=16, inputs=128, hidden=128, bias=False)
    yield from _each(
        "rnn",
        "tf32",
        kind=kinds,
        steps=64,
        batch=16,
        inputs=128,
        hidden=128,
        grad_input=False,
        batch_first=(False, True),
    )
    yield from _each(
        "rnn", "tf32", kind="RNN", steps=64, batch=16, inputs=128, hidden=128, nonlinearity="relu", layers=(1, 2)
    )
    yield from _each("rnn", "tf32", kind=kinds, steps=(1, 7, 400), batch=(1, 5), inputs=40, hidden=64)
    yield from _each(
        "cell",
        "tf32 bf16 fp16 amp",
        kind=("LSTMCell", "GRUCell", "RNNCell"),
        batch=(16, 128),
        inputs=128,
        hidden=256,
        steps=3,
    )


def _products() -> Iterator[Case]:
    yield from _each(
        "linear",
        "tf32 fp32 mmtf32 bf16 fp16 amp",
        shape=([32, 784], [512, 1024], [8, 512, 768], [4096, 4096]),
        out=(10, 256, 3072),
        bias=(True, False),
    )
    yield from _each("linear", ALL, shape=([1, 512], [7, 33], [16384, 64], [4, 128, 1023]), out=(17, 1000))
    yield from _each("linear", ALL, shape=([4, 512, 512],), out=(32000, 50257), bias=False)
    yield from _each("matmul", "tf32 mmtf32 bf16 fp16", a=([8, 12, 256, 64],), b=([8, 12, 256, 64],), turned=True)
    yield from _each("matmul", ALL, a=([16, 128, 256], [1, 128, 256], [300, 256]), b=([256, 64], [16, 256, 64]))
    yield from _each("matmul", ALL, a=([4096, 1000],), b=([1000],))
    yield from _each("einsum", ALL, equation="bhid,bhjd->bhij", shapes=[[4, 8, 128, 64], [4, 8, 160, 64]])
    yield from _each("einsum", ALL, equation="bnd,edf->bnef", shapes=[[4, 64, 128], [8, 128, 32]])
    yield from _each("baddbmm", ALL, b=(4, 64), n=64, k=128, m=96)


def _attentions() -> Iterator[Case]:
    yield from _each(
        "sdpa", "bf16 fp16 tf32", b=4, h=8, s=(128, 197, 512), d=(32, 64), causal=(False, True), packed=(False, True)
    )
    yield from _each("sdpa", "bf16 tf32", b=2, h=4, s=256, d=(16, 40, 60, 80, 96, 128, 256), dropout=(0.0, 0.1))
    yield from _each(
        "sdpa", "bf16 tf32", b=4, h=8, s=(256, 300), d=64, mask=("bool", "float", "bias"), dropout=(0.0, 0.1)
    )
    yield from _each("sdpa", "bf16 tf32", b=2, h=8, s=256, d=64, kv=(77, 1024))
    yield from _each("sdpa", "bf16 tf32", b=2, h=8, kv_heads=(1, 2, 4), s=256, d=64, causal=True)
    yield from _each(
        "sdpa",
        "bf16 fp16",
        b=(1, 8),
        h=12,
        s=(384, 1024),
        d=64,
        causal=(False, True),
        backend=("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"),
    )
    yield from _each(
        "sdpa",
        "tf32 fp32",
        b=(1, 8),
        h=12,
        s=(384, 1024),
        d=64,
        causal=(False, True),
        backend=("EFFICIENT_ATTENTION", "MATH"),
    )
    yield from _each(
        "sdpa", "bf16", b=2, h=4, s=512, d=128, mask="float", backend=("EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
    )
    yield from _each("sdpa", "bf16 tf32", b=(1, 16), h=(3, 16), s=64, d=64)
    yield from _each("attention", "tf32 bf16 amp", b=8, s=128, d=256, h=8, train=(True, False), weights=(False, True))
    yield from _each("encoder_layer", "tf32 bf16 amp", b=8, s=128, d=256, h=8, train=(True, False))


def _norms() -> Iterator[Case]:
    yield from _each(
        "layer_norm",
        "tf32 bf16 amp",
        shape=([32, 197, 192], [4, 512, 768], [64, 1024], [8, 28, 28, 192]),
        affine=(True, False),
    )
    yield from _each(
        "layer_norm", "tf32 bf16 amp", shape=([16, 56, 56, 96], [8, 14, 14, 384], [4, 200, 512]), turned=True
    )
    yield from _each("layer_norm", ALL, shape=([64, 4096], [2, 16], [8192, 100], [128, 33]))
    yield from _each("layer_norm", ALL, shape=[16, 8, 32, 32], dims=3)
    yield from _each(
        "norm",
        "tf32 bf16 fp16 amp",
        kind="batch",
        shape=([32, 64, 56, 56], [8, 128, 14, 14], [4, 30, 100, 100]),
        cl=(False, True),
        train=(True, False),
    )
    yield from _each("norm", "tf32 bf16 amp", kind="batch", shape=([256, 512], [16, 64, 1000], [4, 32, 8, 28, 28]))
    yield from _each("norm", "tf32 bf16 amp", kind="group", shape=([8, 64, 56, 56], [32, 256, 14, 14], [4, 32, 4000]))
    yield from _each("norm", "tf32 bf16", kind="group", shape=[8, 64, 56, 56], cl=True)
    yield from _each("norm", "tf32 bf16", kind="instance", shape=([8, 64, 56, 56], [4, 32, 4000], [2, 16, 16, 32, 32]))
    yield from _each("norm", "tf32 bf16 amp", kind="rms", shape=([4, 512, 768], [64, 1024]))


def _lookups() -> Iterator[Case]:
    yield from _each(
        "embedding",
        "tf32 bf16",
        rows=(100, 10000, 50257),
        width=(64, 512),
        shape=([32, 20], [16, 128], [8, 512], [32, 512]),
    )
    yield from _each("embedding", "tf32", rows=10000, width=256, shape=([4, 100], [32, 97], [16, 512]), padding=True)
    yield from _each("embedding", "tf32", rows=10000, width=256, shape=([4, 100], [32, 128]), by_freq=True)
    yield from _each(
        "embedding_bag", "tf32", rows=20000, width=(64, 300), bags=(32, 256), each=50, mode=("sum", "mean", "max")
    )
    kinds = (
        "index index_two index_columns index_select gather index_add scatter_add scatter_reduce index_put "
        "index_put_accumulate masked_select masked_fill nonzero unique bincount one_hot repeat_interleave searchsorted "
    )
    yield from _each("indexing", "tf32 bf16", kind=tuple(kinds.split()), rows=1000, width=128, count=(500, 20000))


def _reductions() -> Iterator[Case]:
    shapes: tuple[list[int], ...] = (
        [8192, 512],
        [100000, 64],
        [64, 1000],
        [2048, 2048],
        [262144, 30],
        [12544, 96],
        [4096, 50257 // 8],
        [600, 3072],
        [1568, 768],
    )
    yield from _each("reduce", "tf32 bf16 fp16", kind="sum", shape=shapes, dims=[0])
    yield from _each(
        "reduce",
        "tf32 bf16",
        kind="sum",
        shape=(
            [32, 64, 56, 56],
            [8, 50, 256, 256],
            [16, 30, 33, 33],
            [4, 512, 7, 7],
            [8, 2, 64, 64],
            [128, 128, 16, 16],
        ),
        dims=([0, 2, 3], [2, 3], [0], [1]),
    )
    yield from _each(
        "reduce", "tf32", kind="sum", shape=[8, 64, 64, 96], dims=([0, 1, 2], [0, 2, 3]), order=[0, 3, 1, 2]
    )
    yield from _each(
        "reduce",
        "tf32 bf16",
        kind=("sum", "mean"),
        shape=([16, 197, 768], [4, 4096, 320], [64, 64, 4096], [8, 128, 10000]),
        dims=([0], [1], [0, 1], [-1]),
    )
    yield from _each(
        "reduce",
        "tf32 bf16",
        kind=("sum", "mean", "amax", "norm", "var", "std", "logsumexp"),
        shape=([4096, 1024], [1000000]),
        dims=[0],
    )
    yield from _each(
        "reduce",
        "tf32 bf16",
        kind=("argmax", "max", "median", "prod", "any"),
        shape=([4096, 1024], [64, 50000]),
        dims=([0], [1]),
    )
    yield from _each(
        "reduce",
        "tf32 bf16",
        kind=("sum", "mean", "max", "argmax", "norm", "std", "median"),
        shape=([1000000], [64, 3, 224, 224]),
        dims=[],
    )
    yield from _each(
        "broadcast", "tf32 bf16", kind=("add", "mul"), a=([32, 64, 28, 28], [16, 197, 768]), b=([1], [1, 1, 1, 1])
    )
    yield from _each(
        "broadcast",
        "tf32 bf16",
        kind=("add", "mul"),
        a=[16, 197, 768],
        b=([768], [1, 197, 768], [16, 1, 768], [16, 197, 1]),
    )
    yield from _each(
        "broadcast",
        "tf32 bf16",
        kind=("add", "mul"),
        a=[32, 64, 28, 28],
        b=([64, 1, 1], [32, 64, 1, 1], [1, 64, 28, 28]),
    )


def _losses() -> Iterator[Case]:
    yield from _each(
        "softmax",
        "tf32 bf16 amp",
        shape=([64, 1000], [4, 8, 256, 256], [32, 128, 10000], [2048, 1025]),
        log=(False, True),
    )
    yield from _each("softmax", "tf32 bf16", shape=([8, 21, 128, 128], [4, 100, 64]), dim=1, log=(False, True))
    yield from _each(
        "cross_entropy",
        "tf32 bf16 amp",
        shape=([64, 1000], [2048, 32000], [8, 2, 64, 64], [4, 21, 128, 128]),
        smoothing=(0.0, 0.1),
        weighted=(False, True),
    )
    yield from _each("cross_entropy", "tf32 amp", shape=([64, 1000], [8, 2, 64, 64]), reduction=("none", "sum"))
    yield from _each(
        "loss",
        "tf32 bf16 amp",
        kind=("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "kl_div", "huber_loss"),
        shape=([64, 1000], [8, 3, 128, 128]),
    )
    yield from _each("ctc", "", steps=(50, 200), batch=(4, 16), classes=(30, 100), length=(10, 40))


def _orders() -> Iterator[Case]:
    kinds = (
        "sort sort_int sort_stable argsort topk kthvalue median mode cumsum "
        "cumprod cummax logcumsumexp multinomial randperm quantile norm normalize var "
        "std_mean logsumexp cdist cosine_similarity "
    )
    yield from _each(
        "order", "tf32", kind=tuple(kinds.split()), shape=([64, 1000], [4, 50000], [1000000], [8, 128, 512])
    )
    yield from _each(
        "order",
        "tf32 bf16",
        kind=("sort", "topk", "cumsum", "cumprod", "norm", "normalize", "var"),
        shape=([512, 300], [16, 100, 40]),
        dim=0,
    )


def _images() -> Iterator[Case]:
    yield from _each(
        "resize",
        "tf32 bf16 amp",
        mode=("nearest", "bilinear", "bicubic", "area", "nearest-exact"),
        shape=([8, 64, 32, 32], [2, 3, 100, 120]),
        scale=(2.0, 0.5),
    )
    yield from _each("resize", "tf32", mode=("nearest", "bilinear"), shape=[8, 64, 32, 32], cl=True)
    yield from _each(
        "resize", "tf32", mode=("bilinear", "bicubic"), shape=[4, 3, 128, 128], scale=(2.0, 0.25), antialias=True
    )
    yield from _each("resize", "tf32", mode="trilinear", shape=[2, 16, 8, 16, 16])
    yield from _each("resize", "tf32", mode=("linear", "nearest"), shape=[8, 32, 1000])
    yield from _each(
        "pool",
        "tf32 bf16",
        kind=("max_pool2d", "avg_pool2d"),
        shape=([32, 64, 56, 56],),
        k=(2, 3),
        s=(1, 2),
        cl=(False, True),
    )
    yield from _each(
        "pool",
        "tf32 bf16",
        kind="adaptive_avg_pool2d",
        shape=([32, 512, 7, 7], [16, 64, 30, 30]),
        k=(1, 7),
        cl=(False, True),
    )
    yield from _each("pool", "tf32", kind=("adaptive_max_pool2d", "lp_pool2d"), shape=[16, 64, 30, 30], k=3)
    yield from _each(
        "pool", "tf32", kind=("max_pool1d", "avg_pool1d", "adaptive_avg_pool1d"), shape=[16, 64, 4000], k=4, s=4
    )
    yield from _each(
        "pool", "tf32", kind=("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d"), shape=[4, 32, 16, 28, 28]
    )
    kinds = (
        "grid_sample affine_grid pad_reflect pad_replicate pad_circular pad unfold fold pixel_shuffle "
        "pixel_unshuffle roll flip cat stack repeat contiguous local_response_norm dropout2d "
        "dropout channel_shuffle "
    )
    yield from _each("spatial", "tf32 bf16", kind=tuple(kinds.split()), shape=([8, 16, 64, 64],))
    yield from _each(
        "activation",
        "tf32 bf16",
        kind=("gelu", "silu", "glu", "prelu", "softplus", "leaky_relu", "hardswish", "mish", "elu"),
        shape=([32, 64, 56, 56],),
    )
    yield from _each(
        "fourier",
        "",
        kind=("rfft", "fft", "rfft2", "fft2", "round_trip"),
        shape=([16, 64, 64], [8, 3, 224, 224], [4, 1000, 1000], [32, 37, 101]),
    )
    yield from _each("fourier", "", kind="stft", shape=([8, 16000], [32, 48000]))
    yield from _each(
        "algebra", "", kind=("cholesky", "inv", "svd", "qr", "eigh", "det", "solve"), shape=([256, 256], [16, 64, 64])
    )


def _steps() -> Iterator[Case]:
    for kind, options in (
        ("SGD", {"momentum": 0.9}),
        ("SGD", {}),
        ("Adam", {}),
        ("AdamW", {}),
        ("AdamW", {"fused": True}),
        ("AdamW", {"foreach": False}),
        ("SGD", {"momentum": 0.9, "fused": True}),
        ("AdamW", {"amsgrad": True}),
        ("RMSprop", {}),
        ("Adagrad", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Adadelta", {}),
        ("Adamax", {}),
        ("SGD", {"momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}),
        ("AdamW", {"capturable": True}),
        ("LBFGS", {}),
        ("Rprop", {}),
        ("ASGD", {}),
        ("Adafactor", {}),
    ):
        if kind != "LBFGS":
            yield Case("optimizer", {"kind": kind, "sizes": SIZES, "options": options})
    yield Case("clip", {"sizes": SIZES})


def operators() -> dict[str, list[Case]]:
    """All groups by name; inside a group the order is shuffled, so that a cut loses no kind whole."""
    groups = {
        "recurrent": _recurrent, "products": _products, "attentions": _attentions, "norms": _norms, "lookups": _lookups,
        "reductions": _reductions, "losses": _losses, "orders": _orders, "images": _images, "steps": _steps,
    }  # fmt: skip
    made = {name: list(make()) for name, make in groups.items()}
    made["repeatable"] = [
        Case(c.name, c.parameters, deterministic=True) for n in ("recurrent", "images") for c in made[n][::23]
    ]
    for name, cases in made.items():
        random.Random(name).shuffle(cases)
    return made


def walked(meter: Meter) -> list[str]:
    """What each case says that can't run on the meter's device; for a check of the grid without CUDA."""
    wrong = []
    for name, cases in operators().items():
        for case in cases:
            try:
                measured(case, meter)
            except FAILURES as error:
                wrong.append(f"{name} {case.name} {case.parameters}: {type(error).__name__}: {str(error)[:140]}")
    return wrong
