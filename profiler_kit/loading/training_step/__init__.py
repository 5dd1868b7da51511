"""The training step as the target's code writes it: loss, labels and optimizer."""
