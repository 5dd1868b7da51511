"""Progress texts of loading, for a caller that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[str], None]] = []


@contextmanager
def progress_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Send the progress texts of loading inside the block to `listener`."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report_progress(text: str) -> None:
    """Send `text` to the innermost listener."""
    if _listeners:
        _listeners[-1](text)
