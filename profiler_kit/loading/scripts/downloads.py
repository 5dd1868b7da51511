"""Weights that are not downloaded: the model keeps its random weights."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from profiler_kit.foreign import attributes_of, loaded_modules

_LOADERS: Final = ("load_state_dict_from_url", "load_url")


class SkippedWeights(OrderedDict[str, Any]):
    """The state dict of a download that did not happen. Every key leads to another one, as in ``checkpoint["model"]``."""

    def __missing__(self, key: str) -> SkippedWeights:
        return SkippedWeights()


@contextlib.contextmanager
def skipped_downloads(note: Callable[[str], None]) -> Iterator[None]:
    """Replace torch's functions that download weights inside the block, in every module that imported them."""
    skipped: list[str] = []

    def load(url: str, *args: object, **kwargs: object) -> SkippedWeights:
        skipped.append(url)
        note(f"weights: {url.rpartition('/')[2]} not downloaded, random weights instead")
        return SkippedWeights()

    def download(url: str, *args: object, **kwargs: object) -> None:
        load(url)

    load_state_dict = nn.Module.load_state_dict

    def load_or_keep(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, SkippedWeights) or (skipped and not state_dict):
            return _IncompatibleKeys([], [])
        return load_state_dict(self, state_dict, *args, **kwargs)

    replaced: list[tuple[Any, str, Any]] = []
    originals = {id(torch.hub.load_state_dict_from_url): load, id(torch.hub.download_url_to_file): download}
    for _, module in loaded_modules():
        names = attributes_of(module) or {}
        for name in (*_LOADERS, "download_url_to_file"):
            replacement = originals.get(id(names.get(name)))
            if replacement is not None:
                replaced.append((module, name, names[name]))
                setattr(module, name, replacement)
    nn.Module.load_state_dict = load_or_keep  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.load_state_dict = load_state_dict  # type: ignore[method-assign]
        for module, name, original in replaced:
            setattr(module, name, original)
