"""One item of `pool`: ``python -m profiler_kit.process.item FILE`` calls the function in FILE, and writes its result there."""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

from profiler_kit.errors import KitError
from profiler_kit.process.parent import exit_with_parent


def main(file: Path) -> None:
    """Replace the function and its argument in `file` by the answer, the error, or the traceback of a bug."""
    exit_with_parent()
    function, item = pickle.loads(file.read_bytes())
    try:
        reply: tuple[str, Any] = ("answer", function(item))
    except KitError as error:
        reply = ("error", error)
    except Exception as error:  # noqa: BLE001 the parent raises it
        reply = ("bug", "".join(traceback.format_exception(error)))
    file.write_bytes(pickle.dumps(reply, protocol=pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
