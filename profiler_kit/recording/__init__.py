"""Records steps of a training loop that runs in this process: phases by hooks, times, and a trace of a few steps."""
