"""The cases of layers: recurrent layers, matrix products, attention, normalization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from scripts.lab.probe_case import Case


def each(name: str, dtypes: str, **options: Any) -> Iterator[Case]:
    """One case per dtype and per combination of the options that are tuples."""
    varied: list[dict[str, Any]] = [{}]
    for option, value in options.items():
        values = value if isinstance(value, tuple) else (value,)
        varied = [{**v, option: item} for v in varied for item in values]
    for parameters in varied:
        if not dtypes:
            yield Case(name, parameters)
        for dtype in dtypes.split():
            yield Case(name, {**parameters, "dtype": dtype})


ALL: Final = "tf32 bf16"
SIZES: Final = [[1000, 512], [2048, 2048], [64, 3, 7, 7], [512], [50000, 256], [512, 512, 3, 3]]


def recurrent_cases() -> Iterator[Case]:
    """Recurrent layers and cells."""
    kinds = ("LSTM", "GRU", "RNN")
    yield from each(
        "rnn", "tf32 bf16 amp", kind=kinds, steps=64, batch=16, inputs=256, hidden=256, layers=(1, 2), bi=(False, True)
    )
    yield from each(
        "rnn", "tf32", kind=("LSTM", "GRU"), steps=(16, 128), batch=(4, 64), inputs=(64, 512), hidden=(128, 512)
    )
    yield from each(
        "rnn", "tf32 bf16", kind=kinds, steps=32, batch=8, inputs=100, hidden=(50, 300, 1024), layers=(1, 3)
    )
    yield from each(
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
    yield from each(
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
    yield from each(
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
    yield from each(
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
    yield from each("rnn", "tf32", kind=kinds, steps=64, batch=16, inputs=128, hidden=128, bias=False)
    yield from each(
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
    yield from each(
        "rnn", "tf32", kind="RNN", steps=64, batch=16, inputs=128, hidden=128, nonlinearity="relu", layers=(1, 2)
    )
    yield from each("rnn", "tf32", kind=kinds, steps=(1, 7, 400), batch=(1, 5), inputs=40, hidden=64)
    yield from each(
        "cell",
        "tf32 bf16 fp16 amp",
        kind=("LSTMCell", "GRUCell", "RNNCell"),
        batch=(16, 128),
        inputs=128,
        hidden=256,
        steps=3,
    )


def products_cases() -> Iterator[Case]:
    """Matrix products."""
    yield from each(
        "linear",
        "tf32 fp32 mmtf32 bf16 fp16 amp",
        shape=([32, 784], [512, 1024], [8, 512, 768], [4096, 4096]),
        out=(10, 256, 3072),
        bias=(True, False),
    )
    yield from each("linear", ALL, shape=([1, 512], [7, 33], [16384, 64], [4, 128, 1023]), out=(17, 1000))
    yield from each("linear", ALL, shape=([4, 512, 512],), out=(32000, 50257), bias=False)
    yield from each("matmul", "tf32 mmtf32 bf16 fp16", a=([8, 12, 256, 64],), b=([8, 12, 256, 64],), turned=True)
    yield from each("matmul", ALL, a=([16, 128, 256], [1, 128, 256], [300, 256]), b=([256, 64], [16, 256, 64]))
    yield from each("matmul", ALL, a=([4096, 1000],), b=([1000],))
    yield from each("einsum", ALL, equation="bhid,bhjd->bhij", shapes=[[4, 8, 128, 64], [4, 8, 160, 64]])
    yield from each("einsum", ALL, equation="bnd,edf->bnef", shapes=[[4, 64, 128], [8, 128, 32]])
    yield from each("baddbmm", ALL, b=(4, 64), n=64, k=128, m=96)


def attentions_cases() -> Iterator[Case]:
    """Attention with each backend, and attention layers."""
    yield from each(
        "sdpa", "bf16 fp16 tf32", b=4, h=8, s=(128, 197, 512), d=(32, 64), causal=(False, True), packed=(False, True)
    )
    yield from each("sdpa", "bf16 tf32", b=2, h=4, s=256, d=(16, 40, 60, 80, 96, 128, 256), dropout=(0.0, 0.1))
    yield from each(
        "sdpa", "bf16 tf32", b=4, h=8, s=(256, 300), d=64, mask=("bool", "float", "bias"), dropout=(0.0, 0.1)
    )
    yield from each("sdpa", "bf16 tf32", b=2, h=8, s=256, d=64, kv=(77, 1024))
    yield from each("sdpa", "bf16 tf32", b=2, h=8, kv_heads=(1, 2, 4), s=256, d=64, causal=True)
    yield from each(
        "sdpa",
        "bf16 fp16",
        b=(1, 8),
        h=12,
        s=(384, 1024),
        d=64,
        causal=(False, True),
        backend=("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"),
    )
    yield from each(
        "sdpa",
        "tf32 fp32",
        b=(1, 8),
        h=12,
        s=(384, 1024),
        d=64,
        causal=(False, True),
        backend=("EFFICIENT_ATTENTION", "MATH"),
    )
    yield from each(
        "sdpa", "bf16", b=2, h=4, s=512, d=128, mask="float", backend=("EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
    )
    yield from each("sdpa", "bf16 tf32", b=(1, 16), h=(3, 16), s=64, d=64)
    yield from each("attention", "tf32 bf16 amp", b=8, s=128, d=256, h=8, train=(True, False), weights=(False, True))
    yield from each("encoder_layer", "tf32 bf16 amp", b=8, s=128, d=256, h=8, train=(True, False))


def norms_cases() -> Iterator[Case]:
    """Normalization layers by layout."""
    yield from each(
        "layer_norm",
        "tf32 bf16 amp",
        shape=([32, 197, 192], [4, 512, 768], [64, 1024], [8, 28, 28, 192]),
        affine=(True, False),
    )
    yield from each(
        "layer_norm", "tf32 bf16 amp", shape=([16, 56, 56, 96], [8, 14, 14, 384], [4, 200, 512]), turned=True
    )
    yield from each("layer_norm", ALL, shape=([64, 4096], [2, 16], [8192, 100], [128, 33]))
    yield from each("layer_norm", ALL, shape=[16, 8, 32, 32], dims=3)
    yield from each(
        "norm",
        "tf32 bf16 fp16 amp",
        kind="batch",
        shape=([32, 64, 56, 56], [8, 128, 14, 14], [4, 30, 100, 100]),
        cl=(False, True),
        train=(True, False),
    )
    yield from each("norm", "tf32 bf16 amp", kind="batch", shape=([256, 512], [16, 64, 1000], [4, 32, 8, 28, 28]))
    yield from each("norm", "tf32 bf16 amp", kind="group", shape=([8, 64, 56, 56], [32, 256, 14, 14], [4, 32, 4000]))
    yield from each("norm", "tf32 bf16", kind="group", shape=[8, 64, 56, 56], cl=True)
    yield from each("norm", "tf32 bf16", kind="instance", shape=([8, 64, 56, 56], [4, 32, 4000], [2, 16, 16, 32, 32]))
    yield from each("norm", "tf32 bf16 amp", kind="rms", shape=([4, 512, 768], [64, 1024]))
