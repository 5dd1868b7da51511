"""Where the processes of a job that torchrun has started meet: rank 0 announces runs, the other ranks return results."""
