"""Scripts that record test fixtures."""
