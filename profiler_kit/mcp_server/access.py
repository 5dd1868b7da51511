"""Which files a request may name: those in the folders that the user gave to the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.errors import UsageError

_SEPARATORS: Final = re.compile("[:=]")  # of a path and a name, a revision and a path, a key and a value
_READ_IN_FOLDERS: Final = (
    "*.json*",
    "traces",
)  # names that commands read in a folder, beside the program text of targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The folders whose files a request may name. Relative paths start at the first one, where commands run."""

    roots: tuple[Path, ...]

    def require(self, text: str) -> None:
        """Raise UsageError if `text` names a path outside of the folders, whole or in a part: ``net.py:Net``, ``ids=ids.py:f``.

        A link names the file that it points to. So do the links in a folder that have the name of a trace or a report.
        """
        for part in filter(None, dict.fromkeys((text, *_SEPARATORS.split(text)))):
            if not self._contains(part):
                raise UsageError(
                    "this path is outside of the folders that the server may read",
                    where=part,
                    hint=f"name a file in {self.roots[0]}, or add --root FOLDER to the command that starts the server",
                )

    def path(self, text: str) -> Path:
        """The path that `text` is for a command."""
        path = Path(text)
        return self.roots[0] / (path.expanduser() if text.startswith("~") else path)

    def _contains(self, text: str) -> bool:
        """Whether the path `text`, and what it links to, are in one of the folders. True for a text that can be no path."""
        try:
            path = self.path(text)
            return self._is_inside(path) and (not path.is_dir() or all(map(self._is_inside, _links(path))))
        except (OSError, ValueError, RuntimeError):  # too long, a null character, no such home; a circle of links
            return True

    def _is_inside(self, path: Path) -> bool:
        return any(path.resolve().is_relative_to(root) for root in self.roots)


def _links(folder: Path) -> Iterator[Path]:
    return (path for pattern in _READ_IN_FOLDERS for path in folder.rglob(pattern) if path.is_symlink())
