"""Trace files as typed columns, and the meaning of the names in them. Import the readers from their modules."""
