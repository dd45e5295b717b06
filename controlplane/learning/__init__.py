"""What is learned of the fleet from what its nodes report. No I/O; clocks are passed in."""
