"""Letting flex_attention run under a mode that watches it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

_MODULE: Final = "torch.nn.attention.flex_attention"
_AS_IT_IS: Final = {"_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True, "_validate_device": lambda *tensors: None}


def open_flex_attention() -> Mapping[str, Any]:
    """Lets flex_attention call its op as it is, on any device, and returns what `restore_flex_attention` needs.

    By itself it compiles the op first, which would take in the mode that watches, and refuses meta tensors and, with gradients,
    a CPU. Nothing happens where its module is not loaded, or has none of this (before torch 2.9).
    """
    module: Any = sys.modules.get(_MODULE)
    before = {name: getattr(module, name) for name in _AS_IT_IS if hasattr(module, name)}
    for name in before:
        setattr(module, name, _AS_IT_IS[name])
    return before


def restore_flex_attention(before: Mapping[str, Any]) -> None:
    """Sets everything back as it was."""
    for name, value in before.items():
        setattr(sys.modules[_MODULE], name, value)
