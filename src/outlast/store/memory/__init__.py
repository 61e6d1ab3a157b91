"""The store in memory: for tests, the simulator, and engines that need not outlive their process."""
