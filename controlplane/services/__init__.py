"""The gRPC services of a control plane: thin adapters between messages and the parts that do the work."""
