"""Runs parts of the user's files without side effects."""
