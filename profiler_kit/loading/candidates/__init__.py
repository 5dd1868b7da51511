"""Which model a target names, and which arguments build it."""
