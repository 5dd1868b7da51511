"""Drop-in folder of axes: one file per family with ``AXES``, a tuple of `Axis`. No file imports torch at module level."""
