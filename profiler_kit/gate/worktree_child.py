"""Runs this profiler_kit in a worktree of the base: ``python worktree_child.py TOP WORKTREE count TARGET …``.

The program is the one that started it; the target, and all it imports from the repository, must be the base's. Both can
go wrong unseen: the base may hold an own copy of this package, and an editable install leads into the present checkout,
where the base would be compared with itself and every budget kept. So the search path is turned first, and what was
imported is looked at in the end.
"""

from __future__ import annotations

import os
import runpy
import site
import sys
import sysconfig
from pathlib import Path

FROM_PRESENT_CHECKOUT = 3


def moved(path: str, top: Path, worktree: Path) -> str:
    """`path` in the worktree where it lies in the checkout at `top`; installed packages stay where they are."""
    full = Path(path).resolve() if path else Path.cwd()
    if not full.is_relative_to(top) or _installed(full, top):
        return path
    return str(worktree / full.relative_to(top))


def strangers(top: Path, worktree: Path, ours: Path) -> list[str]:
    """The names of imported modules that came from the checkout at `top` instead of the worktree."""
    found = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name == "__main__":
            continue
        full = Path(file).resolve()
        at_home = full.is_relative_to(worktree) or full.is_relative_to(ours)
        if full.is_relative_to(top) and not at_home and not _installed(full, top):
            found.append(name)
    return found


def _installed(path: Path, top: Path) -> bool:
    """Whether `path` belongs to a Python installation or its packages inside the checkout (``.venv``)."""
    places = (
        Path(place).resolve()
        for place in {sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()}
    )
    return any(path.is_relative_to(place) for place in places if place.is_relative_to(top) and place != top)


def main(argv: list[str]) -> None:
    """Runs the command in `argv` after TOP and WORKTREE; ends in SystemExit with its status."""
    top, worktree = Path(argv[0]).resolve(), Path(argv[1]).resolve()
    ours = Path(__file__).resolve().parent.parent
    sys.path[0] = str(ours.parent)  # it was this file's folder
    import profiler_kit.errors  # noqa: F401  the package is found once and for all, whatever the path says next

    sys.path[0] = os.getcwd()  # noqa: PTH109  what ``python -m`` has there
    sys.path[1:] = [moved(path, top, worktree) for path in sys.path[1:]]
    sys.path[1:1] = [str(place) for place in (worktree, worktree / "src") if place.is_dir()]
    sys.argv = ["profiler_kit", *argv[2:]]
    try:
        runpy.run_module("profiler_kit", run_name="__main__")
    finally:
        found = strangers(top, worktree, ours)
        if found:
            sys.stderr.write(
                f"error: {found[0]} was imported from {top}, not from the base\n"
                "hint: the package is installed in a way that leads there; put its folder on PYTHONPATH instead\n"
            )
            raise SystemExit(FROM_PRESENT_CHECKOUT)


if __name__ == "__main__":
    main(sys.argv[1:])
