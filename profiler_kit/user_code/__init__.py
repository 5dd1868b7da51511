"""Calls of code that is not ours: what it may raise, end or change, where it is, and how its state is restored."""
