"""The devices, a file per family of cards: each has ``DEVICES``, a tuple of entries. Adding a card is adding one entry.

A file also adds a family by being here. Datasheets that print tensor figures "with sparsity" are halved in the entries.
"""
