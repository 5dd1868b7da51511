"""The inputs of a model that nobody passed: read from the user's files, or found by search on meta tensors."""
