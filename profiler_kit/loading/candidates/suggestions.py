"""Files of the repository that define a model, for the hint of a target without one."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from profiler_kit.loading.candidates.classes import is_part_name
from profiler_kit.loading.program.definitions import root_classes
from profiler_kit.loading.program.imports import imported_files
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.repository import local_sources, repository_root

_MAX_FILES: Final = 40
_MODULE_CLASS: Final = re.compile(r"^class \w+\([^)]*\bModule\b[^)]*\):", re.MULTILINE)


def file_with_model(excluded: Path) -> Path | None:
    """The file of the repository that defines a model, relative to the working directory; None without one.

    The files that `excluded` imports, directly or through others, come before those that are near.
    """
    fallback: Path | None = None
    root = repository_root(excluded)
    for count, (path, text) in enumerate((*_imported_sources(excluded, root), *local_sources(excluded, root))):
        if count == _MAX_FILES:
            break
        if path == excluded or not _MODULE_CLASS.search(text):
            continue
        tree = parsed(text)
        roots = root_classes(tree) if tree is not None else ()
        if any(not is_part_name(name) for name in roots):
            return _relative(path)
        fallback = fallback or (path if roots else None)
    return _relative(fallback) if fallback is not None else None


def _imported_sources(file: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """The files that `file` imports and their texts, then those that these import."""
    level, visited = [file], {file}
    while level and len(visited) <= _MAX_FILES:
        deeper: list[Path] = []
        for importer in level:
            tree = parsed(importer)
            if tree is None:
                continue
            if importer != file:
                yield importer, importer.read_text(encoding="utf-8", errors="replace")
            for node in ast.walk(tree):
                imports = imported_files(node, importer, root) - visited
                visited |= imports
                deeper += sorted(imports)
        level = deeper


def _relative(path: Path) -> Path:
    return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path
