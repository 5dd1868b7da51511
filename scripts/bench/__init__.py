"""Benchmarks that a user can run: figures, time and memory of this package beside other tools."""
