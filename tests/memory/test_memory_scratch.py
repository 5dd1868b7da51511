"""The scratch rules, held against what an H100 took: by family, how many measured points their intervals contain."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from profiler_kit.memory.profiles import CPU, SM90
from profiler_kit.memory.scratch import LibraryConfig, OpCall, ScratchBytes, TensorFacts, ruled_ops, scratch_of

POINTS: Final = Path(__file__).parent.parent / "fixtures" / "scratch" / "points.json.gz"
DTYPES: Final = {
    "f32": ("float32", 4), "f16": ("float16", 2), "bf16": ("bfloat16", 2), "i64": ("int64", 8), "b8": ("bool", 1),
    "u8": ("uint8", 1), "uint64": ("uint64", 8), "c64": ("complex64", 8),
}  # fmt: skip
SETTINGS: Final = {"fp32": "f32", "tf32": "f32", "bf16": "bf16", "fp16": "f16"}
PASSES: Final = ("forward", "dgrad", "wgrad", "backward")
MASKS: Final = {"dgrad": (True, False, False), "wgrad": (False, True, False), "backward": (True, True, True)}
NEAR: Final = 4096  # bytes below which a difference is no matter: alignment, tables of offsets

Checked = tuple[int, ScratchBytes]


@cache
def points() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(gzip.decompress(POINTS.read_bytes()))
    return told


def in_order(shape: tuple[int, ...], *, channels_last: bool = False) -> tuple[int, ...]:
    order = list(range(len(shape)))
    if channels_last:
        order = [0, *order[2:], 1]
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * shape[dim]
    return tuple(strides)


def facts(*shape: int, dtype: str = "f32", channels_last: bool = False) -> TensorFacts:
    return TensorFacts(shape, in_order(shape, channels_last=channels_last), *DTYPES[dtype])


def parsed(value: Any) -> Any:
    """``8x16:f32``, ``8x16:f32:16.1`` (strides), ``8x16x4x4:f32:cl``, ``:i64`` (a scalar)."""
    if isinstance(value, list):
        return tuple(parsed(each) for each in value)
    if not isinstance(value, str) or value.partition(":")[2].partition(":")[0] not in DTYPES:
        return value
    sizes, dtype, *rest = value.split(":")
    shape = tuple(int(size) for size in sizes.split("x")) if sizes else ()
    strides = (
        tuple(map(int, rest[0].split("."))) if rest and rest[0] != "cl" else in_order(shape, channels_last=bool(rest))
    )
    return TensorFacts(shape, strides, *DTYPES[dtype])


def convolution_call(sizes: dict[str, Any], which: str) -> OpCall:
    transposed, groups, last = sizes.get("t", False), sizes.get("g", 1), sizes.get("cl", False)
    dtype = SETTINGS[sizes["dtype"]]
    out = []
    for i, k, s, p, d, op in zip(*(sizes[name] for name in ("size", "k", "s", "p", "d", "op")), strict=True):
        out.append((i - 1) * s - 2 * p + d * (k - 1) + op + 1 if transposed else (i + 2 * p - d * (k - 1) - 1) // s + 1)
    n, cin, cout = sizes["n"], sizes["cin"], sizes["cout"]
    outer = (cin, cout // groups) if transposed else (cout, cin // groups)
    x = facts(n, cin, *sizes["size"], dtype=dtype, channels_last=last)
    y = facts(n, cout, *out, dtype=dtype, channels_last=last)
    w = facts(*outer, *sizes["k"], dtype=dtype, channels_last=last)
    shape = (*(tuple(sizes[name]) for name in ("s", "p", "d")), transposed, tuple(sizes["op"]), groups)
    if which == "forward":
        return OpCall("aten.convolution", (x, w, facts(cout, dtype=dtype), *shape), outputs=(y,))
    return OpCall("aten.convolution_backward", (y, x, w, (cout,), *shape, MASKS[which]), in_backward=True)


def convolution_config(sizes: dict[str, Any], *, tuned: bool = False) -> LibraryConfig:
    return LibraryConfig(conv_tf32=sizes["dtype"] != "fp32", deterministic=sizes.get("det", False), benchmark=tuned)


def convolution_family(sizes: dict[str, Any], which: str) -> str:
    groups = sizes.get("g", 1)
    kind = "dense" if groups == 1 else "depthwise" if groups == sizes["cin"] else "grouped"
    layout = " channels last" if sizes.get("cl") and len(sizes["k"]) > 1 else ""
    precision = "half" if sizes["dtype"] in ("bf16", "fp16") else sizes["dtype"]
    return f"{kind}{layout} {precision} {which}"


@cache
def convolutions(*, held_out: bool, tuned: bool = False) -> dict[str, list[Checked]]:
    """By family, what was measured and what the rules say."""
    found: dict[str, list[Checked]] = defaultdict(list)
    for _, is_held_out, is_tuned, sizes, *taken in points()["convolutions"]:
        if is_held_out != held_out or is_tuned != tuned:
            continue
        config = convolution_config(sizes, tuned=tuned)
        for which, nbytes in zip(PASSES, taken, strict=True):
            if nbytes is not None:
                said = scratch_of(convolution_call(sizes, which), SM90, config)
                found[convolution_family(sizes, which)].append((nbytes, said))
    return found


@cache
def other_ops() -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = defaultdict(list)
    for name, arguments, keywords, nbytes, _ in points()["ops"]:
        call = OpCall(f"aten.{name}", parsed(arguments), {key: parsed(value) for key, value in keywords.items()})
        found[name].append((nbytes, scratch_of(call, SM90, LibraryConfig())))
    return found


def recurrent_call(name: str, told: dict[str, Any], rows: int) -> OpCall:
    kind = told["kind"].lower()
    return OpCall(
        f"aten.{name}",
        kwargs={
            "kind": kind if kind != "rnn" else f"rnn_{told.get('nonlinearity', 'tanh')}", "rows": rows,
            "batch": told["batch"], "input_size": told["inputs"], "hidden": told["hidden"],
            "depth": told.get("layers", 1), "directions": 2 if told.get("bi") else 1,
            "element_bytes": 4 if told["dtype"] in ("tf32", "fp32") else 2, "dropout": told.get("dropout", 0.0),
            "packed": told.get("packed", False), "train": told.get("train", True),
        },
    )  # fmt: skip


@cache
def recurrent() -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = defaultdict(list)
    for name, told, rows, nbytes in points()["recurrent"]:
        said = scratch_of(recurrent_call(name, told, rows), SM90, LibraryConfig())
        found[told["kind"] + (" packed" if told.get("packed") else "")].append((nbytes, said))
    return found


def contained(checked: list[Checked]) -> float:
    held = sum(said.low - NEAR <= nbytes * 1.001 and nbytes <= said.high * 1.001 + NEAR for nbytes, said in checked)
    return held / len(checked)


def near(checked: list[Checked], share: float = 0.01) -> float:
    return sum(abs(said.likely - nbytes) <= max(NEAR, share * nbytes) for nbytes, said in checked) / len(checked)


def everything() -> list[Checked]:
    families = [*convolutions(held_out=False).values(), *convolutions(held_out=True).values()]
    families += [*convolutions(held_out=False, tuned=True).values(), *other_ops().values(), *recurrent().values()]
    return [one for family in families for one in family]


def test_ends_are_in_order_and_never_negative() -> None:
    assert all(0 <= said.low <= said.likely <= said.high for _, said in everything())


def test_every_uncertain_figure_says_where_it_is_from() -> None:
    assert all(said.source for _, said in everything() if said.high)


EXACT: Final = (
    "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward", "_safe_softmax",
    "_softmax_backward_data", "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "mse_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "mean", "prod",
    "logsumexp", "sort", "randperm", "multinomial", "roll",
)  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_the_likely_figure_of_a_known_op_is_what_was_measured(name: str) -> None:
    assert near(other_ops()[name]) == 1.0


@pytest.mark.parametrize(
    "name", ["add", "mul", "relu", "mm", "addmm", "bmm", "cat", "_log_softmax", "_softmax", "embedding"]
)
def test_ops_without_scratch_took_none_and_are_said_to_take_none(name: str) -> None:
    assert f"aten.{name}" not in ruled_ops()
    assert all(said == ScratchBytes(0, 0, 0) and nbytes <= NEAR for nbytes, said in other_ops()[name])


def test_intervals_contain_convolutions_that_no_rule_was_fitted_to() -> None:
    held = [one for family in convolutions(held_out=True).values() for one in family]
    assert len(held) == 1000
    assert contained(held) >= 0.97


def test_nothing_is_taken_on_the_cpu() -> None:
    call = convolution_call(points()["convolutions"][0][3], "forward")
    assert scratch_of(call, CPU, LibraryConfig()) == ScratchBytes(0, 0, 0)


@pytest.mark.parametrize("which", PASSES)
def test_both_half_precisions_take_the_same(which: str) -> None:
    for _, _, _, sizes, *_ in points()["convolutions"][::7]:
        half = [convolution_call({**sizes, "dtype": dtype}, which) for dtype in ("bf16", "fp16")]
        said = [scratch_of(call, SM90, LibraryConfig()) for call in half]
        assert said[0] == said[1]


def test_a_backward_pass_takes_no_more_than_the_larger_of_its_parts_and_the_bias_needs() -> None:
    for _, _, _, sizes, *_ in points()["convolutions"][::5]:
        config = convolution_config(sizes)
        parts = [scratch_of(convolution_call(sizes, which), SM90, config) for which in ("dgrad", "wgrad")]
        whole = scratch_of(convolution_call(sizes, "backward"), SM90, config)
        if not sizes.get("cl"):  # there the bias's sum takes its share
            assert whole.high <= max(part.high for part in parts) + NEAR


def test_elements_side_by_side_are_summed_without_a_buffer() -> None:
    call = OpCall("aten.sum", (facts(64, 4096), (1,), False))
    assert scratch_of(call, SM90, LibraryConfig()).high <= NEAR
    slow = OpCall("aten.sum", (facts(4096, 64), (0,), False))
    assert scratch_of(slow, SM90, LibraryConfig()).low > NEAR
