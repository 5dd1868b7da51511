"""Charts of reports and traces: the figures of the tables as data for renderers that draw."""
