"""Parent side of measuring: which configurations, in which order, trials and schedules. Runs no model itself.

Each configuration runs in fresh processes, because cuDNN's plan cache cannot be cleared: flipping a flag on shapes already
seen changes nothing.
"""
