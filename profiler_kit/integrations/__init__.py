"""Ways into the tool from code that somebody else runs: training loops, trainers, profilers, test suites."""
