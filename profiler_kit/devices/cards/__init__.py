"""Drop-in folder of devices: one file per family of cards with ``DEVICES``, a tuple of `Device`.

A new card is one entry; a new family is one file. Tensor peaks that a datasheet states "with sparsity" are halved in the entries.
"""
