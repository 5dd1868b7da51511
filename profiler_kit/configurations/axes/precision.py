"""Axes of precision and layout: autocast, dtype, TF32 in matrix products, channels_last."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.configurations.axis import CUDA, EVERYWHERE, SAME_PRECISION, Axis, Change
from profiler_kit.records.target import TargetInfo

_AMP: Final = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}  # by the names of spec.amp
_DTYPES: Final = ("float32", "float64", "float16", "bfloat16")


def _amp(name: str, doc: str, devices: frozenset[str], numerics: str) -> Axis:
    amp = _AMP[name]

    def skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
        if info is None:
            return None
        if info.amp == amp:
            return f"the target already runs under {amp} autocast"
        # autocast only casts float32
        return (
            f"the model is {info.dtype}, and autocast only casts float32"
            if info.dtype not in (None, "float32")
            else None
        )

    return Axis(
        name=name,
        doc=doc,
        devices=devices,
        excludes=frozenset(_AMP) - {name},
        skip_reason=skip_reason,
        spec=lambda value, spec: replace(spec, amp=amp),
        change=Change(
            line=f'with torch.autocast("{{device}}", dtype=torch.{amp}):',
            memory="smaller activations",
            numerics=numerics,
            reduced=True,
        ),
    )


def _dtype(value: str) -> str:
    if value not in _DTYPES:
        raise ValueError(f"{value!r} is not one of {', '.join(_DTYPES)}")
    return value


def _dtype_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is not None and (info.dtype or "float32") == value:
        return f"the model is already {value}"
    return None


def _matmul_tf32(value: str, device: str) -> None:
    import torch

    # the older switch, as for convolutions: all versions have it, and it must not be mixed with the newer one
    torch.backends.cuda.matmul.allow_tf32 = True


def _matmul_tf32_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is None:
        return None
    if info.amp is not None:
        return f"matrix products run in {info.amp}"
    return f"the model is {info.dtype}" if info.dtype not in (None, "float32") else None


def _channels_last_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is None:
        return None
    if info.channels_last:
        return "the target already uses channels_last"
    if not any(len(tensor.shape) in (4, 5) for tensor in info.inputs):
        return "no input has four or five dimensions"
    return None


AXES: Final = (
    _amp("amp_bf16", "forward and loss under bfloat16 autocast", EVERYWHERE, "bfloat16 has 8 bits of precision"),
    _amp(
        "amp_fp16",
        "forward and loss under float16 autocast, without a gradient scaler",
        frozenset({"cuda", "mps"}),
        "float16 needs a gradient scaler",
    ),
    Axis(
        name="channels_last",
        change=Change(line="model = model.to(memory_format=torch.channels_last)", numerics=SAME_PRECISION),
        doc="model and inputs in channels_last (NHWC) memory layout",
        devices=EVERYWHERE,
        skip_reason=_channels_last_skip_reason,
        spec=lambda value, spec: replace(spec, channels_last=True),
    ),
    Axis(
        name="dtype",
        change=Change(
            line="model = model.to(torch.{})", memory="smaller tensors", numerics="all arithmetic in {}", reduced=True
        ),
        values="TYPE",
        bare="",
        doc=f"model and floating-point inputs cast to TYPE: {', '.join(_DTYPES)}",
        devices=EVERYWHERE,
        parse_value=_dtype,
        skip_reason=_dtype_skip_reason,
        spec=lambda value, spec: replace(spec, dtype=value),
    ),
    Axis(
        name="matmul_tf32",
        change=Change(
            line='torch.set_float32_matmul_precision("high")', numerics="TF32 rounds inputs to 10 bits", reduced=True
        ),
        doc="TF32 in float32 matrix products; convolutions stay unchanged (torch's default: off)",
        devices=CUDA,
        skip_reason=_matmul_tf32_skip_reason,
        process=_matmul_tf32,
    ),
)
