"""The child side of measuring: one process, one configuration."""
