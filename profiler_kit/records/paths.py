"""Module paths: display and nesting."""

from __future__ import annotations

from collections.abc import Container, Sequence


def shown_path(path: str) -> str:
    """The display text of `path`: the root's empty path becomes ``(root)``."""
    return path or "(root)"


def parent_path(path: str) -> str:
    """The path of the parent module; the root's parent is the root."""
    return path.rpartition(".")[0]


def innermost_module(paths: Sequence[str], module_paths: Container[str]) -> str:
    """The innermost module of `module_paths` that contains all of `paths` (at least one); the root if none does."""
    path = paths[0]
    while path and not (path in module_paths and all(each == path or each.startswith(path + ".") for each in paths)):
        path = parent_path(path)
    return path
