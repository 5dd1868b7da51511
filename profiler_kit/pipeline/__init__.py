"""The order of the stages: one file per verb, and the places where stages meet."""
