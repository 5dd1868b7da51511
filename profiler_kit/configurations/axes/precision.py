"""How numbers are kept and computed with: autocast, the model's own type, TF32 in matrix products, memory layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis
from profiler_kit.records.target import TargetInfo

_AMP: Final = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}  # what spec.amp calls them
_DTYPES: Final = ("float32", "float64", "float16", "bfloat16")


def _amp(name: str, doc: str, devices: frozenset[str]) -> Axis:
    amp = _AMP[name]

    def pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
        if info is None:
            return None
        if info.amp == amp:
            return f"the target runs under {amp} autocast already"
        # autocast narrows float32 and leaves the rest
        return f"the model is {info.dtype}, which autocast leaves" if info.dtype not in (None, "float32") else None

    return Axis(
        name=name,
        doc=doc,
        devices=devices,
        excludes=frozenset(_AMP) - {name},
        pointless=pointless,
        spec=lambda value, spec: replace(spec, amp=amp),
    )


def _dtype(value: str) -> str:
    if value not in _DTYPES:
        raise ValueError(f"{value!r} is none of {', '.join(_DTYPES)}")
    return value


def _dtype_is_pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is not None and (info.dtype or "float32") == value:
        return f"the model is {value} already"
    return None


def _matmul_tf32(value: str, device: str) -> None:
    import torch

    # by the older switch, as for convolutions: it exists in every version, and the two ways must not be mixed
    torch.backends.cuda.matmul.allow_tf32 = True


def _matmul_tf32_is_pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is None:
        return None
    if info.amp is not None:
        return f"matrix products run in {info.amp}"
    return f"the model is {info.dtype}" if info.dtype not in (None, "float32") else None


def _channels_last_is_pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is None:
        return None
    if info.channels_last:
        return "the target is in channels_last already"
    if not any(len(tensor.shape) in (4, 5) for tensor in info.inputs):
        return "no input has four or five dimensions"
    return None


AXES: Final = (
    _amp("amp_bf16", "forward and loss under bfloat16 autocast", EVERYWHERE),
    _amp("amp_fp16", "forward and loss under float16 autocast, without a gradient scaler", frozenset({"cuda", "mps"})),
    Axis(
        name="channels_last",
        doc="model and inputs in NHWC memory layout",
        devices=EVERYWHERE,
        pointless=_channels_last_is_pointless,
        spec=lambda value, spec: replace(spec, channels_last=True),
    ),
    Axis(
        name="dtype",
        values="TYPE",
        bare="",
        doc=f"model and floating inputs cast to a type: {', '.join(_DTYPES)}",
        devices=EVERYWHERE,
        read=_dtype,
        pointless=_dtype_is_pointless,
        spec=lambda value, spec: replace(spec, dtype=value),
    ),
    Axis(
        name="matmul_tf32",
        doc="float32 matrix products outside convolutions in TF32 (torch's default: no)",
        devices=frozenset({"cuda"}),
        pointless=_matmul_tf32_is_pointless,
        process=_matmul_tf32,
    ),
)
