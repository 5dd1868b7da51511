"""Placeholders for names that could not be bound: a missing package, a data set, a statement that failed."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from typing import Any, Final, NoReturn

_FRAMES: Final = 4  # inner ones of a failure: layers of torch around its code in C


class UnavailableError(Exception):
    """The user's code uses a name that could not be bound. `where` is the statement that binds it."""

    def __init__(self, name: str, reason: str, where: str, cause: BaseException | None = None) -> None:
        super().__init__(f"{name} is not available: {reason} ({where})")
        self.name, self.reason, self.where, self.cause = name, reason, where, cause


class Placeholder:
    """Has any attribute. Calling, subclassing, iterating or converting it raises the error that explains its absence."""

    __slots__ = ("_placeholder_label", "_placeholder_reason")

    def __init__(self, label: str, reason: UnavailableError) -> None:
        self._placeholder_label, self._placeholder_reason = label, reason

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)  # protocols: copy, pickle, inspect
        # annotations such as `Missing.Type[int] | None` build no model, so they pass
        return Placeholder(f"{self._placeholder_label}.{name}", self._placeholder_reason)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_placeholder_"):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<{self._placeholder_label}, not available>"

    def __getitem__(self, key: object) -> Placeholder:
        return self

    def __or__(self, other: object) -> Placeholder:
        return self

    __ror__ = __or__

    def _raise(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise reason_of(self)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """The substitute for Lightning's base class, which most models hardly use. Raises for other classes."""
        from profiler_kit.loading.scripts import lightning_base  # imports torch

        if self._placeholder_label.rpartition(".")[2] != lightning_base.NAME:
            self._raise()
        return (lightning_base.LightningModule,)

    __call__ = __iter__ = __next__ = __len__ = __bool__ = __instancecheck__ = __subclasscheck__ = _raise
    __enter__ = __exit__ = __contains__ = __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = _raise
    __floordiv__ = __rfloordiv__ = __mod__ = __pow__ = __neg__ = __setitem__ = _raise


def reason_of(placeholder: Placeholder) -> Exception:
    """The exception that a use of `placeholder` raises: a ModuleNotFoundError for a missing package."""
    reason = placeholder._placeholder_reason
    if isinstance(reason.cause, ModuleNotFoundError):
        error = ModuleNotFoundError(str(reason.cause), name=reason.cause.name, path=reason.cause.path)
        error.__cause__ = reason
        return error
    return reason


def label_of(placeholder: Placeholder) -> str:
    """The last name of what should give the value: ``vocab_size`` of ``data.vocab_size``."""
    names: list[str] = re.findall(r"[A-Za-z_]\w*", placeholder._placeholder_label)
    return names[-1] if names else ""


def placeholder_error(placeholder: Placeholder) -> UnavailableError:
    """The error that explains why the value of `placeholder` is missing."""
    return placeholder._placeholder_reason


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and the exceptions that caused it; for one that a placeholder met, why the placeholder has no value."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        if isinstance(cause, UnavailableError) and cause.cause is not None:
            cause = cause.cause
        elif cause.__cause__ is None and isinstance(cause, (TypeError, ValueError, RuntimeError)):
            placeholder = _placeholder_in(cause)
            cause = placeholder_error(placeholder) if placeholder is not None else None
        else:
            cause = cause.__cause__


def missing_package(error: BaseException) -> UnavailableError | ModuleNotFoundError | None:
    """The cause of `error` that names a package which is not installed; None for another error."""
    unavailable = [cause for cause in causes(error) if isinstance(cause, (UnavailableError, ModuleNotFoundError))]
    return unavailable[0] if any(isinstance(cause, ModuleNotFoundError) for cause in unavailable) else None


def _placeholder_in(error: BaseException) -> Placeholder | None:
    """The placeholder in the lines that raised `error`: code of C, such as a constructor of tensors, took it for a value."""
    for frame, line in list(traceback.walk_tb(error.__traceback__))[: -_FRAMES - 1 : -1]:
        names = re.findall(r"\w+", linecache.getline(frame.f_code.co_filename, line))
        for value in (frame.f_locals.get(name, frame.f_globals.get(name)) for name in names):
            placeholder = next(_placeholders(value), None)
            if placeholder is not None:
                return placeholder
    return None


def _placeholders(value: object) -> Iterator[Placeholder]:
    if type(value) is Placeholder:
        yield value
    for item in value if isinstance(value, (tuple, list)) else ():
        yield from _placeholders(item)
