"""The filter: an Envoy external processor that names the pool for each request, by the last routing table it got."""
