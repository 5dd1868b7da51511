"""Scenarios that were not looked at while the rules were written."""
