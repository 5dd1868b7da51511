"""The order of the stages: one module per command, and the functions that combine stages."""
