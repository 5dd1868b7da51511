"""Parameters of classes and functions that build models."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from profiler_kit.loading.candidates.forwarding import forwarded_parameters


class MissingArgumentsError(Exception):
    """Some required parameters have no value. `reason` and `error`: why an expression in a document has none, if there is one."""

    def __init__(self, names: tuple[str, ...], reason: str | None = None, error: BaseException | None = None) -> None:
        super().__init__(", ".join(names))
        self.names, self.reason, self.error = names, reason, error
        self.__cause__ = error


def parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of `factory`, with those that it needs for its ``**kwargs``; empty if its signature is unknown."""
    try:
        own = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return []
    last = [p for p in own.values() if p.kind is p.VAR_KEYWORD]
    forwarded = forwarded_parameters(factory, own) if last else []
    return [*(p for p in own.values() if p not in last), *forwarded, *last]


def missing_arguments(factory: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of `factory` without a default that are missing from `arguments`."""
    return tuple(
        p.name
        for p in parameters(factory)
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in arguments
    )


def named_parameters(factory: Callable[..., Any]) -> tuple[list[str], bool]:
    """(names that can be passed as keywords, whether any keyword is accepted)."""
    signature = parameters(factory)
    names = [p.name for p in signature if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return names, not signature or any(p.kind is p.VAR_KEYWORD for p in signature)


def accepts(factory: Callable[..., Any] | None, arguments: Mapping[str, Any]) -> bool:
    """Whether `factory` has a parameter for each of `arguments`. A factory that is not known yet accepts them."""
    if factory is None or not arguments:
        return True
    names, takes_any = named_parameters(factory)
    return takes_any or set(arguments) <= set(names)
