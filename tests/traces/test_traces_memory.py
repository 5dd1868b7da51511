"""A large file is read in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

READ = """
import resource, sys
from pathlib import Path
import msgspec, numpy
from profiler_kit.traces.reader import read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
table = read(Path(sys.argv[1]))
print(table.events, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024))
"""


def test_memory_is_that_of_the_columns_and_a_few_blocks(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    shapes = [[64, 256, 56, 56], [64, 64, 1, 1]]

    def event(number: int) -> dict[str, Any]:
        args = {
            "External id": number,
            "Sequence number": number,
            "Input Dims": shapes,
            "Call stack": "file.py(10): f;" * 10,
        }
        times = {"ts": 1000 + number * 0.5, "dur": 0.4}
        return {"ph": "X", "cat": "cpu_op", "name": f"aten::{number % 50}", "pid": 1, "tid": 1, **times, "args": args}

    events = 80_000
    with path.open("w") as file:
        file.write('{"traceEvents": [\n')
        file.write(",\n".join(json.dumps(event(number)) for number in range(events)))
        file.write("\n]}")
    size = path.stat().st_size
    assert size > 25 << 20
    process = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    read, grown = map(int, process.stdout.split())
    assert read == events
    assert grown < 150 * events + (12 << 20) < size  # columns; a block, and what is made of it
