"""How many examples hypothesis generates: few in the usual run, more with HYPOTHESIS_PROFILE=explore."""

from __future__ import annotations

import os
from typing import Final

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "same")
EXPLORED: Final = 8


def count(usual: int) -> int:
    """The number of examples of a test whose usual number is `usual`."""
    return usual * EXPLORED if PROFILE == "explore" else usual
