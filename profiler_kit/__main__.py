"""``python -m profiler_kit``, the same as the console script ``profiler-kit``."""

from __future__ import annotations

import sys
import traceback
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit with its status. Python's own status for an exception, 1, means an exceeded budget."""
    try:
        from profiler_kit.cli import entry

        entry()
    except Exception as error:  # noqa: BLE001 printed in one line
        # a file of the working directory or of PYTHONPATH that has the name of a module which Python or a library needs
        place = traceback.extract_tb(error.__traceback__)[-1]
        sys.stderr.write(
            f"error: {place.filename}:{place.lineno}: profiler_kit cannot start: {type(error).__name__}: {error}\n"
            "hint: check PYTHONPATH, and whether a file there or in this folder has the name of a module; or install again\n"
        )
        sys.exit(3)


if __name__ == "__main__":
    main()
