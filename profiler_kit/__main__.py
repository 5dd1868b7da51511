"""``python -m profiler_kit``, the same as the console script ``profiler-kit``."""

import os
import sys


def main() -> None:
    """Run the command line and exit with its status, or as the user's program does.

    Python's own status for an exception, 1, means an exceeded budget.
    """
    try:
        from profiler_kit.cli import entry

        program = entry()
    except Exception as error:  # noqa: BLE001 printed in one line
        # a file of the working directory or of PYTHONPATH that has the name of a module which Python or a library needs
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}: " if place is not None else ""
        try:
            sys.stderr.write(
                f"error: {where}profiler_kit cannot start: {type(error).__name__}: {error}\n"
                "hint: check PYTHONPATH, and whether a file there or in this folder has the name of a module; or install again\n"
            )
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):  # a full disk, or no stderr
            os._exit(3)
        os._exit(3)
    program()  # of the user: its exceptions are its own


if __name__ == "__main__":
    main()
