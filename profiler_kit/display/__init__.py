"""Records for people who work in Python: as text, as files, as pages and charts in notebooks."""
