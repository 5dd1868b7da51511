"""Attribution of a trace's time: step, phase and module of all events, causes of idle time, waits and ranks."""
