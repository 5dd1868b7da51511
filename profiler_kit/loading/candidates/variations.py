"""Another value for an assumed argument, after a call failed with the usual one."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import Any, Final

from profiler_kit.loading.vocabulary import is_concept

_NEEDS_SEQUENCE: Final = re.compile(
    r"has no len\(\)|not iterable|not subscriptable|non-iterable|non-sequence|\b(tuple|list|sequence|iterable)\b", re.I
)
_USUAL_STAGES: Final = 4  # of hierarchical networks, such as ResNet and Swin
_USUAL_LENGTH: Final = 2
_LAYER_CHANNELS: Final = 64


def sequence_instead(
    error: BaseException, assumed: Mapping[str, Any], bound: Mapping[str, Any]
) -> tuple[str, Any] | None:
    """(parameter, sequence) if `error` says that one of the `assumed` sizes must be a tuple or list; None otherwise.

    The parameter is the one that the message or the failing line names, or the only one. Its sequence is as long as those in
    `bound`, or has one item for each of the usual stages.
    """
    text = str(error)
    if not isinstance(error, (TypeError, AssertionError, ValueError)) or not _NEEDS_SEQUENCE.search(text):
        return None
    sizes = [name for name, value in assumed.items() if type(value) is int]
    context = f"{text} {_failing_line(error)}"
    named = [name for name in sizes if re.search(rf"\b{re.escape(name)}\b", context)] or sizes
    if not named or (named is sizes and len(sizes) > 1):
        return None
    name = named[0]
    lengths = [len(value) for key, value in bound.items() if key != name and isinstance(value, (list, tuple)) and value]
    length = lengths[0] if lengths else _USUAL_STAGES if is_concept(name, "layers") else _USUAL_LENGTH
    # a sequence of channels describes layers, not an image
    size = max(assumed[name], _LAYER_CHANNELS) if "channel" in name.lower() else assumed[name]
    items = [size] * length
    return name, tuple(items) if "tuple" in text else items


def _failing_line(error: BaseException) -> str:
    """The text of the line that raised `error`."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return linecache.getline(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno) if traceback else ""
