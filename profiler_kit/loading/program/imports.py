"""Which names of a document refer to the target's file, resolved over the files of the repository without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MAX_PARENTS: Final = 5  # folders above a document where an absolute import may start
_MAX_CHAIN: Final = 4  # packages through which a name is exported


class TargetNames:
    """The names of a document that refer to the file `target` or to names in it."""

    def __init__(self, target: Path) -> None:
        self._target = target.resolve()
        self._trees: dict[Path, ast.Module | None] = {}

    def aliases(self, tree: ast.Module, path: Path | None) -> tuple[list[tuple[int, str, str | None]], bool]:
        """((line, dotted name in the document, name in the target) of imports, whether all names of the target are imported).

        The name in the target is "" for the module itself, and None for a name of another file.
        """
        names: list[tuple[int, str, str | None]] = []
        imports_all = False
        folder = path.parent if path is not None else self._target.parent
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if self._file(alias.name, 0, folder) == self._target:
                        names.append((node.lineno, alias.asname or alias.name, ""))
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*":
                        imports_all |= self._leads_to_target(node, "*", folder)
                    else:
                        names.append(
                            (node.lineno, alias.asname or alias.name, self._name_in_target(node, alias.name, folder))
                        )
        return sorted(names, key=lambda entry: -entry[0]), imports_all

    def _name_in_target(self, node: ast.ImportFrom, name: str, folder: Path) -> str | None:
        if self._submodule(node, name, folder) == self._target:
            return ""
        return name if self._leads_to_target(node, name, folder) else None

    def _leads_to_target(self, node: ast.ImportFrom, name: str, folder: Path, depth: int = 0) -> bool:
        """Whether ``from ... import name`` reads a name of the target, directly or through packages that export it."""
        file = self._file(node.module or "", node.level, folder)
        if file is None or depth > _MAX_CHAIN:
            return False
        if file == self._target:
            return True
        if file.name != "__init__.py":
            return False
        return any(
            (name == "*" or alias.name == "*" or (alias.asname or alias.name) == name)
            and self._leads_to_target(inner, alias.name, file.parent, depth + 1)
            for inner in self._from_imports(file)
            for alias in inner.names
        )

    def _from_imports(self, file: Path) -> Iterator[ast.ImportFrom]:
        if file not in self._trees:
            try:
                self._trees[file] = ast.parse(file.read_bytes())
            except (OSError, ValueError, SyntaxError):
                self._trees[file] = None  # exports nothing that could be resolved
        tree = self._trees[file]
        if tree is not None:
            yield from (node for node in tree.body if isinstance(node, ast.ImportFrom))

    def _submodule(self, node: ast.ImportFrom, name: str, folder: Path) -> Path | None:
        return self._file(f"{node.module}.{name}" if node.module else name, node.level, folder)

    def _file(self, module: str, level: int, folder: Path) -> Path | None:
        """The file that ``import module`` of a file in `folder` means; None for modules outside of the repository."""
        parts = module.split(".") if module else []
        if level:
            bases = [folder if level == 1 else folder.resolve().parents[min(level, len(folder.resolve().parents)) - 2]]
        else:
            folders = [folder.resolve(), *list(folder.resolve().parents)[:_MAX_PARENTS]]
            bases = [*folders, *(parent / "src" for parent in folders)]
        for base in bases:
            location = base.joinpath(*parts)
            for file in (location.with_suffix(".py") if parts else None, location / "__init__.py"):
                if file is not None and file.is_file():
                    return file.resolve()
        return None
