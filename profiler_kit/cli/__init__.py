"""argv, printing and exit codes: the command line's outermost room."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from profiler_kit.errors import INTERRUPTED, KitError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (default: the process's own) and returns its exit status.

    Every expected error ends here: one message with a hint on stderr, and its exit code.
    """
    from profiler_kit.cli.options import parser

    try:
        given = parser().parse_args(argv)
        from profiler_kit.cli import commands

        return commands.VERBS[given.verb](given)
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # the reader (head, less) has seen enough; keep Python from complaining again when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
