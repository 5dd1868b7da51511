"""The cases of functions: lookups, reductions, losses, orders, images, optimizers."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.lab.probe_case import Case
from scripts.lab.probe_layer_cases import SIZES, each


def lookups_cases() -> Iterator[Case]:
    """Embeddings and indexing."""
    yield from each(
        "embedding",
        "tf32 bf16",
        rows=(100, 10000, 50257),
        width=(64, 512),
        shape=([32, 20], [16, 128], [8, 512], [32, 512]),
    )
    yield from each("embedding", "tf32", rows=10000, width=256, shape=([4, 100], [32, 97], [16, 512]), padding=True)
    yield from each("embedding", "tf32", rows=10000, width=256, shape=([4, 100], [32, 128]), by_freq=True)
    yield from each(
        "embedding_bag", "tf32", rows=20000, width=(64, 300), bags=(32, 256), each=50, mode=("sum", "mean", "max")
    )
    kinds = (
        "index index_two index_columns index_select gather index_add scatter_add scatter_reduce index_put "
        "index_put_accumulate masked_select masked_fill nonzero unique bincount one_hot repeat_interleave searchsorted "
    )
    yield from each("indexing", "tf32 bf16", kind=tuple(kinds.split()), rows=1000, width=128, count=(500, 20000))


def reductions_cases() -> Iterator[Case]:
    """Sums, means, extremes and norms over fast and slow dimensions, and broadcasting."""
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
    yield from each("reduce", "tf32 bf16 fp16", kind="sum", shape=shapes, dims=[0])
    yield from each(
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
    yield from each(
        "reduce", "tf32", kind="sum", shape=[8, 64, 64, 96], dims=([0, 1, 2], [0, 2, 3]), order=[0, 3, 1, 2]
    )
    yield from each(
        "reduce",
        "tf32 bf16",
        kind=("sum", "mean"),
        shape=([16, 197, 768], [4, 4096, 320], [64, 64, 4096], [8, 128, 10000]),
        dims=([0], [1], [0, 1], [-1]),
    )
    yield from each(
        "reduce",
        "tf32 bf16",
        kind=("sum", "mean", "amax", "norm", "var", "std", "logsumexp"),
        shape=([4096, 1024], [1000000]),
        dims=[0],
    )
    yield from each(
        "reduce",
        "tf32 bf16",
        kind=("argmax", "max", "median", "prod", "any"),
        shape=([4096, 1024], [64, 50000]),
        dims=([0], [1]),
    )
    yield from each(
        "reduce",
        "tf32 bf16",
        kind=("sum", "mean", "max", "argmax", "norm", "std", "median"),
        shape=([1000000], [64, 3, 224, 224]),
        dims=[],
    )
    yield from each(
        "broadcast", "tf32 bf16", kind=("add", "mul"), a=([32, 64, 28, 28], [16, 197, 768]), b=([1], [1, 1, 1, 1])
    )
    yield from each(
        "broadcast",
        "tf32 bf16",
        kind=("add", "mul"),
        a=[16, 197, 768],
        b=([768], [1, 197, 768], [16, 1, 768], [16, 197, 1]),
    )
    yield from each(
        "broadcast",
        "tf32 bf16",
        kind=("add", "mul"),
        a=[32, 64, 28, 28],
        b=([64, 1, 1], [32, 64, 1, 1], [1, 64, 28, 28]),
    )


def losses_cases() -> Iterator[Case]:
    """Softmax and losses."""
    yield from each(
        "softmax",
        "tf32 bf16 amp",
        shape=([64, 1000], [4, 8, 256, 256], [32, 128, 10000], [2048, 1025]),
        log=(False, True),
    )
    yield from each("softmax", "tf32 bf16", shape=([8, 21, 128, 128], [4, 100, 64]), dim=1, log=(False, True))
    yield from each(
        "cross_entropy",
        "tf32 bf16 amp",
        shape=([64, 1000], [2048, 32000], [8, 2, 64, 64], [4, 21, 128, 128]),
        smoothing=(0.0, 0.1),
        weighted=(False, True),
    )
    yield from each("cross_entropy", "tf32 amp", shape=([64, 1000], [8, 2, 64, 64]), reduction=("none", "sum"))
    yield from each(
        "loss",
        "tf32 bf16 amp",
        kind=("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "kl_div", "huber_loss"),
        shape=([64, 1000], [8, 3, 128, 128]),
    )
    yield from each("ctc", "", steps=(50, 200), batch=(4, 16), classes=(30, 100), length=(10, 40))


def orders_cases() -> Iterator[Case]:
    """Sorting, selecting and scanning."""
    kinds = (
        "sort sort_int sort_stable argsort topk kthvalue median mode cumsum "
        "cumprod cummax logcumsumexp multinomial randperm quantile norm normalize var "
        "std_mean logsumexp cdist cosine_similarity "
    )
    yield from each(
        "order", "tf32", kind=tuple(kinds.split()), shape=([64, 1000], [4, 50000], [1000000], [8, 128, 512])
    )
    yield from each(
        "order",
        "tf32 bf16",
        kind=("sort", "topk", "cumsum", "cumprod", "norm", "normalize", "var"),
        shape=([512, 300], [16, 100, 40]),
        dim=0,
    )


def images_cases() -> Iterator[Case]:
    """Resizing, pooling, padding, activations, transforms and algebra."""
    yield from each(
        "resize",
        "tf32 bf16 amp",
        mode=("nearest", "bilinear", "bicubic", "area", "nearest-exact"),
        shape=([8, 64, 32, 32], [2, 3, 100, 120]),
        scale=(2.0, 0.5),
    )
    yield from each("resize", "tf32", mode=("nearest", "bilinear"), shape=[8, 64, 32, 32], cl=True)
    yield from each(
        "resize", "tf32", mode=("bilinear", "bicubic"), shape=[4, 3, 128, 128], scale=(2.0, 0.25), antialias=True
    )
    yield from each("resize", "tf32", mode="trilinear", shape=[2, 16, 8, 16, 16])
    yield from each("resize", "tf32", mode=("linear", "nearest"), shape=[8, 32, 1000])
    yield from each(
        "pool",
        "tf32 bf16",
        kind=("max_pool2d", "avg_pool2d"),
        shape=([32, 64, 56, 56],),
        k=(2, 3),
        s=(1, 2),
        cl=(False, True),
    )
    yield from each(
        "pool",
        "tf32 bf16",
        kind="adaptive_avg_pool2d",
        shape=([32, 512, 7, 7], [16, 64, 30, 30]),
        k=(1, 7),
        cl=(False, True),
    )
    yield from each("pool", "tf32", kind=("adaptive_max_pool2d", "lp_pool2d"), shape=[16, 64, 30, 30], k=3)
    yield from each(
        "pool", "tf32", kind=("max_pool1d", "avg_pool1d", "adaptive_avg_pool1d"), shape=[16, 64, 4000], k=4, s=4
    )
    yield from each("pool", "tf32", kind=("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d"), shape=[4, 32, 16, 28, 28])
    kinds = (
        "grid_sample affine_grid pad_reflect pad_replicate pad_circular pad unfold fold pixel_shuffle "
        "pixel_unshuffle roll flip cat stack repeat contiguous local_response_norm dropout2d "
        "dropout channel_shuffle "
    )
    yield from each("spatial", "tf32 bf16", kind=tuple(kinds.split()), shape=([8, 16, 64, 64],))
    yield from each(
        "activation",
        "tf32 bf16",
        kind=("gelu", "silu", "glu", "prelu", "softplus", "leaky_relu", "hardswish", "mish", "elu"),
        shape=([32, 64, 56, 56],),
    )
    yield from each(
        "fourier",
        "",
        kind=("rfft", "fft", "rfft2", "fft2", "round_trip"),
        shape=([16, 64, 64], [8, 3, 224, 224], [4, 1000, 1000], [32, 37, 101]),
    )
    yield from each("fourier", "", kind="stft", shape=([8, 16000], [32, 48000]))
    yield from each(
        "algebra", "", kind=("cholesky", "inv", "svd", "qr", "eigh", "det", "solve"), shape=([256, 256], [16, 64, 64])
    )


def steps_cases() -> Iterator[Case]:
    """Optimizers and clipping."""
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
