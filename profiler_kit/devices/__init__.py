"""The device registry: datasheet peaks, bandwidth, and figures of allocator and context."""
