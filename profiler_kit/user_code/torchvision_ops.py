"""Operator definitions that let torchvision be imported with a torch for which its C++ library was not built."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import torch

_MISSING: Final = ("nms", "qnms")
_libraries: list[torch.library.Library] = []  # a definition exists as long as its library


def define_missing_ops() -> None:
    """Define the torchvision operators without which its import fails, if its C++ library cannot be loaded.

    The published wheels are built for CUDA. With a CPU build of torch their library does not load, and the import fails when
    it registers ``nms``. The definitions have no kernel: all models can be built, and models that call these operators
    (detection) fail at the call. Does nothing if the library loads or torchvision is not installed.
    """
    if _libraries or _can_load():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _MISSING:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _libraries.append(library)


def _can_load() -> bool:
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        return True
    for file in sorted(Path(package.origin).parent.glob("_C*.so")):
        try:
            torch.ops.load_library(str(file))
        except OSError:
            continue
    return hasattr(torch.ops.torchvision, "nms")
