"""The repository around a file: its root, its Python files, and which of them import which."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from profiler_kit.loading.program.names import STAR, bound_names
from profiler_kit.loading.program.reading import parsed

_ROOT_FILES: Final = (
    "setup.py",
    "pyproject.toml",
    "setup.cfg",
    "requirements.txt",
    "LICENSE",
    "README.md",
    "README.rst",
    "README",
)
_SKIPPED_FOLDERS: Final = {
    "node_modules",
    "site-packages",
    "__pycache__",
    "build",
    "dist",
    "venv",
    "env",
    "wandb",
    "outputs",
}
MAX_LEVELS: Final = 5  # folders above a file that can be the root of its repository
MAX_FILES: Final = 400
MAX_FILE_BYTES: Final = 200_000
MAX_TOTAL_BYTES: Final = 6_000_000


@lru_cache(maxsize=256)
def repository_root(file: Path) -> Path:
    """The folder with ``.git`` above `file`; otherwise the highest folder with a README, a license or a ``setup.py``.

    Without any of them, the folder of the file's package. The home folder and the root of the file system never count.
    """
    root = file.parent
    while (root / "__init__.py").is_file() and root.parent != root:
        root = root.parent
    limits = {Path.home(), Path(file.anchor)}
    for folder in list(file.parents)[: MAX_LEVELS + 1]:
        if folder in limits:
            break
        if (folder / ".git").exists():
            return folder
        if any((folder / name).is_file() for name in _ROOT_FILES) and root.is_relative_to(folder):
            root = folder
    return root


def local_sources(file: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """The Python files of the repository and their texts, those nearest to `file` first; a bounded number and size."""
    count = total = 0
    visited: set[Path] = set()
    for folder in (file.parent, *file.parents):
        if not folder.is_relative_to(root):
            return
        for path in _python_files(folder, visited):
            size = path.stat().st_size
            if path == file or size > MAX_FILE_BYTES:
                continue
            count, total = count + 1, total + size
            if count > MAX_FILES or total > MAX_TOTAL_BYTES:
                return
            try:
                yield path, path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # not readable by this user


def _python_files(folder: Path, visited: set[Path]) -> Iterator[Path]:
    """The Python files of `folder` and its subfolders that are not in `visited`, in a fixed order, the nearest first."""
    level = [folder]
    while level:
        deeper: list[Path] = []
        for current in level:
            if current in visited:
                continue
            visited.add(current)
            try:
                entries = sorted(os.scandir(current), key=lambda entry: entry.name)
            except OSError:
                continue  # not readable by this user
            for entry in entries:
                if entry.name.endswith(".py") and entry.is_file():
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False) and _is_source_folder(Path(entry.path)):
                    deeper.append(Path(entry.path))
        level = deeper


def _is_source_folder(folder: Path) -> bool:
    return (
        not folder.name.startswith(".") and folder.name not in _SKIPPED_FOLDERS and not (folder / "pyvenv.cfg").exists()
    )


def defined_names(tree: ast.Module) -> frozenset[str]:
    """The names that a file binds at its top level."""
    return frozenset(name for statement in tree.body for name in bound_names(statement))


def reexporting_files(file: Path, root: Path) -> frozenset[Path]:
    """`file`, and the ``__init__.py`` files of its packages that import from it."""
    files = {file}
    for folder in file.parents:
        init = folder / "__init__.py"
        if not init.is_file() or not folder.is_relative_to(root):
            break
        tree = parsed(init)
        if tree is not None and any(imported_files(node, init, root) & files for node in ast.walk(tree)):
            files.add(init)
    return frozenset(files)


def imported_files(node: ast.AST, importer: Path, root: Path) -> set[Path]:
    """The files of the repository that the import statement `node` of `importer` imports; empty for another node."""
    if isinstance(node, ast.Import):
        return {path for alias in node.names for path in _module_files(alias.name, _bases(importer, root))}
    if not isinstance(node, ast.ImportFrom):
        return set()
    if node.level:
        parents = list(importer.parents)
        if node.level > len(parents):
            return set()
        bases = [parents[node.level - 1]]
    else:
        bases = _bases(importer, root)
    files = _module_files(node.module, bases) if node.module else {base / "__init__.py" for base in bases}
    for alias in node.names:
        if alias.name != STAR:
            files |= _module_files(f"{node.module}.{alias.name}" if node.module else alias.name, bases)
    return files


def _bases(importer: Path, root: Path) -> list[Path]:
    """The folders where an absolute import of `importer` may start."""
    return [folder for folder in importer.parents if folder.is_relative_to(root)] + [root / "src"]


def _module_files(name: str, bases: list[Path]) -> set[Path]:
    relative = name.replace(".", "/")
    candidates = [base / f"{relative}.py" for base in bases] + [base / relative / "__init__.py" for base in bases]
    return {path for path in candidates if path.is_file()}


def imports_target(
    tree: ast.Module, importer: Path, targets: frozenset[Path], names: frozenset[str], root: Path
) -> bool:
    """Whether `importer` imports one of `names` from the files `targets`, or one of these files as a module."""
    modules = module_words(targets)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or not modules & _words(node):
            continue  # without a look at the file system
        if not imported_files(node, importer, root) & targets:
            continue
        if isinstance(node, ast.Import):
            return True
        if any(alias.name in names | modules or alias.name == STAR for alias in node.names):
            return True
    return False


def module_words(files: frozenset[Path]) -> frozenset[str]:
    """The last part of the module names of `files`."""
    return frozenset(path.parent.name if path.name == "__init__.py" else path.stem for path in files)


def _words(node: ast.Import | ast.ImportFrom) -> set[str]:
    words = {part for alias in node.names for part in alias.name.split(".")}
    if isinstance(node, ast.ImportFrom):
        words.update((node.module or "").split("."))
    return words
