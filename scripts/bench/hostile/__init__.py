"""Hostile model files and environments: does every command end with a verdict or an error, and leave nothing running?

``python -m scripts.bench.hostile models --count 300 --seed 1`` and ``... environments --count 100``.
"""
