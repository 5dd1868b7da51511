"""Run this profiler_kit in a worktree of the base: ``python worktree_child.py PARENT TOP WORKTREE count TARGET …``.

The program must be the parent's; the target and its imports from the repository must be the base's. Both could go wrong
silently: the base may contain its own copy of this package, and an editable install points into the current checkout, so
that the change would be compared with itself and keep every budget. So the child first redirects the search path, and in
the end checks the imported modules. It ends with the process PARENT.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def modules_outside_worktree(top: Path, worktree: Path, package: Path) -> list[str]:
    """The names of modules imported from the checkout at `top` instead of the worktree. `package`: this package's folder."""
    from profiler_kit.foreign import attribute_of
    from profiler_kit.records.target import is_installed

    names = []
    for name, module in list(sys.modules.items()):
        file = attribute_of(module, "__file__", str)
        if file is None or name == "__main__":
            continue
        full_path = Path(file).resolve()
        is_expected = full_path.is_relative_to(worktree) or full_path.is_relative_to(package)
        if full_path.is_relative_to(top) and not is_expected and not is_installed(full_path, top):
            names.append(name)
    return sorted(names)


def main(argv: list[str]) -> None:
    """Run the command that follows PARENT, TOP and WORKTREE in `argv`; always raises SystemExit with its status."""
    top, worktree = Path(argv[1]).resolve(), Path(argv[2]).resolve()
    package = Path(__file__).resolve().parent.parent
    sys.path[0] = str(package.parent)  # Python set it to this file's folder
    # now, so that later changes of the path do not affect the package
    from profiler_kit.errors import KitError
    from profiler_kit.process import exit_with_parent, supervision
    from profiler_kit.records.target import Checkout

    exit_with_parent(int(argv[0]))

    def require_own_modules() -> None:
        names = modules_outside_worktree(top, worktree, package)
        if names:
            raise KitError(
                f"{names[0]} was imported from {top}, not from the base",
                hint="an editable installation of the package points there; put its folder on PYTHONPATH instead",
            )

    checkout = Checkout(top=str(top), folder=str(worktree))
    sys.path[0] = os.getcwd()  # noqa: PTH109  as ``python -m`` sets it
    sys.path[1:] = [checkout.redirected(path) for path in sys.path[1:]]
    sys.path[1:1] = [str(folder) for folder in (worktree, worktree / "src") if folder.is_dir()]
    sys.argv = ["profiler_kit", *argv[3:]]
    supervision.final_checks.append(require_own_modules)
    runpy.run_module("profiler_kit", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
