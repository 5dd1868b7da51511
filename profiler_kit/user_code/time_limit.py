"""Time limits for user code, by the interval timer of the process. Limits can be nested."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

PROGRESS_AFTER_S: Final = 3.0  # before the first progress text, and between two
_REPEAT_S: Final = 1.0  # between two interrupts, for code that catches every exception


Stack = tuple[tuple[str, int], ...]  # (file, line) of each frame, the innermost first


class TimeLimitError(BaseException):
    """Raised inside user code when a limit is reached. A BaseException, so that ``except Exception`` does not catch it."""

    def __init__(self, limit: TimeLimit) -> None:
        super().__init__(f"still running after {limit.seconds:g} s")
        self.limit = limit


class TimeLimit:
    """An active limit. `stack` is the stack that it interrupted first."""

    def __init__(self, seconds: float, on_tick: Callable[[Stack], None] | None) -> None:
        now_s = time.monotonic()
        self.seconds = seconds
        self.deadline_s = now_s + seconds
        self.on_tick = on_tick
        self.next_tick_s = now_s + PROGRESS_AFTER_S
        self.stack: Stack = ()


_active: list[TimeLimit] = []


@contextmanager
def time_limit(seconds: float, on_tick: Callable[[Stack], None] | None = None) -> Iterator[TimeLimit]:
    """Raise TimeLimitError in the block after `seconds`; until then, call `on_tick` with the stack every few seconds.

    Works in the main thread only, where Python handles signals. A timer of other code continues afterwards; if it would
    expire earlier, nothing is limited.
    """
    limit = TimeLimit(seconds, on_tick)
    earlier_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    is_outermost = not _active
    if threading.current_thread() is not threading.main_thread() or (is_outermost and 0 < earlier_s <= seconds):
        yield limit
        return
    start_s = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _interrupt)
    _active.append(limit)
    _arm()
    modes = _get_current_function_mode_stack()
    try:
        yield limit
    except TimeLimitError:
        _restore_modes(modes)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _active.remove(limit)
        signal.signal(signal.SIGALRM, handler)
        if _active:
            _arm()
        elif earlier_s:
            signal.setitimer(signal.ITIMER_REAL, max(earlier_s - (time.monotonic() - start_s), 1e-3), interval_s)


def _restore_modes(modes: list[TorchFunctionMode]) -> None:
    """Make `modes` the active function modes: the interrupt may have come between entering and leaving one."""
    if _get_current_function_mode_stack() != modes:
        for _ in range(torch._C._len_torch_function_stack()):
            _pop_mode()
        for mode in modes:
            _push_mode(mode)


def _arm() -> None:
    due_s = min(min(limit.deadline_s, limit.next_tick_s if limit.on_tick else limit.deadline_s) for limit in _active)
    signal.setitimer(signal.ITIMER_REAL, max(due_s - time.monotonic(), 1e-3), _REPEAT_S)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    now_s = time.monotonic()
    for limit in _active:
        if now_s >= limit.deadline_s:
            limit.stack = limit.stack or _stack(frame)
            raise TimeLimitError(limit)
    for limit in _active:
        if limit.on_tick is not None and now_s >= limit.next_tick_s:
            limit.next_tick_s = now_s + PROGRESS_AFTER_S
            limit.on_tick(_stack(frame))
    _arm()


def _stack(frame: FrameType | None) -> Stack:
    lines = []
    while frame is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
