"""Run this profiler_kit in a worktree of the base: ``python worktree_child.py TOP WORKTREE count TARGET …``.

The program must be the parent's; the target and its imports from the repository must be the base's. Both could go wrong
silently: the base may contain its own copy of this package, and an editable install points into the current checkout, so
that the change would be compared with itself and keep every budget. So the child first redirects the search path, and in
the end checks the imported modules.
"""

from __future__ import annotations

import os
import runpy
import site
import sys
import sysconfig
from pathlib import Path

FROM_CURRENT_CHECKOUT = 3


def path_in_worktree(path: str, top: Path, worktree: Path) -> str:
    """`path` redirected from the checkout at `top` into the worktree; paths of installed packages stay unchanged."""
    full_path = Path(path).resolve() if path else Path.cwd()
    if not full_path.is_relative_to(top) or _is_installed(full_path, top):
        return path
    return str(worktree / full_path.relative_to(top))


def modules_outside_worktree(top: Path, worktree: Path, package: Path) -> list[str]:
    """The names of modules imported from the checkout at `top` instead of the worktree. `package`: this package's folder."""
    names = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name == "__main__":
            continue
        full_path = Path(file).resolve()
        is_expected = full_path.is_relative_to(worktree) or full_path.is_relative_to(package)
        if full_path.is_relative_to(top) and not is_expected and not _is_installed(full_path, top):
            names.append(name)
    return names


def _is_installed(path: Path, top: Path) -> bool:
    """Whether `path` belongs to a Python installation or its packages inside the checkout (``.venv``)."""
    folders = (
        Path(folder).resolve()
        for folder in {sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()}
    )
    return any(path.is_relative_to(folder) for folder in folders if folder.is_relative_to(top) and folder != top)


def main(argv: list[str]) -> None:
    """Run the command that follows TOP and WORKTREE in `argv`; always raises SystemExit with its status."""
    top, worktree = Path(argv[0]).resolve(), Path(argv[1]).resolve()
    package = Path(__file__).resolve().parent.parent
    sys.path[0] = str(package.parent)  # Python set it to this file's folder
    import profiler_kit.errors  # noqa: F401  imported now, so that later changes of the path do not affect the package

    sys.path[0] = os.getcwd()  # noqa: PTH109  as ``python -m`` sets it
    sys.path[1:] = [path_in_worktree(path, top, worktree) for path in sys.path[1:]]
    sys.path[1:1] = [str(folder) for folder in (worktree, worktree / "src") if folder.is_dir()]
    sys.argv = ["profiler_kit", *argv[2:]]
    try:
        runpy.run_module("profiler_kit", run_name="__main__")
    finally:
        names = modules_outside_worktree(top, worktree, package)
        if names:
            sys.stderr.write(
                f"error: {names[0]} was imported from {top}, not from the base\n"
                "hint: an installation of the package points there (pip install -e); put its folder on PYTHONPATH instead\n"
            )
            raise SystemExit(FROM_CURRENT_CHECKOUT)


if __name__ == "__main__":
    main(sys.argv[1:])
