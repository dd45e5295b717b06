"""etcd's v3 API for asyncio, as far as Headrace needs it, and an etcd as a child process where none is given.

It knows nothing of nodes or policies.
"""
