"""Turns what the user's code raised, or did not finish, into a TargetError with its place."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from profiler_kit.errors import KitError, TargetError
from profiler_kit.process.supervision import ended_after, is_supervised

COUNT_TIMEOUT_S: Final = 600.0
_PACKAGE: Final = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def as_target_errors(target: str, timeout_s: float = COUNT_TIMEOUT_S) -> Iterator[None]:
    """Turn what the user's code raises inside the block into a TargetError, and a block that takes longer than `timeout_s`.

    Exceptions that this package raised itself pass through, unless user code has replaced what all code needs, such as a
    builtin function. That is restored before the error is described: in a process of the user what `InterpreterState` says.
    """
    from profiler_kit.user_code.boundary import user_boundary
    from profiler_kit.user_code.interpreter_state import InterpreterState
    from profiler_kit.user_code.locations import display_path, is_user_code, one_line_message
    from profiler_kit.user_code.process_settings import callers_modes_disabled
    from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

    state = InterpreterState(is_own_process=is_supervised())
    try:
        with callers_modes_disabled(), user_boundary(), ended_after(timeout_s), time_limit(timeout_s) as limit:
            yield
    except TimeLimitError as error:
        if error.limit is not limit:
            raise
        place = next((f"{display_path(file)}:{line}" for file, line in limit.stack if is_user_code(file)), target)
        raise TargetError(
            f"the model is still being loaded or counted after {timeout_s:g} s",
            where=place,
            hint="make the code at this line end, or raise --timeout",
        ) from error
    except (Exception, SystemExit) as error:
        changed = state.restore()
        failure = target_error(error, target)
        if failure is None:
            if isinstance(error, KitError) or not changed:
                raise
            failure = TargetError(
                f"the model's code changed {', '.join(changed[:3])}, and then {one_line_message(error)}",
                where=target,
                hint="leave the functions, modules and modes of Python and torch as they are",
            )
        raise failure from error
    finally:
        state.restore()


def target_error(error: BaseException, target: str) -> TargetError | None:
    """The TargetError for an exception that the user's code raised; None for one of this package or a KitError."""
    from profiler_kit.loading.scripts.side_effects import SideEffectError
    from profiler_kit.user_code.boundary import EscapedError
    from profiler_kit.user_code.locations import exit_message, is_out_of_memory, one_line_message, user_place

    if isinstance(error, KitError):
        return None
    if is_out_of_memory(error):
        return TargetError(
            f"out of memory while building or counting the model: {one_line_message(error)}",
            where=user_place(error) or target,
            hint="create tensors in the model's constructor or in get_model(), which run on meta; or use a smaller model",
        )
    if isinstance(error, SystemExit):
        message, hint = exit_message(error), "raise an exception instead of calling sys.exit()"
    elif (
        isinstance(error, (EscapedError, SideEffectError))
        or not isinstance(error, Exception)
        or _is_raised_by_user(error)
    ):
        message, hint = f"the model's code raised {one_line_message(error)}", "fix the code at this line"
    else:
        return None
    return TargetError(message, where=user_place(error) or target, hint=hint)


def _is_raised_by_user(error: BaseException) -> bool:
    """Whether user code is further inside the stack of `error` than this package: a property or a ``__repr__`` that failed."""
    from profiler_kit.user_code.locations import is_user_code

    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if is_user_code(file):
            return True
        if not file.startswith("<") and Path(file).is_relative_to(_PACKAGE):
            return False
    return False
