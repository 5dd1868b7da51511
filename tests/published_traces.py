"""The folder of published traces for tests: PROFILER_KIT_TRACES, or a folder next to the checkout."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

PUBLISHED = Path(os.environ.get("PROFILER_KIT_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces")
THERE = (PUBLISHED / "truth.json").is_file()
published = pytest.mark.skipif(not THERE, reason="the published traces are missing; set PROFILER_KIT_TRACES")

# The expected facts of each trace, computed without this package.
TRUTH: dict[str, Any] = json.loads((PUBLISHED / "truth.json").read_text())["traces"] if THERE else {}
FILES = sorted(path.relative_to(PUBLISHED).as_posix() for path in PUBLISHED.rglob("*.json.gz"))
TRACES = [name for name in FILES if not TRUTH.get(name, {}).get("not_a_trace")]
