"""What a run may do differently: cuDNN flags, axes, changing shapes; all by name."""
