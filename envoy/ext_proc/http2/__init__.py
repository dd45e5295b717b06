"""HTTP/2 and gRPC for servers, small and fast: frames, connection and calls without I/O, and an asyncio server.

It serves clients that know that it speaks HTTP/2 (RFC 9113, section 3.3), in clear text. It never pushes, gives no
stream priority, and compresses neither headers nor messages. It knows nothing of what is served.
"""
