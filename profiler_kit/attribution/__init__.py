"""Any trace that torch.profiler wrote -> where its time went: owners of the device's work, and what it waited for."""
