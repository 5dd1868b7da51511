"""The first keys of every JSON file: its kind and its schema number."""

from __future__ import annotations

from typing import ClassVar, Final

SCHEMA: Final = 1  # raised when a name in any kind of file is removed or changes its meaning
HINT_GIVE_REPORT: Final = "give the report.json that analyze wrote"
HINT_REWRITE_FILE: Final = "the file is incomplete or was edited: write it again"


class Saved:
    """A record that can be a JSON file. The file begins with `kind` and `schema`.

    A record nested in another one is written without them.
    """

    __slots__ = ()

    kind: ClassVar[str]
    schema: ClassVar[int] = SCHEMA

    def __init_subclass__(cls, kind: str = "") -> None:
        if (
            kind
        ):  # `dataclass(slots=True)` creates the class a second time, without the keyword; `kind` is already set then
            cls.kind = kind


def kind_words(kind: str) -> str:
    """The kind of a file with its article: ``a trace report``."""
    words = kind.replace("_", " ")
    return f"{'an' if words[:1] in 'aeiou' else 'a'} {words}"
