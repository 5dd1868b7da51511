"""A step as a graph of host work, launches, streams and waits, and its replay: unchanged, without the profiler, or changed."""
