"""Nodes that no agent speaks for: listed in a file, their loads read from Prometheus."""
