"""The documents that may show how a model is built and used: its file, files that import it, docstrings and READMEs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from profiler_kit.loading.program.code_blocks import CodeBlock, docstring_blocks, markdown_blocks
from profiler_kit.loading.program.imports import TargetNames
from profiler_kit.loading.program.names import all_nodes, calls_in
from profiler_kit.loading.program.reading import parsed, parsed_leniently
from profiler_kit.loading.program.repository import local_sources, repository_root

DocumentKind = Literal["target", "importer", "docstring", "readme"]

MAX_IMPORTERS: Final = 40
MAX_READMES: Final = 4
MAX_README_BYTES: Final = 400_000
READMES: Final = ("README.md", "README.rst", "README.txt", "README", "readme.md", "Readme.md")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """Python text that belongs to a target. Lines of `tree` start at 1; `line_offset` lines of the file precede them."""

    tree: ast.Module
    text: str
    path: Path | None
    kind: DocumentKind
    line_offset: int = 0

    def at(self, line: int) -> str:
        """The location of a line of `tree`: ``train.py:41`` or ``README.md:120``."""
        return f"{display_name(self.path)}:{line + self.line_offset}"


def display_name(path: Path | None) -> str:
    """`path` relative to the working directory if it is inside; ``<text>`` without a path."""
    if path is None:
        return "<text>"
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def find_documents(file: Path, tree: ast.Module) -> tuple[Document, ...]:
    """The documents of the target `file`: the file first, then importers, docstrings and READMEs of the same repository.

    At most `MAX_IMPORTERS` importers are read, the nearest first. Files that do not parse are left out.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    target = Document(tree=tree, text=text, path=file, kind="target")
    root = repository_root(file)
    return (target, *_importers(file, root), *_docstrings(file, tree), *_readmes(file, tree, root))


@lru_cache(maxsize=16)
def importers_of(file: Path) -> tuple[Document, ...]:
    """The files of the repository that import `file`, at most `MAX_IMPORTERS`, the nearest first."""
    return tuple(_importers(file, repository_root(file)))


def _importers(file: Path, root: Path) -> Iterator[Document]:
    names = TargetNames(file)
    words = "|".join(map(re.escape, sorted(names.modules(root) | {file.parent.name})))
    mentions = re.compile(rf"^[ \t]*(from|import)\b[^\n]*\b({words})\b", re.MULTILINE)
    count = 0
    for path, source in local_sources(file, root):
        if count == MAX_IMPORTERS:
            return
        is_own_package = path.name == "__init__.py" and path.parent in file.parents
        if is_own_package or not _may_import(source, path, mentions, names):
            continue
        importer = parsed_leniently(source)
        if importer is not None and names.are_imported(importer, path):
            count += 1
            yield Document(tree=importer, text=source, path=path, kind="importer")


def _may_import(source: str, path: Path, mentions: re.Pattern[str], names: TargetNames) -> bool:
    """Whether an import line of `source` can lead to the target. Other files may have a module of the same name."""
    for match in mentions.finditer(source):
        line = source[match.start() : source.find("\n", match.end()) % (len(source) + 1)].strip()
        tree = parsed(line)
        if tree is None or names.are_imported(tree, path):  # without a tree, it is a part of a longer statement
            return True
    return False


def _docstrings(file: Path, tree: ast.Module) -> Iterator[Document]:
    for node in all_nodes(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            for block in docstring_blocks(ast.get_docstring(node, clean=False) or ""):
                yield from _document(block, file, "docstring", node.body[0].lineno - 1)


def _readmes(file: Path, tree: ast.Module, root: Path) -> Iterator[Document]:
    names = [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    if not names:
        return
    mentions = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    count = 0
    for folder in (file.parent, *file.parents):
        readme = next((folder / name for name in READMES if (folder / name).is_file()), None)
        if readme is not None and count < MAX_READMES and readme.stat().st_size <= MAX_README_BYTES:
            count += 1
            blocks = markdown_blocks(readme.read_text(encoding="utf-8", errors="replace"))
            for block in (block for block in blocks if mentions.search(block.text)):
                yield from _document(block, readme, "readme", 0)
        if folder == root:
            return


def _document(block: CodeBlock, path: Path, kind: DocumentKind, first_line: int) -> Iterator[Document]:
    tree = parsed(block.text)  # None for shell commands, output, or a fragment
    if tree is not None and calls_in(tree):
        yield Document(tree=tree, text=block.text, path=path, kind=kind, line_offset=first_line + block.line_offset)
