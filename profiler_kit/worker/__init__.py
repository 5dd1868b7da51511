"""Child side of measuring: one process runs one configuration."""
