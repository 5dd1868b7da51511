"""What every JSON file of ours begins with: its kind and its schema number."""

from __future__ import annotations

from typing import ClassVar, Final

SCHEMA: Final = 1  # goes up where a name goes away or changes its meaning, in files of any kind
GIVE: Final = "give the report.json that analyze wrote"
REWRITE: Final = "the file was cut off or edited: write it again"


class Saved:
    """A record that can be a JSON file of its own, which begins with its `kind` and `schema`.

    Inside of another record they are not written.
    """

    __slots__ = ()

    kind: ClassVar[str]
    schema: ClassVar[int] = SCHEMA

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:  # `dataclass` makes a class with slots anew, without the keyword; then it has its kind already
            cls.kind = kind


def kind_words(kind: str) -> str:
    """A kind of file in words: ``a trace report``."""
    words = kind.replace("_", " ")
    return f"{'an' if words[:1] in 'aeiou' else 'a'} {words}"
