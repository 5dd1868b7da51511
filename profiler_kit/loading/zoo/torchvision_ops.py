"""What torchvision needs to be imported beside a torch that its own C++ library was not built for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import torch

_MISSING: Final = ("nms", "qnms")
_kept: list[torch.library.Library] = []  # a definition lasts as long as its library


def define_missing_ops() -> None:
    """Defines those operators of torchvision whose absence makes its import fail, where its C++ library can't be loaded.

    The wheels on the package index are built for CUDA; beside a CPU build of torch their library does not load, and the
    import then stops at the registration of ``nms``. Defined, but without a kernel, it lets all models be built; those
    that call it (detection) say so when they do. Where the library loads, or torchvision is absent, nothing is done.
    """
    if _kept or _can_load():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _MISSING:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def _can_load() -> bool:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return True
    for file in sorted(Path(found.origin).parent.glob("_C*.so")):
        try:
            torch.ops.load_library(str(file))
        except OSError:
            continue
    return hasattr(torch.ops.torchvision, "nms")
