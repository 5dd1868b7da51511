"""Scripts that measured constants and recorded test fixtures."""
