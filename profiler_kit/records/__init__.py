"""Frozen data classes that the stages exchange, and their JSON. Nothing here imports torch."""
