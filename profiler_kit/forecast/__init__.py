"""The time of a step on a device that is not there: a price for each op, from recorded calls."""
