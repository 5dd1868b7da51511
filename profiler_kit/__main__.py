"""``python -m profiler_kit``: the same as the console script ``profiler-kit``."""

import sys

from profiler_kit.cli import main

sys.exit(main())
