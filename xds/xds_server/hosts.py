"""Whether a host is an address, or a name that must be looked up."""

from __future__ import annotations

import ipaddress


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
