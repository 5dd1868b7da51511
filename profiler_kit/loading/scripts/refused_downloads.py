"""Functions of the user that the guard stops while they get pretrained weights return empty weights instead."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import FunctionType
from typing import Any, Final, TypeVar

import torch

from profiler_kit.loading.scripts.side_effects import SideEffectError, SkippedWeights

_MAX_DOWNLOADS: Final = 4  # different functions that one model calls
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Download:
    """A `function` that gets weights, and the global names of its caller's file and its own that it is bound to."""

    function: FunctionType
    bindings: tuple[tuple[dict[str, Any], str], ...]


def without_downloads(call: Callable[[], _Result]) -> _Result:
    """What `call` returns, called again with empty weights for each function that the guard stopped on its way to weights.

    Raises:
        SideEffectError: it was stopped elsewhere.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(_MAX_DOWNLOADS):
            try:
                return call()
            except Exception as error:
                download = _stopped_download(error)
                if download is None:
                    raise
                stack.enter_context(_empty_weights(download))
        return call()


def _stopped_download(error: BaseException) -> _Download | None:
    """The function whose caller uses ``load_state_dict``, if the guard stopped it; None otherwise.

    The innermost such caller counts: a constructor that calls one gets no empty weights for its network.
    """
    chain = list(_chain(error))
    if not any(isinstance(cause, SideEffectError) for cause in chain):
        return None
    for cause in chain:  # a library may raise an error of its own, such as that of a connection
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        for caller, callee in reversed(list(pairwise(frames))):
            if "load_state_dict" in caller.f_code.co_names:
                return _bound((caller.f_globals, callee.f_globals), callee.f_code)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those during whose handling it was raised, also without ``from``."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _bound(spaces: tuple[dict[str, Any], ...], code: object) -> _Download | None:
    found = [
        (space, name, value)
        for space in spaces
        for name, value in space.items()
        if type(value) is FunctionType and value.__code__ is code
    ]
    return _Download(found[0][2], tuple((space, name) for space, name, _ in found)) if found else None


@contextlib.contextmanager
def _empty_weights(download: _Download) -> Iterator[None]:
    """Replace the function inside the block. ``torch.load`` passes its result on."""
    load = torch.load

    def skip(*args: object, **kwargs: object) -> object:
        name = f"{download.function.__name__}()"
        return torch.hub.load_state_dict_from_url(name)  # which the guard replaces, and announces

    def load_or_skip(f: Any, *args: Any, **kwargs: Any) -> Any:
        return f if isinstance(f, SkippedWeights) else load(f, *args, **kwargs)

    for space, name in download.bindings:
        space[name] = skip
    torch.load = load_or_skip
    try:
        yield
    finally:
        torch.load = load
        for space, name in download.bindings:
            space[name] = download.function
