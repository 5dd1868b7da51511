"""Which program trains the model of a target: the one order that its class, arguments, inputs, batch, loss and optimizer follow.

What the first program does not state comes from the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from profiler_kit.loading.program.commands import command_texts
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.model_use import trains
from profiler_kit.loading.vocabulary import name_words

_STARTED: Final = re.compile(r"\b(?:python[\d.]*|torchrun|launch)[ \t][^\n|&;#]*?([\w-]+)\.py\b")
_NAMES: Final = frozenset({"train", "training", "trainer", "pretrain", "main"})
# A documented program, one that its name says to train, one that trains, another one, a trial in the model's own file, examples
# in texts, and a test.
DOCUMENTED, NAMED, TRAINING, OTHER, TRIAL, EXAMPLE, TEST = range(7)


def program_rank(document: Document) -> int:
    """The place of the program of `document` in the order in which programs are asked."""
    path = document.path
    if document.kind not in ("target", "importer") or path is None:
        return EXAMPLE
    if document.is_test:
        return TEST
    is_named = not _NAMES.isdisjoint(name_words(path.stem))
    if trains(document.tree) or is_named:
        is_documented = path.stem in documented_programs(path.parent)
        return DOCUMENTED if is_documented else NAMED if is_named else TRAINING
    return TRIAL if document.kind == "target" else OTHER


def is_program(document: Document) -> bool:
    """Whether `document` trains a model, or is named so."""
    return program_rank(document) <= TRAINING


def in_program_order(documents: Iterable[Document], first: Document | None = None) -> list[Document]:
    """`documents` in the order in which they are asked: `first`, which builds the model, if it is a program that trains it."""

    def key(document: Document) -> tuple[bool, int, bool]:
        rank = program_rank(document)
        return document is not first or rank > TRAINING, rank, document is not first

    return sorted(documents, key=key)


@lru_cache(maxsize=16)
def documented_programs(folder: Path) -> frozenset[str]:
    """The names of the scripts that command lines in READMEs and shell scripts of the repository start, without ``.py``."""
    texts = (text.replace("\\\n", " ") for text in command_texts(folder))
    return frozenset(match[1] for text in texts for match in _STARTED.finditer(text))
