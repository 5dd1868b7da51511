"""Benchmarks that compare figures, time and memory of this package with other tools."""
