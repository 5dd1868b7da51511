"""The user's source text: which documents belong to a target, and the parts of them that run without side effects."""
