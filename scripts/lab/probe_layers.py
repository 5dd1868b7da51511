"""Builders of layers: recurrent layers, matrix products, attention, normalization."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.lab.probe_case import Built, Work, builder, leaf, to_device, trainable_parameters, with_autocast
from scripts.lab.probe_device import DTYPES


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
    module = to_device(module, device, dtype, train=train)
    x = leaf(
        device, (batch, steps, inputs) if batch_first else (steps, batch, inputs), dtype, grad=grad_input and train
    )
    leaves = ([x] if x.requires_grad else []) + (trainable_parameters(module) if train else [])
    if packed:
        lengths = torch.linspace(steps, max(1, steps // 3), batch).long()

        def run() -> object:
            packed_input = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=batch_first)
            out, state = module(packed_input)
            return nn.utils.rnn.pad_packed_sequence(out, batch_first=batch_first)[0], state

        return (run if train else without_grad(run)), leaves
    run_plain = with_autocast(dtype, lambda: module(x))
    return (run_plain if train else without_grad(run_plain)), leaves


def without_grad(work: Work) -> Work:
    """`work` under torch.no_grad."""

    def run() -> object:
        with torch.no_grad():
            return work()

    return run


@builder
def cell(
    device: torch.device, kind: str, batch: int, inputs: int, hidden: int, steps: int, dtype: str = "tf32"
) -> Built:
    """A recurrent cell, called `steps` times."""
    module = to_device(getattr(nn, kind)(inputs, hidden), device, dtype)
    x = leaf(device, (batch, inputs), dtype)

    def run() -> object:
        state: Any = None
        for _ in range(steps):
            state = module(x, state)
        return state

    return with_autocast(dtype, run), [x, *trainable_parameters(module)]


@builder
def linear(device: torch.device, shape: list[int], out: int, bias: bool = True, dtype: str = "tf32") -> Built:
    """nn.Linear."""
    module = to_device(nn.Linear(shape[-1], out, bias=bias), device, dtype)
    x = leaf(device, shape, dtype)
    return with_autocast(dtype, lambda: module(x)), [x, *trainable_parameters(module)]


@builder
def matmul(device: torch.device, a: list[int], b: list[int], turned: bool = False, dtype: str = "tf32") -> Built:
    """torch.matmul; `turned` swaps the last two dimensions of b."""
    x, y = leaf(device, a, dtype), leaf(device, b, dtype)
    return with_autocast(dtype, lambda: torch.matmul(x, y.transpose(-1, -2) if turned else y)), [x, y]


@builder
def einsum(device: torch.device, equation: str, shapes: list[list[int]], dtype: str = "tf32") -> Built:
    """torch.einsum."""
    inputs = [leaf(device, s, dtype) for s in shapes]
    return with_autocast(dtype, lambda: torch.einsum(equation, *inputs)), list(inputs)


@builder
def baddbmm(device: torch.device, b: int, n: int, k: int, m: int, dtype: str = "tf32") -> Built:
    """torch.baddbmm with a broadcast bias."""
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
    """scaled_dot_product_attention; `packed` slices q, k and v from one projection, as transformers do."""
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
        with attention_backend(backend):
            return F.scaled_dot_product_attention(qq, kk, vv, m, dropout, causal, enable_gqa=k_heads != h)

    return run, leaves


def attention_backend(backend: str) -> contextlib.AbstractContextManager[Any]:
    """Select the attention backend called `backend`; '' allows all."""
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
    module = to_device(nn.MultiheadAttention(d, h, dropout=0.1, batch_first=True), device, dtype, train=train)
    x = leaf(device, (b, s, d), dtype, grad=train)
    run = with_autocast(dtype, lambda: module(x, x, x, need_weights=weights))
    return (run if train else without_grad(run)), ([x, *trainable_parameters(module)] if train else [])


@builder
def encoder_layer(
    device: torch.device, b: int, s: int, d: int, h: int, train: bool = True, dtype: str = "tf32"
) -> Built:
    """nn.TransformerEncoderLayer."""
    module = to_device(nn.TransformerEncoderLayer(d, h, 4 * d, 0.1, batch_first=True), device, dtype, train=train)
    x = leaf(device, (b, s, d), dtype, grad=train)
    run = with_autocast(dtype, lambda: module(x))
    return (run if train else without_grad(run)), ([x, *trainable_parameters(module)] if train else [])


@builder
def layer_norm(
    device: torch.device,
    shape: list[int],
    dims: int = 1,
    turned: bool = False,
    affine: bool = True,
    dtype: str = "tf32",
) -> Built:
    """nn.LayerNorm; with `turned`, on a channels-last view of a channels-first tensor."""
    x = leaf(device, (shape[0], shape[-1], *shape[1:-1]) if turned else shape, dtype)
    module = to_device(nn.LayerNorm(shape[-dims:], elementwise_affine=affine), device, dtype)

    def run() -> object:
        return module(x.movedim(1, -1) if turned else x)

    return with_autocast(dtype, run), [x, *trainable_parameters(module)]


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
    """Batch, group, instance or RMS normalization."""
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
    module = to_device(module, device, dtype, train=train)
    x = leaf(device, shape, dtype, grad=False)
    if cl:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    return with_autocast(dtype, lambda: module(x)), [x, *trainable_parameters(module)]
