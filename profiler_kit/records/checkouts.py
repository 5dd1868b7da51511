"""A temporary checkout of another revision, and paths in it."""

from __future__ import annotations

import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A checkout of another revision in `folder`; `top` is the root of the repository's own working tree."""

    top: str
    folder: str

    def redirected(self, path: str) -> str:
        """The entry `path` of a search path, in this checkout if it is below `top`; installed packages stay where they are."""
        top = Path(self.top)
        full_path = Path(path).resolve() if path else Path.cwd()
        if not full_path.is_relative_to(top) or is_installed(full_path, top):
            return path
        return str(Path(self.folder) / full_path.relative_to(top))


def is_installed(path: Path, top: Path) -> bool:
    """Whether `path` belongs to a Python installation or its packages inside the checkout at `top` (``.venv``)."""
    folders = (
        Path(folder).resolve()
        for folder in {sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()}
    )
    return any(path.is_relative_to(folder) for folder in folders if folder.is_relative_to(top) and folder != top)
