"""Objects that programs put into ``sys.modules`` and into modules, and that answer in ways which no reader expects."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock


class _Panic(BaseException):
    """As the panic of an extension in another language."""


def _answering(answer: Callable[[str], Any]) -> ModuleType:
    """A module whose ``__getattr__`` answers every name."""
    module = ModuleType("answering")
    for name in list(vars(module)):
        if name != "__name__":
            del vars(module)[name]
    vars(module)["__getattr__"] = answer
    return module


def _raising(error: BaseException) -> Callable[[str], Any]:
    def answer(name: str) -> Any:
        raise error

    return answer


class _Changing(ModuleType):
    """Imports, and so changes ``sys.modules``, whenever an attribute is read."""

    count = 0

    def __getattribute__(self, name: str) -> Any:
        _Changing.count += 1
        sys.modules[f"_made_by_a_read_{_Changing.count}"] = ModuleType("made")
        sys.modules.pop(f"_made_by_a_read_{_Changing.count - 3}", None)
        return super().__getattribute__(name)


class _RefusingModule(ModuleType):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


class _Refusing:
    """As the proxy of a request outside of a request: every read fails, also that of its class."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} outside of a context")

    def __call__(self) -> None:
        raise RuntimeError("not now")

    __bool__ = __eq__ = __hash__ = __iter__ = __len__ = __repr__ = __str__ = __call__  # type: ignore[assignment]


class _Everything:
    """Answers every name with itself."""

    def __getattr__(self, name: str) -> _Everything:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> _Everything:
        return self


class _WrongKinds:
    """Has the usual attributes with unusual kinds of values."""

    def __init__(self) -> None:
        for number, name in enumerate(_USUAL_NAMES):
            object.__setattr__(self, name, number)

    def __call__(self) -> None:
        """Return nothing."""


_USUAL_NAMES = (
    "__file__", "__path__", "__spec__", "__loader__", "__version__", "__name__", "__qualname__", "__module__", "__doc__",
    "__code__", "__globals__", "__wrapped__", "__self__", "__signature__", "__annotations__", "_fields", "dataset", "shape",
)  # fmt: skip


def hostile_objects() -> dict[str, Any]:
    """New hostile objects by name."""
    return {
        "zero": _answering(lambda name: 0),
        "text": _answering(lambda name: "text"),
        "mocks": _answering(lambda name: mock.MagicMock()),
        "runtime_error": _answering(_raising(RuntimeError("no attribute of this module can be read"))),
        "import_error": _answering(_raising(ImportError("an optional package is missing"))),
        "exit": _answering(_raising(SystemExit(3))),
        "panic": _answering(_raising(_Panic("unwrap on None"))),
        "refusing_module": _RefusingModule("refusing"),
        "changing_module": _Changing("changing"),
        "refusing": _Refusing(),
        "everything": _Everything(),
        "wrong_kinds": _WrongKinds(),
        "none": None,
        "number": 4,
        "mock": mock.MagicMock(),
        "mock_of_a_module": mock.MagicMock(spec=ModuleType),
        "class": type("Plain", (), {"__file__": property(lambda self: 1 / 0)}),
    }
