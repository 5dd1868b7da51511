"""The documents that may show how a model is built and used: its file, files that import it, docstrings and READMEs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from profiler_kit.loading.program.code_blocks import CodeBlock, docstring_blocks, markdown_blocks
from profiler_kit.loading.program.imports import TargetNames, computes_imports, files_imported_by
from profiler_kit.loading.program.names import all_nodes, calls_in
from profiler_kit.loading.program.reading import parsed, parsed_leniently
from profiler_kit.loading.program.repository import local_sources, repository_root

DocumentKind = Literal["target", "importer", "docstring", "readme"]

MAX_IMPORTERS: Final = 40
MAX_BUILDERS: Final = 4  # importers of the target whose own importers are read
_TRAINING: Final = (".backward(", "def training_step(")
MAX_READMES: Final = 4
MAX_README_BYTES: Final = 400_000
READMES: Final = ("README.md", "README.rst", "README.txt", "README", "readme.md", "Readme.md")
_TEST_FOLDERS: Final = frozenset({"test", "tests"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """Python text that belongs to a target. Lines of `tree` start at 1; `line_offset` lines of the file precede them."""

    tree: ast.Module
    text: str
    path: Path | None
    kind: DocumentKind
    line_offset: int = 0

    @property
    def is_test(self) -> bool:
        """Whether it is another file that tests the target: models, inputs and losses in it may be small and simple."""
        path = self.path
        if self.kind != "importer" or path is None:
            return False
        return path.stem.startswith("test_") or path.parent.name in _TEST_FOLDERS

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
    text = _text(file)
    target = Document(tree=tree, text=text, path=file, kind="target")
    root = repository_root(file)
    importers = tuple(_importers(file, root))
    programs = () if _trains(text) else tuple(_programs_around((target, *importers), root))
    return (target, *importers, *programs, *_docstrings(file, tree), *_readmes(file, tree, root))


def _trains(text: str) -> bool:
    return any(word in text for word in _TRAINING)


def _programs_around(documents: tuple[Document, ...], root: Path) -> Iterator[Document]:
    """Programs that train, and reach the target over one more file of the repository than `documents`.

    They import a file that builds the model, such as a table of models, or run its training. Or a file that builds the model
    imports them: a trainer.
    """
    known = {document.path for document in documents}
    over = (
        other
        for document in documents[1 : MAX_BUILDERS + 1]
        if document.path is not None
        for other in importers_of(document.path)
        if _trains(document.text) or _trains(other.text)
    )
    trainers = (
        Document(tree=tree, text=text, path=file, kind="importer")
        for document in documents
        for file in sorted(files_imported_by(document.tree, document.path, root))
        if file not in known and _trains(text := _text(file))
        if (tree := parsed_leniently(text)) is not None
    )
    for document in chain(over, trainers):
        if document.path not in known:
            known.add(document.path)
            yield document


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
        imports_by_name = computes_imports(source) and _names_module(file.stem, source, path, root)
        if is_own_package or not (imports_by_name or _may_import(source, path, mentions, names)):
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


def _names_module(module: str, source: str, path: Path, root: Path) -> bool:
    """Whether a program, or a line of a README that runs it, names a module that it imports by a computed name."""
    lines = (line for readme in _readme_files(path, root) for line in _text(readme).splitlines() if path.name in line)
    return any(re.search(rf"\b{re.escape(module)}\b", text) for text in (source, *lines))


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
    for readme in _readme_files(file, root):
        for block in (block for block in markdown_blocks(_text(readme)) if mentions.search(block.text)):
            yield from _document(block, readme, "readme", 0)


def _readme_files(file: Path, root: Path) -> Iterator[Path]:
    """The READMEs in the folders from that of `file` to `root`, at most `MAX_READMES`."""
    count = 0
    for folder in (file.parent, *file.parents):
        readme = next((folder / name for name in READMES if (folder / name).is_file()), None)
        if readme is not None and count < MAX_READMES and readme.stat().st_size <= MAX_README_BYTES:
            count += 1
            yield readme
        if folder == root:
            return


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _document(block: CodeBlock, path: Path, kind: DocumentKind, first_line: int) -> Iterator[Document]:
    tree = parsed(block.text)  # None for shell commands, output, or a fragment
    if tree is not None and calls_in(tree):
        yield Document(tree=tree, text=block.text, path=path, kind=kind, line_offset=first_line + block.line_offset)
