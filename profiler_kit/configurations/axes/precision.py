"""The arithmetic: autocast, the model's own type, TF32 in matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis
from profiler_kit.records.target import TargetInfo, TargetSpec

_AMP: Final = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}  # what spec.amp calls them
_DTYPES: Final = ("float32", "float64", "float16", "bfloat16")


def _amp(name: str) -> Callable[[str, TargetSpec], TargetSpec]:
    return lambda value, spec: replace(spec, amp=_AMP[name])


def _amp_is_pointless(name: str) -> Callable[[str, str, TargetInfo | None], str | None]:
    def pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
        if info is None:
            return None
        if info.amp == _AMP[name]:
            return f"the target runs under {info.amp} autocast already"
        # autocast narrows float32 and leaves the rest
        return f"the model is {info.dtype}, which autocast leaves" if info.dtype not in (None, "float32") else None

    return pointless


def _dtype(value: str) -> str:
    if value not in _DTYPES:
        raise ValueError(f"{value!r} is none of {', '.join(_DTYPES)}")
    return value


def _dtype_is_pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is not None and (info.dtype or "float32") == value:
        return f"the model is {value} already"
    return None


def _with_dtype(value: str, spec: TargetSpec) -> TargetSpec:
    return replace(spec, dtype=value)


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


AXES: Final = (
    *(
        Axis(
            name=name,
            doc=doc,
            devices=devices,
            excludes=frozenset(_AMP) - {name},
            pointless=_amp_is_pointless(name),
            spec=_amp(name),
        )
        for name, doc, devices in (
            ("amp_bf16", "forward and loss under bfloat16 autocast", EVERYWHERE),
            (
                "amp_fp16",
                "forward and loss under float16 autocast, without a gradient scaler",
                frozenset({"cuda", "mps"}),
            ),
        )
    ),
    Axis(
        name="dtype",
        values="TYPE",
        bare="",
        doc=f"model and floating inputs cast to a type: {', '.join(_DTYPES)}",
        devices=EVERYWHERE,
        read=_dtype,
        pointless=_dtype_is_pointless,
        spec=_with_dtype,
    ),
    Axis(
        name="matmul_tf32",
        doc="float32 matrix products outside convolutions in TF32 (torch's default: no)",
        devices=frozenset({"cuda"}),
        pointless=_matmul_tf32_is_pointless,
        process=_matmul_tf32,
    ),
)
