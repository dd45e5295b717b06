"""The demo: two real engines that serve one small model in 4 and in 16 bits, and requests of many kinds."""
