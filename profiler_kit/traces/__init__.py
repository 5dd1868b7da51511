"""A trace file to typed columns, and what the names in it mean. Light to import: the readers are in its modules."""
