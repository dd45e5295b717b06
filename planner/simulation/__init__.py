"""A fleet in simulated time: engines that batch, the filter's own decisions, and every request accounted for."""
