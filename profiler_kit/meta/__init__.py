"""Runs a model without data: what a device does on meta tensors, values that are known, copies, and results kept for equal calls.

Serves loading, counting and memory.
"""
