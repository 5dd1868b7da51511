"""Command lines that the repository documents, in READMEs and shell scripts; and the configuration file of its programs."""

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
_CONFIGURATIONS: Final = ("config", "configs", "conf", "cfg", "cfgs", "options")
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_CONFIGURATION_FILES: Final = tuple(f"*config*{suffix}" for suffix in _SUFFIXES)
_UNKNOWN: Final = re.compile(r"[$<>{}\[\]*]|\.\.\.|path/to", re.IGNORECASE)  # a reader has to fill these in


@lru_cache(maxsize=16)
def documented_words(script: Path) -> tuple[str, ...]:
    """The words after `script` in the first command of its repository that runs it; empty without one that is complete."""
    pattern = re.compile(rf"(?:^|[\s/]){re.escape(script.name)}[ \t]+([^\n|&;#`]+)", re.MULTILINE)
    for text in command_texts(script.parent):
        for match in pattern.finditer(text.replace("\\\n", " ")):
            try:
                words = tuple(shlex.split(match[1]))
            except ValueError:
                continue  # an open quotation mark: prose
            if (
                words
                and words[0].startswith("-")
                and words[0] not in ("-h", "--help")
                and not _UNKNOWN.search(match[1])
            ):
                return words
    return ()


@lru_cache(maxsize=16)
def configuration_file(script: Path) -> str | None:
    """The only YAML or JSON file of configurations in the repository, or the only one that is named as the default."""
    root = repository_root(script)
    folders = dict.fromkeys(
        folder
        for depth in ("", "*/")
        for name in _CONFIGURATIONS
        for folder in sorted(root.glob(f"{depth}{name}"))
        if folder.is_dir()
    )
    near = [path for pattern in _CONFIGURATION_FILES for path in root.glob(pattern)]
    files = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in _SUFFIXES) or near
    chosen = [path for path in files if "default" in path.stem] if len(files) > 1 else files
    return str(chosen[0]) if len(chosen) == 1 else None


def command_texts(folder: Path) -> Iterator[str]:
    """The READMEs and shell scripts of the repository of `folder`, the READMEs in it first."""
    root = repository_root(folder / READMES[0])
    readmes = (folder / name for folder in dict.fromkeys((folder, root)) for name in READMES)
    shell = (path for depth in ("", "*/", "*/*/") for path in sorted(root.glob(f"{depth}*.sh")))
    for path in (*readmes, *islice(shell, _MAX_SCRIPTS)):
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            yield path.read_text(encoding="utf-8", errors="replace")
