"""The memo of op metadata changes no figure, whatever the model does, and leaves nothing behind."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from profiler_kit import counting
from profiler_kit.counting import count_target
from profiler_kit.counting.module_calls import ModuleWatch
from profiler_kit.counting.tracer import Tracer
from profiler_kit.errors import TargetError
from profiler_kit.loading import from_model
from profiler_kit.meta.op_memo import BatchNormMemo, Memo, memo_for_modes, result_kind
from profiler_kit.meta.values import ValueShadow
from profiler_kit.records.counts import StaticCount

ATEN = torch.ops.aten


class Repeated(nn.Module):
    """Calls a function of its parts and the input three times, so that every op comes again."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.run = run
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        for _ in range(3):
            x = self.run(self.parts, x)
        return x


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grads[0] * 2 + x * 0


class Wrapper(Tensor):
    """A tensor subclass that sees every op."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapper:
        made: Wrapper = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [a.inner if isinstance(a, Wrapper) else a for a in args]
        out = func(*plain, **(kwargs or {}))
        return Wrapper(out) if isinstance(out, Tensor) else out


class Recurrent(nn.Module):
    def __init__(self, part: nn.RNNBase) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.part(self.part(x)[0])[0]
        return out


class Growing(nn.Module):
    """Its shapes never repeat within a pass, and its length is another at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.cat([x, self.part(x[-2:])])
        return x


def both_dtypes(parts: Any, x: Tensor) -> Tensor:
    """1, 1.0 and True are equal as keys, and make results of different dtypes."""
    whole = torch.ones(8, dtype=torch.long, device=x.device)
    return x + whole * 1 + whole * 1.0 + whole * True + (whole == 1) + (whole == 1.0)


def default_dtypes(parts: Any, x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        wide = torch.ones(4, 8, dtype=torch.long, device=x.device) / 2
    finally:
        torch.set_default_dtype(torch.float32)
    narrow = torch.ones(4, 8, dtype=torch.long, device=x.device) / 2
    return x + wide.to(x.dtype) + narrow


def in_place(parts: Any, x: Tensor) -> Tensor:
    y = parts[0](x)
    y = F.relu_(y + 1).mul_(2).add_(x)
    z = y.clone()
    z[1:].zero_()
    z.t_().t_()
    return z.add_(1).clamp_(min=0) + y


def twice_the_same(parts: Any, x: Tensor) -> Tensor:
    other = x + 1
    return x * x + x * other + torch.cat([x, x])[:4] + torch.cat([x, other])[:4]


def layouts(parts: Any, x: Tensor) -> Tensor:
    turned = x.t().contiguous().t()
    return x + torch.exp(x) + torch.exp(turned) + torch.exp(x[:, ::2]).repeat(1, 2) + torch.exp(x[:1].expand(4, 8))


def through_vmap(parts: Any, x: Tensor) -> Tensor:
    mapped: Tensor = torch.vmap(lambda row: torch.tanh(parts[0](row)) * row)(x)
    return mapped


def with_complex(parts: Any, x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft((spectrum * spectrum.conj()).conj(), n=8) + spectrum.imag.sum() + spectrum.conj().imag.sum()


def with_split(parts: Any, x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=1)
    a, b = torch.unsafe_chunk(x, 2, dim=1)
    return torch.cat([left * a, right + b], dim=1) + torch.reshape(x.t(), (4, 8))


def within_inference_mode(parts: Any, x: Tensor) -> Tensor:
    with torch.inference_mode():
        scale = torch.exp(parts[0](x))
    out: Tensor = parts[0](x) * scale.clone()
    return out


def linear(width: int = 8) -> nn.Linear:
    return nn.Linear(width, width)


def frozen() -> nn.Module:
    part = linear()
    part.requires_grad_(False)
    return part


def rows() -> Tensor:
    return torch.zeros(4, 8, device="meta")


def images() -> Tensor:
    return torch.zeros(2, 8, 6, 6, device="meta")


def block() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], dict[str, Any]]] = {
    "linear": (lambda: Repeated(lambda p, x: F.gelu(p[0](x)), linear()), rows, {}),
    "convolution": (lambda: Repeated(lambda p, x: p[0](x) + x, block()), images, {}),
    "channels last": (lambda: Repeated(lambda p, x: p[0](x) + x, block()), images, {"channels_last": True}),
    "in place": (lambda: Repeated(in_place, linear()), rows, {}),
    "views": (lambda: Repeated(with_split), rows, {}),
    "strides": (lambda: Repeated(layouts), rows, {}),
    "one tensor twice": (lambda: Repeated(twice_the_same), rows, {}),
    "numbers": (lambda: Repeated(both_dtypes), rows, {}),
    "default dtype": (lambda: Repeated(default_dtypes), rows, {}),
    "complex": (lambda: Repeated(with_complex), rows, {}),
    "shared module": (lambda: Repeated(lambda p, x: p[1](p[0](p[0](x))), *[linear()] * 2), rows, {}),
    "frozen": (lambda: Repeated(lambda p, x: p[1](p[0](x)), frozen(), linear()), rows, {}),
    "dropout": (lambda: Repeated(lambda p, x: F.dropout(p[0](p[1](x)), 0.1), nn.Dropout(0.5), linear()), rows, {}),
    "checkpoint": (
        lambda: Repeated(lambda p, x: checkpoint(lambda y: F.gelu(p[0](y)), x, use_reentrant=False), linear()), rows, {},
    ),
    "reentrant checkpoint": (
        lambda: Repeated(lambda p, x: checkpoint(lambda y: F.gelu(p[0](y)), p[0](x), use_reentrant=True), linear()),
        rows, {},
    ),
    "autograd function": (lambda: Repeated(lambda p, x: Doubled.apply(p[0](x)), linear()), rows, {}),
    "subclass": (lambda: Repeated(lambda p, x: p[0](x) + torch.exp(Wrapper(x.detach())).inner, linear()), rows, {}),
    "lstm": (lambda: Recurrent(nn.LSTM(8, 8, batch_first=True)), lambda: rows()[None], {}),
    "gru": (lambda: Recurrent(nn.GRU(8, 4, bidirectional=True)), lambda: rows()[None], {}),
    "attention": (
        lambda: Repeated(lambda p, x: p[0](x), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
        lambda: rows()[None], {},
    ),
    "growing": (Growing, rows, {}),
    "vmap": (lambda: Repeated(through_vmap, linear()), rows, {}),
    "inference mode": (lambda: Repeated(within_inference_mode, linear()), rows, {}),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), linear()),
        lambda: torch.zeros(2, 4, dtype=torch.long, device="meta"), {},
    ),
    "double backward": (
        lambda: Repeated(
            lambda p, x: torch.autograd.grad(torch.tanh(p[0](x)).sum(), p[0].weight, create_graph=True)[0][:4] + x, linear()
        ),
        rows, {},
    ),
}  # fmt: skip


def count(kind: str, mode: Any = "train") -> StaticCount:
    make, inputs, options = KINDS[kind]
    goal = {"loss": "sum", "optimizer": "adamw"} if mode == "train" else {}
    return count_target(from_model(make(), (inputs(),), mode=mode, **goal, **options))


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_the_same_without_a_memo(kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Memo] = []

    def beside(modes: Any) -> Memo:
        used.append(memo_for_modes(modes))
        return used[-1]

    if kind == "double backward" and mode == "infer":
        pytest.skip("takes gradients")
    monkeypatch.setattr(counting, "memo_for_modes", beside)
    remembered = count(kind, mode)
    assert used
    assert len(used[0]) > 0
    monkeypatch.setattr(counting, "memo_for_modes", lambda modes: Memo(limit=0))
    worked_out = count(kind, mode)
    assert remembered.notes == worked_out.notes == ()
    assert remembered.forward.bytes_moved > 0
    assert remembered == worked_out


@pytest.mark.parametrize("kind", ["convolution", "attention", "growing"])
@pytest.mark.parametrize("limit", [1, 7])
def test_a_full_memo_changes_nothing(kind: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = count(kind)
    small = Memo(limit=limit)
    monkeypatch.setattr(counting, "memo_for_modes", lambda modes: small)
    assert count(kind) == expected
    assert len(small) == limit


def same_metadata(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_metadata, a, b))
    if not isinstance(a, Tensor):
        return a is b is None
    return (a.shape, a.stride(), a.dtype, a.device, a.untyped_storage().nbytes()) == (
        b.shape, b.stride(), b.dtype, b.device, b.untyped_storage().nbytes(),
    )  # fmt: skip


def meta(*shape: int, channels_last: bool = False) -> Tensor:
    made = torch.empty(shape, device="meta")
    return made.contiguous(memory_format=torch.channels_last) if channels_last else made


CALLS: list[tuple[Any, Callable[[], tuple[Any, ...]], bool]] = [
    (ATEN.exp.default, lambda: (meta(3, 4).t(),), False),
    (ATEN.add.Tensor, lambda: (meta(3, 1), meta(4)), False),
    (ATEN.convolution.default, lambda: (
        meta(2, 4, 6, 6, channels_last=True), meta(8, 4, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), False),
    (ATEN.convolution_backward.default, lambda: (
        meta(2, 8, 6, 6), meta(2, 4, 6, 6), meta(8, 4, 3, 3), [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        [False, True, True]), False),
    (ATEN.native_batch_norm.default, lambda: (meta(2, 4, 3, 3), *(meta(4) for _ in range(4)), True, 0.1, 1e-5), False),
    (ATEN.native_dropout.default, lambda: (meta(3, 4), 0.5, True), False),
    (ATEN.relu_.default, lambda: (meta(3, 4),), False),
    (ATEN.bernoulli_.float, lambda: (meta(3, 4), 0.25), False),
    (ATEN._unsafe_view.default, lambda: (meta(3, 4), [12]), True),
    (ATEN.unsafe_split.Tensor, lambda: (meta(4, 4), 2), True),
    (ATEN.view.default, lambda: (meta(3, 4), [12]), True),
    (ATEN.add_.Tensor, lambda: (meta(3, 4), meta(3, 4)), False),
    (ATEN.addcdiv_.default, lambda: (meta(3, 4), meta(3, 4), meta(3, 4)), False),
    (ATEN.t_.default, lambda: (meta(3, 3),), True),
    (ATEN.resize_.default, lambda: (meta(3, 3), [3, 3]), True),
    (ATEN.set_.default, lambda: (meta(0),), True),
]  # fmt: skip


@pytest.mark.parametrize(("op", "args", "is_run"), CALLS, ids=[str(call[0]) for call in CALLS])
def test_what_is_run_again(op: Any, args: Callable[[], tuple[Any, ...]], is_run: bool) -> None:
    memo = Memo()
    for _ in range(2):
        tracer = Tracer(ModuleWatch({}, {}), memo)
        with tracer:
            first = op(*args())
    given = args()
    key = memo.key(op, given, {})
    assert key is not None
    known = memo.find(key)
    assert known is not None
    assert known.run is is_run
    result = known.result(op, given, {})
    assert same_metadata(result, first)
    in_place = op._schema.is_mutable
    assert (result is given[0]) is in_place


def test_an_in_place_op_on_tensors_of_one_storage_runs_every_time() -> None:
    memo, whole = Memo[None](), meta(8)
    memo.call(ATEN.add_.Tensor, (meta(4), meta(4)), {}, None)
    assert memo.key(ATEN.add_.Tensor, (whole[:4], whole[4:]), {}) is None
    tensor = meta(4)
    assert memo.call(ATEN.add_.Tensor, (tensor, tensor), {}, None) is tensor


def test_every_op_that_may_be_made_anew_is_functional() -> None:
    for name in dir(ATEN):
        packet = getattr(ATEN, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            op = getattr(packet, overload)
            outcome = result_kind(op)
            if outcome == "new":
                assert not op._schema.is_mutable, op
                assert not op.is_view, op
            if outcome == "first argument":
                assert name.endswith("_"), op
                assert torch.Tag.inplace_view not in op.tags, op
    assert result_kind(ATEN.nonzero.default) == result_kind(ATEN.masked_select.default) == "unknown"
    assert result_kind(torch.ops.profiler._record_function_enter_new.default) == "unknown"


@pytest.mark.parametrize(
    "value",
    [torch.zeros(2), torch.sparse_coo_tensor(size=(2, 2), device="meta"), Wrapper(torch.zeros(2)), torch.Generator()],
    ids=["real", "sparse", "subclass", "generator"],
)
def test_what_has_no_key(value: Any) -> None:
    assert Memo().key(ATEN.exp.default, (value,), {}) is None
    assert Memo().key(ATEN.cat.default, ([meta(2), value],), {}) is None


def test_a_custom_op_runs_every_time() -> None:
    runs = []
    with torch.library._scoped_library("counting_memo", "DEF") as library:
        library.define("grow(Tensor x) -> Tensor")

        def grow(x: Tensor) -> Tensor:
            runs.append(1)
            return x.new_empty(len(runs))

        library.impl("grow", grow, "CompositeExplicitAutograd")
        count_target(
            from_model(
                Repeated(lambda p, x: p[0](x) + torch.ops.counting_memo.grow(x.detach()).sum(), linear()),
                (rows(),),
                mode="infer",
            ),
        )
    assert len(runs) == 3


class Seeing(TorchDispatchMode):
    """Notes the ops that reach it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_another_mode_misses_nothing() -> None:
    expected = count("linear")
    with Seeing() as mode:
        assert count("linear").ops == expected.ops
    assert mode.seen.count("aten.addmm.default") == 3


def test_values_that_are_followed_stay_right() -> None:
    """Small tensors may have values at hand: what works on them is run, however often it has been."""
    small, large = torch.zeros(4, device="meta"), torch.zeros(64, 64, device="meta")
    memo = memo_for_modes([ValueShadow()])
    assert memo.key(ATEN.exp.default, (small,), {}) is None
    assert memo.key(ATEN.arange.default, (4,), {"device": torch.device("meta")}) is None
    assert memo.key(ATEN.exp.default, (large,), {}) is not None

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            steps = torch.zeros(1, dtype=torch.long, device=x.device)
            while steps.item() < 3:
                steps += 1
                x = self.part(x)
            return x

    static = count_target(from_model(Counts(), (torch.zeros(64, 64, device="meta"),), loss="sum"))
    assert static.modules[1].calls == 3
    assert static.forward.macs == 3 * 64**3
    assert static.device == "meta"


def test_a_compiled_function_in_the_model_is_counted_as_written_and_nothing_of_ours_is_compiled() -> None:
    def double(x: Tensor) -> Tensor:
        return F.gelu(x) * 2

    compiled = torch.compile(double, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            count_target(from_model(Repeated(lambda p, x, f=f: f(p[0](x)), linear()), (rows(),), loss="sum"))
            for f in (double, compiled)
        ]
    assert found[0] == found[1]


def test_an_exception_leaves_nothing_behind() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

        def forward(self, x: Tensor) -> Tensor:
            return self.part(self.part(x)) @ x  # (4, 8) @ (4, 8)

    call, dispatch = nn.Module.__call__, torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    target = from_model(Failing(), (rows(),), loss="sum")
    state = torch.random.get_rng_state()
    before = (list(target.model.state_dict()), target.model.training, torch.get_default_dtype())
    with pytest.raises(TargetError):
        count_target(target)
    assert nn.Module.__call__ is call
    assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == dispatch
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (list(target.model.state_dict()), target.model.training, torch.get_default_dtype()) == before
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in target.model.modules())
    assert all(parameter.grad is None for parameter in target.model.parameters())


def test_meta_tensors_draw_no_random_numbers() -> None:
    """Which is why random ops may be remembered."""
    state = torch.random.get_rng_state()
    x = meta(8, 8)
    F.dropout(x, 0.5)
    torch.rand_like(x).bernoulli_(0.5)
    torch.multinomial(x, 2)
    torch.randn(3, device="meta").normal_()
    assert torch.equal(torch.random.get_rng_state(), state)


SIZES = [
    shape
    for sizes in ([(1, 2, 3)] * 2, [(1, 2, 3)] * 3, [(1, 2)] * 4, [(1, 2)] * 5)
    for shape in itertools.product(*sizes)
    if math.prod(shape) > shape[1]  # one value per channel: see below
]  # fmt: skip


def normalization(shape: tuple[int, ...], training: bool, dtype: torch.dtype, affine: bool) -> Any:
    x = torch.empty(shape, dtype=dtype, device="meta")
    vectors = [meta(shape[1]) if given else None for given in (affine, affine, True, True)]
    forward = (x, *vectors, training, 0.1, 1e-5)
    backward = (torch.empty_like(x), x, vectors[0], *vectors[2:], meta(shape[1]), meta(shape[1]), training, 1e-5)
    masks = ([True, True, True], [False, True, True], [True, False, False])
    yield ATEN.native_batch_norm.default, forward
    for mask in masks:
        yield ATEN.native_batch_norm_backward.default, (*backward, mask)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_normalisation_is_alike_in_all_sizes(training: bool, affine: bool, dtype: torch.dtype) -> None:
    batch_norm_memo = BatchNormMemo()
    for dims in (2, 3, 4, 5):
        for op, args in normalization((2, 7, 5, 4, 6)[:dims], training, dtype, affine):
            batch_norm_memo.store(op, args, op(*args))
    for shape in SIZES:
        for op, args in normalization(shape, training, dtype, affine):
            alike = batch_norm_memo.find(op, args)
            assert alike is not None
            assert same_metadata(alike(*args), op(*args)), (op, shape)


def test_batch_normalisation_that_is_worked_out() -> None:
    batch_norm_memo = BatchNormMemo()
    op = ATEN.native_batch_norm.default

    def call(x: Tensor) -> tuple[Any, ...]:
        return (x, *(meta(x.shape[1]) for _ in range(4)), True, 0.1, 1e-5)

    args = call(meta(2, 7, 5, 4))
    batch_norm_memo.store(op, args, op(*args))
    assert batch_norm_memo.find(op, call(meta(2, 3, 4, 4))) is not None
    assert batch_norm_memo.find(op, call(meta(2, 3, 4, 4, channels_last=True))) is None
    assert batch_norm_memo.find(op, call(meta(2, 3, 8, 4)[:, :, ::2])) is None
    assert batch_norm_memo.find(op, call(meta(1, 3, 1, 1))) is None  # which raises
    assert batch_norm_memo.find(op, call(meta(0, 3, 4, 4))) is None
    assert batch_norm_memo.find(op, (*call(meta(2, 3, 4, 4))[:4], meta(4), True, 0.1, 1e-5)) is None
    assert batch_norm_memo.find(ATEN.exp.default, (meta(3),)) is None
