"""What the text of a repository says: names, slices, imports, documents, and which variable is the model."""
