"""What is ours inside a program that somebody else wrote: its errors are never those of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Call = Callable[[], Any]
P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """Runs functions of ours. The first error goes to `on_error`, and nothing of ours runs any more.

    Only an ``Exception`` is an error: ``SystemExit`` ends the program where it is to be ended.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self.is_closed = False

    def run(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of `action`; None after an error."""
        if self.is_closed:
            return None
        try:
            return action(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 whatever it is, it is not the program's
            self._fail(error)
            return None

    def around(self, action: Callable[[Call], Any], call: Call) -> Any:
        """The result of `call`, a call of the program, which ``action(call)`` makes. After an error of `action`, too."""
        if self.is_closed:
            return call()
        once = _Once(call)
        try:
            action(once)
        except Exception as error:
            if error is once.error:
                raise
            self._fail(error)
        return once.result()

    def hook(self, action: Callable[..., Any]) -> Callable[..., None]:
        """`action` as a hook without a result."""

        def run(*args: Any) -> None:
            self.run(action, *args)

        return run

    def _fail(self, error: Exception) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._on_error(error)


class _Once:
    """A call of the program that is made at most once."""

    __slots__ = ("_call", "_value", "error", "is_made")

    def __init__(self, call: Call) -> None:
        self._call, self._value, self.is_made = call, None, False
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        self.is_made = True
        try:
            self._value = self._call()
        except BaseException as error:
            self.error = error
            raise
        return self._value

    def result(self) -> Any:
        """The result of the call, which is made now if it was not."""
        if self.error is not None:
            raise self.error
        return self._value if self.is_made else self()


def raise_error(error: Exception) -> None:
    """What happens with an error where the caller is to have it."""
    raise error
