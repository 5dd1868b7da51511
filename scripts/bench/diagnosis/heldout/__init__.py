"""Scenarios that were written before the rules and not read while the rules changed."""
