"""What is known about a device: peaks, bandwidth, allocator and context figures."""
