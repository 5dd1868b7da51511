"""Real runs: each cuDNN configuration in a fresh process, timed steps without the profiler, traced steps apart.

A process of its own because the cuDNN plan cache can't be cleared: flipping a flag on shapes already seen changes nothing.
"""
