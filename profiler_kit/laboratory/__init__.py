"""The part of the pipeline where `measure` meets `attribute` and `diagnose`: all that is run for a report, and read."""
