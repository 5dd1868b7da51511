"""Files of the repository that define a model, for the hint of a target without one."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Final

from profiler_kit.loading.candidates.classes import is_part_name
from profiler_kit.loading.scripts.repository import local_sources, repository_root
from profiler_kit.loading.syntax import root_classes

_MAX_FILES: Final = 40
_MODULE_CLASS: Final = re.compile(r"^class \w+\([^)]*\bModule\b[^)]*\):", re.MULTILINE)


def file_with_model(excluded: Path) -> Path | None:
    """The nearest file of the repository that defines a model, relative to the working directory; None without one."""
    fallback: Path | None = None
    for count, (path, text) in enumerate(local_sources(excluded, repository_root(excluded))):
        if count == _MAX_FILES:
            break
        if path == excluded or not _MODULE_CLASS.search(text):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue  # only for suggestions, so unreadable files are skipped
        classes = {
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and any(ast.unparse(base).split(".")[-1] == "Module" for base in node.bases)
        }
        roots = root_classes(tree, classes)
        if any(not is_part_name(name) for name in roots):
            return _relative(path)
        fallback = fallback or (path if roots else None)
    return _relative(fallback) if fallback is not None else None


def _relative(path: Path) -> Path:
    return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path
