"""The surroundings of sliced user code, in one context: imports, arguments, and no side effects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from profiler_kit.loading.scripts.arguments import default_arguments
from profiler_kit.loading.scripts.importing import ImportSession, sliced_imports
from profiler_kit.loading.scripts.side_effects import no_side_effects
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.interpreter_state import remember_imports


@contextlib.contextmanager
def isolated(
    session: ImportSession | None, note: Callable[[str], None], *, allow_effects: bool = False
) -> Iterator[None]:
    """Import user code by its slice inside the block, and stop its side effects. Without a session, neither.

    Inside is user code, as for `user_boundary`.

    `note` receives a text for weights that were not downloaded and for arguments without a default.
    """
    if session is None:
        with user_boundary():
            yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(sliced_imports(session))
        stack.enter_context(default_arguments(note))
        if not allow_effects:
            stack.enter_context(no_side_effects(note))
        try:
            with user_boundary():
                yield
        finally:
            remember_imports(session.loaded)
