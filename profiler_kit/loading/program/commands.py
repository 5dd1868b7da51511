"""Command lines that the repository documents: in READMEs and shell scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from profiler_kit.loading.program.documents import READMES
from profiler_kit.loading.program.repository import repository_root

_MAX_SCRIPTS: Final = 40
_MAX_BYTES: Final = 100_000
_UNKNOWN: Final = re.compile(r"[$<>{}\[\]*]|\.\.\.|path/to", re.IGNORECASE)  # a reader has to fill these in


@lru_cache(maxsize=16)
def documented_words(script: Path) -> tuple[str, ...]:
    """The words after `script` in the first command of its repository that runs it; empty without one that is complete."""
    pattern = re.compile(rf"(?:^|[\s/]){re.escape(script.name)}[ \t]+([^\n|&;#`]+)", re.MULTILINE)
    for text in _texts(script):
        for match in pattern.finditer(text.replace("\\\n", " ")):
            try:
                words = tuple(shlex.split(match[1]))
            except ValueError:
                continue  # an open quotation mark: prose
            if words and words[0].startswith("-") and not _UNKNOWN.search(match[1]):
                return words
    return ()


def _texts(script: Path) -> Iterator[str]:
    root = repository_root(script)
    readmes = (folder / name for folder in dict.fromkeys((script.parent, root)) for name in READMES)
    shell = (path for depth in ("", "*/", "*/*/") for path in sorted(root.glob(f"{depth}*.sh")))
    for path in (*readmes, *islice(shell, _MAX_SCRIPTS)):
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            yield path.read_text(encoding="utf-8", errors="replace")
