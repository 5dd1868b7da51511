"""The boundary around every call of user code: whatever happens inside leaves it as an Exception.

User code can raise what ``except Exception`` does not catch (a panic of a Rust library, GeneratorExit, its own
BaseException), end the process (``os._exit``), replace it (``os.execv``), or copy it (``os.fork``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from profiler_kit.user_code.time_limit import TimeLimitError

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_ENDINGS: Final = {  # `os` calls these in all its other functions
    **dict.fromkeys(("_exit", "abort", "execv", "execve", "kill", "killpg"), os),
    "raise_signal": signal,
}
_SENDERS: Final = ("kill", "killpg", "raise_signal")
_lock: Final = threading.Lock()
_originals: dict[str, Callable[..., Any]] = {}
_depth = 0


def error_text(error: BaseException) -> str:
    """The message of an exception; of a class whose message raises, a note of that in its place."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 the user's class
        return f"(its message is not available: {type(failure).__name__})"


class EscapedError(Exception):
    """User code raised `error`, which is not an Exception."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error_text(error))
        self.error = error


class ProcessEndError(SystemExit):
    """User code called a function that would end this process."""


@contextlib.contextmanager
def user_boundary() -> Iterator[None]:
    """Call user code inside the block. Raises EscapedError for anything that is not an Exception.

    SystemExit, TimeLimitError and the KeyboardInterrupt of a signal pass. Calls that would end or replace the process
    raise. A copy of the process that user code forked and that leaves the block ends without a word.
    """
    pid = os.getpid()
    _refuse_endings(pid)
    try:
        yield
    except (Exception, TimeLimitError):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and (
            _is_own(error.__traceback__) or not _is_own_handler(signal.SIGINT)
        ):
            raise  # of a signal
        if isinstance(error, SystemExit) and not isinstance(error, ProcessEndError):
            raise
        if isinstance(error, GeneratorExit) and _is_own(error.__traceback__):
            raise  # a generator around the block is closed
        raise EscapedError(error).with_traceback(error.__traceback__) from error.__cause__
    finally:
        if os.getpid() != pid:
            _originals["_exit"](0)
        _allow_endings()


def _is_own(trace: TracebackType | None) -> bool:
    """Whether this package raised the exception of `trace`."""
    if trace is None:
        return True
    while trace.tb_next is not None:
        trace = trace.tb_next
    return Path(trace.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE)


def _refuse_endings(pid: int) -> None:
    global _depth
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        for name, module in _ENDINGS.items():
            if name not in _originals:
                _originals[name] = getattr(module, name)
            setattr(module, name, _refusing(name, _originals[name], pid, threading.get_ident()))


def _allow_endings() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            for name, original in _originals.items():
                setattr(_ENDINGS[name], name, original)


def _refusing(name: str, original: Callable[..., Any], pid: int, thread: int) -> Callable[..., Any]:
    """`original`, which raises in the process `pid` if it would end the process. Children of the model may end.

    Other threads than `thread` end without a word.
    """

    def call(*arguments: Any, **keywords: Any) -> Any:
        if _depth and os.getpid() == pid and (name not in _SENDERS or _ends_this_process(name, arguments)):
            if threading.get_ident() != thread:
                raise SystemExit
            raise ProcessEndError(
                f"{_ENDINGS[name].__name__}.{name}({', '.join(map(repr, arguments))}) would end the process"
            )
        return original(*arguments, **keywords)

    call.__name__ = name
    return call


def _ends_this_process(name: str, arguments: tuple[Any, ...]) -> bool:
    if name == "raise_signal":
        arguments = (os.getpid(), *arguments)
    if len(arguments) != 2 or not all(isinstance(value, int) for value in arguments):
        return False
    receiver, number = arguments
    own = {os.getpgrp(), 0} if name == "killpg" else {os.getpid(), os.getppid(), 0, -1, -os.getpgrp()}
    if receiver not in own or number == 0:
        return False
    try:
        return signal.getsignal(number) is signal.SIG_DFL or _is_own_handler(number)  # also of SIGKILL and SIGSTOP
    except ValueError:
        return True


def _is_own_handler(number: int) -> bool:
    """Whether the signal ends the command by a handler of this package."""
    return number != signal.SIGALRM and str(getattr(signal.getsignal(number), "__module__", "")).startswith(
        _PACKAGE.name
    )
