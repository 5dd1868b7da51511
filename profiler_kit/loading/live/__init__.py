"""A model that exists in this process: its file for other processes."""
