"""Programs for developers, run from a checkout: `python -m scripts.bench.count`."""
