"""What says which inputs a model gets: one file for each source, in the order of trust of `providers`."""
