"""What was decided about each request and what became of it, as Envoy's access log tells it."""
