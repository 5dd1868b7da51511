"""The nouns: frozen, torch-free, and their JSON. Every stage takes some of these and returns others."""
