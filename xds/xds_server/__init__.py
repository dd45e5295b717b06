"""A delta ADS server for Envoy, and the Envoy resources of a gateway whose pools are chosen by an ext_proc filter.

    snapshot.py      what all Envoys should hold: immutable, checked, versioned by content
    stream.py        the delta protocol of one stream, without I/O
    server.py        the gRPC service around it
    gateway.py       plain words for a gateway and its pools, and the snapshot they make
    bootstrap.py     the file an Envoy starts from

It knows pools as names with endpoints, and nothing of what they serve.
"""
