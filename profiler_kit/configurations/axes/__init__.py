"""Drop-in: one file per family of axes, each with ``AXES``, a tuple of `Axis`. Nothing here imports torch at its top."""
