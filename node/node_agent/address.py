"""The advertised address as Envoy needs it: IP and port, since Envoy looks up no names for endpoints it is sent."""

from __future__ import annotations

import asyncio
import socket

from controlplane.config.addresses import split_address
from controlplane.errors import ConfigurationError, UnavailableError


async def resolve(address: str) -> str:
    """`ip:port`, or `[ip]:port` for IPv6, for a `host:port`; an IPv4 address is preferred.

    Raises ConfigurationError when it is no `host:port`, and UnavailableError when the name cannot be looked up now.
    """
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise ConfigurationError([f"--advertise {address}: {error}"]) from error
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(f"the host {host!r} of the advertised address cannot be looked up: {error}") from error
    ips = {str(entry[4][0]): entry[0] for entry in found}
    # The smallest one, so that a name with several addresses gives the same one each time.
    ip = min(ips, key=lambda ip: (ips[ip] != socket.AF_INET, ip))
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
