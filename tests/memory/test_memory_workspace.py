"""The workspace rules, held against what an H100 took: by family, how many measured points their intervals contain.

The points were measured by scripts/lab/probe_scratch.py of commit 9a0182c9; scripts/bench/workspace.py of commit 474ac72c
measured convolutions anew.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import A100, H100, T4
from profiler_kit.memory.workspace import LibraryConfig, WorkspaceBytes, ruled_ops, workspace_of
from profiler_kit.records.calls import OpCall, TensorFacts

POINTS: Final = Path(__file__).parent.parent / "fixtures" / "scratch" / "points.json.gz"
DTYPES: Final = {
    "f32": ("float32", 4), "f16": ("float16", 2), "bf16": ("bfloat16", 2), "i64": ("int64", 8), "b8": ("bool", 1),
    "u8": ("uint8", 1), "uint64": ("uint64", 8), "c64": ("complex64", 8),
}  # fmt: skip
SETTINGS: Final = {"fp32": "f32", "tf32": "f32", "bf16": "bf16", "fp16": "f16"}
PASSES: Final = ("forward", "dgrad", "wgrad", "backward")
MASKS: Final = {"dgrad": (True, False, False), "wgrad": (False, True, False), "backward": (True, True, True)}
NEAR: Final = 4096  # bytes below which a difference is no matter: alignment, tables of offsets

Checked = tuple[int, WorkspaceBytes]


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
                said = workspace_of(convolution_call(sizes, which), H100, config)
                found[convolution_family(sizes, which)].append((nbytes, said))
    return found


@cache
def other_ops() -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = defaultdict(list)
    for name, arguments, keywords, nbytes, _ in points()["ops"]:
        call = OpCall(f"aten.{name}", parsed(arguments), {key: parsed(value) for key, value in keywords.items()})
        found[name].append((nbytes, workspace_of(call, H100, LibraryConfig())))
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
        said = workspace_of(recurrent_call(name, told, rows), H100, LibraryConfig())
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
def test_ops_without_workspace_are_predicted_to_have_none(name: str) -> None:
    assert f"aten.{name}" not in ruled_ops()
    assert all(said == WorkspaceBytes(0, 0, 0) and nbytes <= NEAR for nbytes, said in other_ops()[name])


KINDS: Final = {"dense": 0.985, "depthwise": 0.99, "grouped": 0.95}  # the least share of points inside the interval


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_contain_the_convolutions_they_were_fitted_to(kind: str) -> None:
    families = {name: checked for name, checked in convolutions(held_out=False).items() if name.startswith(kind)}
    assert contained([one for checked in families.values() for one in checked]) >= KINDS[kind]
    assert all(contained(checked) >= 0.93 for checked in families.values() if len(checked) >= 20)


def test_intervals_contain_the_second_sample_of_convolutions() -> None:
    held = [one for family in convolutions(held_out=True).values() for one in family]
    assert len(held) == 1000
    assert contained(held) >= 0.985


def test_intervals_contain_convolutions_whose_algorithm_was_searched_for() -> None:
    searched = [one for family in convolutions(held_out=False, tuned=True).values() for one in family]
    assert contained(searched) >= 0.985


def common(taps: int) -> Iterator[tuple[dict[str, Any], list[int | None]]]:
    """Plain convolutions of `taps` taps with channels that are multiples of eight, on tensor cores."""
    for _, _, is_tuned, sizes, *taken in points()["convolutions"]:
        plain = {**sizes, "s": [1, 1], "d": [1, 1]} == sizes and not {"g", "t", "cl"} & set(sizes)
        aligned = sizes["cin"] % 8 == 0 and sizes["cout"] % 8 == 0 and sizes["dtype"] != "fp32"
        if not is_tuned and plain and aligned and sizes["k"] == [math.isqrt(taps)] * 2:
            yield sizes, taken


@pytest.mark.parametrize(
    ("taps", "which", "least"), [(1, 0, 0.98), (1, 1, 0.93), (1, 2, 0.85), (9, 0, 0.75), (9, 1, 0.9)]
)
def test_the_likely_figure_of_common_convolutions_is_mostly_what_was_measured(
    taps: int, which: int, least: float
) -> None:
    checked = [
        (taken[which] or 0, workspace_of(convolution_call(sizes, PASSES[which]), H100, convolution_config(sizes)))
        for sizes, taken in common(taps)
    ]
    assert len(checked) >= 50
    assert near(checked) >= least


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_intervals_contain_recurrent_layers(kind: str) -> None:
    assert contained(recurrent()[kind]) >= 0.97
    assert contained(recurrent()[kind + " packed"]) >= 0.93


def test_intervals_contain_all_other_ops_but_a_few() -> None:
    checked = [one for family in other_ops().values() for one in family]
    assert len(checked) > 2000
    assert contained(checked) >= 0.985


@pytest.mark.parametrize("which", PASSES[:3])
def test_a_larger_batch_copies_more(which: str) -> None:
    sizes = {"n": 4, "cin": 64, "cout": 64, "size": [64, 64], "k": [3, 3], "s": [1, 1], "p": [1, 1], "d": [1, 1],
             "op": [0, 0], "dtype": "bf16"}  # fmt: skip
    small, large = (
        workspace_of(convolution_call({**sizes, "n": n}, which), H100, LibraryConfig()).likely for n in (4, 64)
    )
    assert large >= small + 2 * 60 * 64 * 64 * 64 * 2  # image and result of 60 more samples


def test_without_tensor_cores_the_weight_is_not_copied() -> None:
    sizes = {"n": 4, "cin": 64, "cout": 64, "size": [64, 64], "k": [3, 3], "s": [2, 2], "p": [1, 1], "d": [1, 1],
             "op": [0, 0], "dtype": "fp32"}  # fmt: skip
    assert workspace_of(convolution_call(sizes, "forward"), H100, LibraryConfig(conv_tf32=False)).likely == 0
    assert workspace_of(convolution_call(sizes, "forward"), H100, LibraryConfig(conv_tf32=True)).likely > 0
    assert workspace_of(convolution_call(sizes, "forward"), T4, LibraryConfig(conv_tf32=True)).likely == 0


def test_a_card_that_was_not_measured_has_a_wider_interval_that_says_so() -> None:
    call = convolution_call(points()["convolutions"][0][3], "wgrad")
    here, there = (workspace_of(call, device, LibraryConfig()) for device in (H100, A100))
    assert there.low <= here.low <= here.high < there.high
    assert "A100" in there.source


def test_nothing_is_taken_on_the_cpu() -> None:
    call = convolution_call(points()["convolutions"][0][3], "forward")
    assert workspace_of(call, CPU, LibraryConfig()) == WorkspaceBytes(0, 0, 0)


@pytest.mark.parametrize("which", PASSES)
def test_both_half_precisions_take_the_same(which: str) -> None:
    for _, _, _, sizes, *_ in points()["convolutions"][::7]:
        half = [convolution_call({**sizes, "dtype": dtype}, which) for dtype in ("bf16", "fp16")]
        said = [workspace_of(call, H100, LibraryConfig()) for call in half]
        assert said[0] == said[1]


def test_a_backward_pass_takes_no_more_than_the_larger_of_its_parts_and_the_bias_needs() -> None:
    for _, _, _, sizes, *_ in points()["convolutions"][::5]:
        config = convolution_config(sizes)
        parts = [workspace_of(convolution_call(sizes, which), H100, config) for which in ("dgrad", "wgrad")]
        whole = workspace_of(convolution_call(sizes, "backward"), H100, config)
        if not sizes.get("cl"):  # there the bias's sum takes its share
            assert whole.high <= max(part.high for part in parts) + NEAR


def test_elements_side_by_side_are_summed_without_a_buffer() -> None:
    call = OpCall("aten.sum", (facts(64, 4096), (1,), False))
    assert workspace_of(call, H100, LibraryConfig()).high <= NEAR
    slow = OpCall("aten.sum", (facts(4096, 64), (0,), False))
    assert workspace_of(slow, H100, LibraryConfig()).low > NEAR


FLOAT_FAMILIES: Final = {"forward": 0.95, "dgrad": 0.9, "wgrad": 0.78}


@pytest.mark.parametrize("which", FLOAT_FAMILIES)
def test_the_likely_figure_without_tensor_cores_is_mostly_what_was_measured(which: str) -> None:
    at = PASSES.index(which)
    checked = [
        (taken[at], workspace_of(convolution_call(sizes, which), H100, convolution_config(sizes)))
        for _, _, is_tuned, sizes, *taken in points()["convolutions"]
        if sizes["dtype"] == "fp32" and sizes["k"] == [3, 3] and not {"g", "t", "cl"} & set(sizes) and not is_tuned
    ]
    assert len(checked) >= 50
    assert near(checked) >= FLOAT_FAMILIES[which]


@pytest.mark.parametrize(("precision", "least"), [("half", 0.3), ("tf32", 0.15), ("fp32", 0.75)])
def test_the_likely_weight_gradient_with_channels_last_is_often_what_was_measured(precision: str, least: float) -> None:
    families = [*convolutions(held_out=False).items(), *convolutions(held_out=True).items()]
    name = f"dense channels last {precision} wgrad"
    assert near([one for family, checked in families if family == name for one in checked]) >= least


@pytest.mark.parametrize("family", ["grouped channels last half forward", "grouped channels last tf32 forward"])
def test_grouped_convolutions_with_channels_last_likely_take_nothing(family: str) -> None:
    checked = [*convolutions(held_out=False)[family], *convolutions(held_out=True)[family]]
    assert near(checked) >= 0.5


def pointwise_gradient(samples: int, channels: tuple[int, int], side: int, dtype: str = "bf16") -> WorkspaceBytes:
    sizes = {"n": samples, "cin": channels[0], "cout": channels[1], "size": [side, side], "k": [1, 1], "s": [1, 1],
             "p": [0, 0], "d": [1, 1], "op": [0, 0], "dtype": dtype}  # fmt: skip
    return workspace_of(convolution_call(sizes, "wgrad"), H100, LibraryConfig())


@pytest.mark.parametrize(
    ("samples", "channels", "side", "dtype", "is_per_sample"),
    [
        (4, (1088, 768), 14, "bf16", True),  # aligned rows, 13 MB of products
        (8, (1088, 768), 14, "bf16", False),  # 27 MB
        (6, (768, 768), 7, "bf16", False),  # rows of 49
        (96, (320, 1280), 7, "bf16", True),  # fewer pairs of channels
        (4, (320, 1280), 7, "tf32", False),
        (4, (1024, 1024), 8, "tf32", True),
    ],
)
def test_a_pointwise_gradient_is_a_product_per_sample_for_aligned_rows_and_few_bytes(
    samples: int, channels: tuple[int, int], side: int, dtype: str, is_per_sample: bool
) -> None:
    per_sample = samples * channels[0] * channels[1] * 4
    maps = samples * sum(channels) * side**2 * (4 if dtype == "tf32" else 2)
    assert pointwise_gradient(samples, channels, side, dtype).likely == (per_sample if is_per_sample else maps)


def test_a_tile_of_the_weight_gradient_is_wide_for_few_image_channels() -> None:
    def partial_sums(cin: int, cout: int) -> int:
        sizes = {"n": 8, "cin": cin, "cout": cout, "size": [96, 96], "k": [3, 3], "s": [1, 1], "p": [1, 1], "d": [1, 1],
                 "op": [0, 0], "dtype": "tf32"}  # fmt: skip
        likely = workspace_of(convolution_call(sizes, "wgrad"), H100, LibraryConfig()).likely
        maps = 4 * 8 * (cin + cout) * 96**2
        return (likely - maps) // (4 * 9 * cin * cout) - 1  # besides the copy of the weight

    assert partial_sums(64, 256) == partial_sums(64, 128) == partial_sums(128, 128) == 14
    assert partial_sums(128, 256) == 7


def test_a_bias_gradient_with_channels_last_has_an_interval() -> None:
    for last in (False, True):
        y, x = (facts(32, 256, 48, 48, channels_last=last) for _ in range(2))
        w = facts(256, 256, 1, 1, channels_last=last)
        arguments = (y, x, w, (256,), (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, False, True))
        said = workspace_of(OpCall("aten.convolution_backward", arguments, in_backward=True), H100, LibraryConfig())
        assert (said.low < said.likely) == last
        assert said.high == said.likely
