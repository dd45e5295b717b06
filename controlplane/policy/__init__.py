"""Policy: pure functions from frozen values to frozen values. No clock, dice, I/O or logging."""
