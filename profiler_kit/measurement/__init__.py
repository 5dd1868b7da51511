"""Parent side of measuring: which configurations to run, in which order, trials and schedules. Runs no model itself.

Each configuration runs in fresh processes because cuDNN's plan cache cannot be cleared: changing a flag has no effect on
shapes that have already run.
"""
