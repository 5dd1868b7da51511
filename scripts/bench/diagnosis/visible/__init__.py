"""Scenarios that were open while the rules were written."""
