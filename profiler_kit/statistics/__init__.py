"""Confidence intervals, noise between processes, and the significance of differences."""
