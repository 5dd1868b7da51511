"""Locations of the published traces: beside the checkout, or where PROFILER_KIT_TRACES points."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

PUBLISHED = Path(os.environ.get("PROFILER_KIT_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces")
THERE = (PUBLISHED / "truth.json").is_file()
published = pytest.mark.skipif(not THERE, reason="the published traces are not beside this checkout")

# Expected figures of each trace, computed without this package.
TRUTH: dict[str, Any] = json.loads((PUBLISHED / "truth.json").read_text())["traces"] if THERE else {}
FILES = sorted(path.relative_to(PUBLISHED).as_posix() for path in PUBLISHED.rglob("*.json.gz"))
TRACES = [name for name in FILES if not TRUTH.get(name, {}).get("not_a_trace")]
