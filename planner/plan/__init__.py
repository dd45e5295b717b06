"""Chooses a fleet: where context classes part, and of each class the engines, their format and how many of them."""
