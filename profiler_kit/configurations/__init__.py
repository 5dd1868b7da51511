"""Configurations of a run by name: cuDNN flags, axes, and schedules of changing shapes."""
