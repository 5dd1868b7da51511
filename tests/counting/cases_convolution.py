# ruff: noqa: E501 a case is a line where it can be
"""Hand-derived: convolutions. MACs are positions x weights: the kernel's, out x in/groups x kernel, once per output position.

Of a transposed one, once per input position. Both halves of backward cost as much as forward each.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from case_table import case
from torch import nn

B = 2
ONE = B * (10 - 4 + 1) * (5 * 3 * 4)
TWO = B * (8 - 2) * (9 - 1) * (5 * 3 * 3 * 2)
THREE = B * (5 - 1) * (6 - 2) * (7 - 3) * (4 * 3 * 2 * 3 * 4)
GROUPED = B * 36 * (9 * 2 * 9)
DEPTH = B * 36 * (6 * 1 * 9)
UP = B * 25 * (3 * 4 * 9)
SEPARABLE = B * 36 * (6 * 9) + B * 36 * (6 * 10)


def conv(dims: int, transposed: bool = False, **options: Any) -> Any:
    kind = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    return partial(getattr(F, kind), **options)


CASES = [
    case("1-d", lambda on: (conv(1), on.w(B, 3, 10), on.w(5, 3, 4)), ONE, 2 * ONE),
    case("2-d", lambda on: (conv(2), on.w(B, 3, 8, 9), on.w(5, 3, 3, 2)), TWO, 2 * TWO),
    case("3-d", lambda on: (conv(3), on.w(B, 3, 5, 6, 7), on.w(4, 3, 2, 3, 4)), THREE, 2 * THREE),
    case("1-d module", lambda on: (on.m(nn.Conv1d(3, 5, 4)), on.x(B, 3, 10)), ONE, ONE),
    case("2-d module", lambda on: (on.m(nn.Conv2d(3, 5, (3, 2))), on.x(B, 3, 8, 9)), TWO, TWO),
    case("3-d module", lambda on: (on.m(nn.Conv3d(3, 4, (2, 3, 4))), on.x(B, 3, 5, 6, 7)), THREE, THREE),
    case("without a batch", lambda on: (conv(2), on.x(3, 8, 9), on.x(5, 3, 3, 2)), TWO // B),
    case("bias and its gradient are free", lambda on: (conv(2), on.w(B, 3, 8, 9), on.w(5, 3, 3, 2), on.w(5)), TWO, 2 * TWO,
         backward_flops=4 * TWO),
    case("gradient of the weight", lambda on: (conv(2), on.x(B, 3, 8, 9), on.w(5, 3, 3, 2)), TWO, TWO),
    case("gradient of the input", lambda on: (conv(2), on.w(B, 3, 8, 9), on.x(5, 3, 3, 2)), TWO, TWO),
    case("gradient of the bias alone", lambda on: (conv(2), on.x(B, 3, 8, 9), on.x(5, 3, 3, 2), on.w(5)), TWO, 0),
    case("1x1", lambda on: (conv(2), on.w(B, 3, 8, 8), on.w(5, 3, 1, 1)), B * 64 * 15, 2 * B * 64 * 15),
    case("strided", lambda on: (conv(2, stride=2), on.w(B, 3, 9, 9), on.w(5, 3, 3, 3)), B * 16 * 135, 2 * B * 16 * 135),
    case("padded, nominal", lambda on: (conv(2, padding=1), on.w(B, 3, 8, 8), on.w(5, 3, 3, 3)), B * 64 * 135, 2 * B * 64 * 135),
    case("padded unevenly", lambda on: (conv(2, padding=(0, 2)), on.x(B, 3, 8, 8), on.x(5, 3, 3, 3)), B * 6 * 10 * 135),
    case("dilated", lambda on: (conv(2, dilation=2), on.w(B, 3, 9, 9), on.w(5, 3, 3, 3)), B * 25 * 135, 2 * B * 25 * 135),
    case("dilated and strided", lambda on: (conv(2, dilation=2, stride=2), on.x(B, 3, 9, 9), on.x(5, 3, 3, 3)), B * 9 * 135),
    case("'same', odd kernel", lambda on: (conv(2, padding="same"), on.x(B, 3, 8, 8), on.x(5, 3, 3, 3)), B * 64 * 135),
    case("'same', even kernel", lambda on: (conv(2, padding="same"), on.w(B, 3, 8, 8), on.w(5, 3, 4, 4)), B * 64 * 240, 2 * B * 64 * 240),
    case("'same', even kernel, dilated", lambda on: (conv(1, padding="same", dilation=3), on.x(B, 3, 16), on.x(5, 3, 4)), B * 16 * 60),
    case("'valid'", lambda on: (conv(2, padding="valid"), on.x(B, 3, 8, 9), on.x(5, 3, 3, 2)), TWO),
    case("circular padding", lambda on: (on.m(nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular", bias=False)), on.x(B, 3, 8, 8)),
         B * 64 * 135),
    case("reflected padding", lambda on: (on.m(nn.Conv2d(3, 5, 3, padding=1, padding_mode="reflect")), on.x(B, 3, 8, 8)), B * 64 * 135),
    case("grouped", lambda on: (conv(2, groups=3), on.w(B, 6, 8, 8), on.w(9, 2, 3, 3)), GROUPED, 2 * GROUPED),
    case("grouped, gradient of the weight", lambda on: (conv(2, groups=3), on.x(B, 6, 8, 8), on.w(9, 2, 3, 3)), GROUPED, GROUPED),
    case("grouped 1-d", lambda on: (conv(1, groups=2), on.w(B, 6, 10), on.w(4, 3, 3)), B * 8 * 36, 2 * B * 8 * 36),
    case("grouped 3-d", lambda on: (conv(3, groups=2), on.w(B, 4, 5, 5, 5), on.w(6, 2, 2, 2, 2)), B * 64 * 96, 2 * B * 64 * 96),
    case("depthwise", lambda on: (conv(2, groups=6), on.w(B, 6, 8, 8), on.w(6, 1, 3, 3)), DEPTH, 2 * DEPTH),
    case("depthwise, twice the channels", lambda on: (conv(2, groups=6), on.w(B, 6, 8, 8), on.w(12, 1, 3, 3)), 2 * DEPTH, 4 * DEPTH),
    case("depthwise 1-d", lambda on: (conv(1, groups=6), on.w(B, 6, 10), on.w(6, 1, 3)), B * 8 * 18, 2 * B * 8 * 18),
    case("depthwise, dilated", lambda on: (conv(2, groups=6, dilation=2), on.w(B, 6, 9, 9), on.w(6, 1, 3, 3)), B * 25 * 54, 2 * B * 25 * 54),
    case("depthwise separable", lambda on: (on.m(nn.Sequential(nn.Conv2d(6, 6, 3, groups=6, bias=False), nn.Conv2d(6, 10, 1, bias=False))),
         on.x(B, 6, 8, 8)), SEPARABLE, SEPARABLE + B * 36 * 60),
    case("channels last", lambda on: (conv(2), on.x(B, 3, 8, 9).to(memory_format=torch.channels_last), on.x(5, 3, 3, 2)), TWO),
    case("bfloat16", lambda on: (conv(2), on.x(B, 3, 8, 9, dtype=torch.bfloat16), on.x(5, 3, 3, 2, dtype=torch.bfloat16)), TWO),
    case("inference mode", lambda on: (torch.inference_mode()(F.conv2d), on.x(B, 3, 8, 9), on.x(5, 3, 3, 2)), TWO),
    case("transposed 1-d", lambda on: (conv(1, True), on.w(B, 3, 5), on.w(3, 4, 3)), B * 5 * 36, 2 * B * 5 * 36),
    case("transposed 2-d", lambda on: (conv(2, True), on.w(B, 3, 5, 5), on.w(3, 4, 3, 3)), UP, 2 * UP),
    case("transposed 2-d, stride 2", lambda on: (conv(2, True, stride=2), on.w(B, 3, 5, 5), on.w(3, 4, 3, 3)), UP, 2 * UP),
    case("transposed 2-d, output padding", lambda on: (conv(2, True, stride=2, padding=1, output_padding=1), on.x(B, 3, 5, 5),
         on.x(3, 4, 3, 3)), UP),
    case("transposed 2-d, dilated", lambda on: (conv(2, True, dilation=2), on.x(B, 3, 5, 5), on.x(3, 4, 3, 3)), UP),
    case("transposed 2-d, grouped", lambda on: (conv(2, True, groups=3), on.w(B, 6, 5, 5), on.w(6, 2, 3, 3)), B * 25 * 108, 2 * B * 25 * 108),
    case("transposed 2-d, depthwise", lambda on: (conv(2, True, groups=6), on.w(B, 6, 5, 5), on.w(6, 1, 3, 3)), B * 25 * 54, 2 * B * 25 * 54),
    case("transposed 3-d", lambda on: (conv(3, True), on.w(B, 3, 4, 4, 4), on.w(3, 2, 2, 2, 2)), B * 64 * 48, 2 * B * 64 * 48),
    case("transposed module", lambda on: (on.m(nn.ConvTranspose2d(3, 4, 3, stride=2)), on.x(B, 3, 5, 5)), UP, UP),
    # torch runs a complex convolution as three real ones, and three additions of its results and its operands
    case("complex", lambda on: (conv(2), on.x(1, 2, 6, 6, dtype=torch.complex64), on.x(3, 2, 3, 3, dtype=torch.complex64)),
         3 * 16 * 54, flops=None),
    case("time, batch, channels", lambda on: (torch.conv_tbc, on.w(10, B, 3), on.w(4, 3, 5), on.w(5)), B * 7 * 60, 2 * B * 7 * 60),
    case("a convolution's own gradients", lambda on: (torch.nn.grad.conv2d_weight,
         on.x(B, 3, 8, 9), (5, 3, 3, 2), on.x(B, 5, 6, 8)), TWO),
    case("unfolded and multiplied", lambda on: (lambda x, w: w @ F.unfold(x, (3, 2)), on.x(B, 3, 8, 9), on.x(5, 18)), B * 48 * 18 * 5),
    case("twice with one weight", lambda on: (lambda x, w: F.conv2d(F.conv2d(x, w), w), on.x(B, 3, 8, 8), on.w(3, 3, 3, 3)),
         B * (36 + 16) * 81, B * (36 + 2 * 16) * 81, backward_flops=None),
]  # fmt: skip
