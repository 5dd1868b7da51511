"""Module paths: which module holds which."""

from __future__ import annotations

from collections.abc import Container, Sequence


def shown_path(path: str) -> str:
    """`path` as people see it. The root's is empty, so they see ``(root)``."""
    return path or "(root)"


def parent(path: str) -> str:
    """The path of the module that holds the one at `path`; the root holds itself."""
    return path.rpartition(".")[0]


def enclosing(paths: Sequence[str], known: Container[str]) -> str:
    """The innermost module of `known` that encloses all of `paths`, of which there is one at least; the root where none does."""
    path = paths[0]
    while path and not (path in known and all(each == path or each.startswith(path + ".") for each in paths)):
        path = parent(path)
    return path
