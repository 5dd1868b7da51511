"""What the imports of a file refer to: dotted origins, and files of the repository, without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from profiler_kit.loading.program.names import (
    STAR,
    all_nodes,
    assignments,
    attributes_read,
    defined_names,
    dotted_name,
    last_name,
)
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.repository import MAX_LEVELS

_IMPORT_FUNCTIONS: Final = ("import_module", "__import__")


def computes_imports(source: str) -> bool:
    """Whether a text may import modules by a computed name."""
    return any(f"{name}(" in source for name in _IMPORT_FUNCTIONS)


@lru_cache(maxsize=64)
def computed_imports(tree: ast.AST) -> dict[str, frozenset[str]]:
    """The variables that hold a module whose name is computed, with the attributes that are read from them.

    ``module = importlib.import_module(args.model)``, ``module.get_model(10)``.
    """
    modules = {
        target.id
        for target, value in assignments(tree)
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and last_name(value.func) in _IMPORT_FUNCTIONS
    }
    return {module: frozenset(attributes_read(tree, module)) for module in modules}


def imported_origins(tree: ast.AST) -> dict[str, str]:
    """Local name -> dotted origin of every import below `tree`: ``{"nn": "torch.nn"}``."""
    origins: dict[str, str] = {}
    for node in all_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origins[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{module}.{alias.name}"
    return {**dict.fromkeys(computed_imports(tree), _IMPORT_FUNCTIONS[0]), **origins}


def origin_of(node: ast.AST, origins: Mapping[str, str]) -> str | None:
    """The dotted origin of a name or attribute: ``torch.nn.Linear`` for ``nn.Linear``. None for another expression."""
    text = dotted_name(node)
    if text is None:
        return None
    head, dot, tail = text.partition(".")
    return f"{origins.get(head, head)}{dot}{tail}"


def module_files(name: str, level: int, importer: Path) -> list[Path]:
    """The files that the module `name` may mean in an import of `importer`, the nearest first. `level` counts leading dots.

    An absolute import may start in each folder above the importer, and in its ``src``.
    """
    parents = list(importer.parents)
    folders = parents[: MAX_LEVELS + 1]
    bases = parents[level - 1 : level] if level else [*folders, *(folder / "src" for folder in folders)]
    relative = name.replace(".", "/")
    files = (file for base in bases for file in (base / f"{relative}.py", base / relative / "__init__.py"))
    return [file for file in files if file.is_file()]


def imported_files(node: ast.AST, importer: Path, root: Path) -> set[Path]:
    """The files of the repository that the import statement `node` of `importer` may import; empty for another node."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        names = {node.module or "", *(_submodule(node, alias.name) for alias in node.names if alias.name != STAR)}
    else:
        return set()
    level = node.level if isinstance(node, ast.ImportFrom) else 0
    return {file for name in names for file in module_files(name, level, importer) if file.is_relative_to(root)}


def files_imported_by(tree: ast.Module, path: Path | None, root: Path) -> set[Path]:
    """The files of the repository that the import statements of the file `path` may import."""
    return (
        {file for node in all_nodes(tree) for file in imported_files(node, path, root)} if path is not None else set()
    )


def _submodule(node: ast.ImportFrom, name: str) -> str:
    return f"{node.module}.{name}" if node.module else name


class TargetNames:
    """The names of a document that refer to the file `target` or to names in it."""

    def __init__(self, target: Path) -> None:
        self._target = target.resolve()
        self._trees: dict[Path, ast.Module | None] = {}
        self._files: dict[tuple[str, int, Path], Path | None] = {}
        self._exported: dict[tuple[Path, str | None], bool] = {}

    def modules(self, root: Path) -> frozenset[str]:
        """The last part of the names of the modules that give names of the target: its own, and packages that export it."""
        folders = (folder for folder in self._target.parents if folder.is_relative_to(root))
        packages = {folder.name for folder in folders if self._exports_target(folder / "__init__.py")}
        return frozenset({self._target.stem, *packages} - {"__init__"})

    def are_imported(self, tree: ast.Module, path: Path) -> bool:
        """Whether a document imports the target or one of its names."""
        aliases, imports_all = self.aliases(tree, path)
        return imports_all or any(name is not None for *_, name in aliases)

    def aliases(self, tree: ast.Module, path: Path) -> tuple[list[tuple[int, str, str | None]], bool]:
        """((line, dotted name in the document, name in the target) of imports, whether all names of the target are imported).

        The name in the target is "" for the module itself, and None for a name of another file.
        """
        names: list[tuple[int, str, str | None]] = []
        imports_all = False
        importer = path.resolve()
        for node in all_nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if self._exports_target(self._file(alias.name, 0, importer)):
                        names.append((node.lineno, alias.asname or alias.name, ""))
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == STAR:
                        imports_all |= self._leads_to_target(node, STAR, importer)
                    else:
                        names.append(
                            (node.lineno, alias.asname or alias.name, self._name_in_target(node, alias.name, importer))
                        )
        names += [(0, module, "") for module, read in computed_imports(tree).items() if read & self._defined()]
        return sorted(names, key=lambda entry: -entry[0]), imports_all

    def _exports_target(self, file: Path | None) -> bool:
        """Whether `file` is the target, or a package that exports names of it."""
        return file is not None and (file == self._target or self._exports(file, None))

    def _name_in_target(self, node: ast.ImportFrom, name: str, importer: Path) -> str | None:
        if self._file(_submodule(node, name), node.level, importer) == self._target:
            return ""
        return name if self._leads_to_target(node, name, importer) else None

    def _leads_to_target(self, node: ast.ImportFrom, name: str, importer: Path) -> bool:
        """Whether ``from ... import name`` reads a name of the target, directly or through packages that export it."""
        file = self._file(node.module or "", node.level, importer)
        return file is not None and (file == self._target or self._exports(file, name))

    def _exports(self, file: Path, name: str | None) -> bool:
        """Whether the package `file` exports `name` of the target; any name for None and for `STAR`."""
        key = (file, name)
        if key not in self._exported:
            self._exported[key] = False  # a circle of packages exports nothing
            self._exported[key] = file.name == "__init__.py" and any(
                self._is_of_target(node, alias.name if name is None or alias.name != STAR else name, file)
                for node in self._from_imports(file)
                for alias in node.names
                if name in (None, STAR, alias.asname or alias.name) or alias.name == STAR
            )
        return self._exported[key]

    def _is_of_target(self, node: ast.ImportFrom, name: str, package: Path) -> bool:
        file = self._file(node.module or "", node.level, package)
        if file == self._target:
            return name in (STAR, *self._defined())
        return file is not None and self._exports(file, name)

    def _tree(self, file: Path) -> ast.Module | None:
        if file not in self._trees:
            self._trees[file] = parsed(file)
        return self._trees[file]

    def _defined(self) -> frozenset[str]:
        tree = self._tree(self._target)
        return defined_names(tree) if tree is not None else frozenset()

    def _from_imports(self, file: Path) -> Iterator[ast.ImportFrom]:
        tree = self._tree(file)
        if tree is not None:
            yield from (node for node in tree.body if isinstance(node, ast.ImportFrom))

    def _file(self, name: str, level: int, importer: Path) -> Path | None:
        key = (name, level, importer.parent)
        if key not in self._files:
            self._files[key] = next((file.resolve() for file in module_files(name, level, importer)), None)
        return self._files[key]
