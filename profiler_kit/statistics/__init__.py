"""Intervals, noise between processes, and when a difference is one."""
