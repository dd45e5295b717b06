"""Headrace's control plane: the model, the pure policy, and the services that keep and publish fleet state."""
