"""Addresses as settings hold them: `host:port`, `[v6]:port` and `unix:/absolute/path`. Nothing is looked up.

A listening address may have port 0, which takes any free port; one that is dialled may not.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_UNIX = "unix:"
# The kernel's sun_path holds 108 bytes with the closing zero (unix(7)).
_LONGEST_UNIX_PATH = 107


def split_address(address: str) -> tuple[str, int]:
    """Host (an IPv6 address without its brackets) and port of a TCP address. Raises ValueError for any other text."""
    if "://" in address:
        raise ValueError("must be host:port without a scheme, such as 127.0.0.1:8000")
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None:
        if address.count(":") > 1:
            raise ValueError("must be host:port with an IPv6 address in brackets, such as [::1]:8000")
        raise ValueError("must be host:port, such as 127.0.0.1:8000")
    port = int(match["port"])
    if port > 65535:
        raise ValueError("has no such port; ports end at 65535")
    if match["v6"] is not None:
        try:
            ipaddress.IPv6Address(match["v6"])
        except ValueError:
            raise ValueError("has no IPv6 address between its brackets; write one such as [::1]:8000") from None
        return match["v6"], port
    host = match["host"]
    if re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(
                "has no valid IPv4 address; write four numbers up to 255, such as 127.0.0.1:8000"
            ) from None
    elif not _HOST_NAME.fullmatch(host) or len(host) > 253:
        raise ValueError("has no valid host; write host:port, such as 127.0.0.1:8000 or gateway.internal:8000")
    return host, port


def joined_address(host: str, port: int) -> str:
    """The address of a host (an IPv6 address without its brackets) and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unix_path(address: str) -> str | None:
    """The path of a `unix:` address, None for any other."""
    return address.removeprefix(_UNIX) if address.startswith(_UNIX) else None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it: a loopback IP, `localhost` or a Unix socket."""
    if unix_path(address) is not None:
        return True
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(address: str) -> bool:
    """Whether it stands for all addresses of the machine, so that it can be listened on but not dialled."""
    if unix_path(address) is not None:
        return False
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def url_address(url: str) -> str:
    """The `host:port` of an HTTP URL, with the scheme's port where it names none; as it is written, and unchecked."""
    parts = urlsplit(url)
    if not parts.netloc or re.search(r":[0-9]*$", parts.netloc.rpartition("]")[2]):
        return parts.netloc
    return f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}"


def _check_listen(address: str) -> str:
    split_address(address)
    return address


def _check_dial(address: str) -> str:
    _, port = split_address(address)
    if port == 0:
        raise ValueError("must have a port other than 0; this address is dialled, not listened on")
    if is_wildcard(address):
        raise ValueError("cannot be dialled, it stands for all addresses of a machine; write the one to connect to")
    return address


def _check_unix(address: str) -> bool:
    path = unix_path(address)
    if path is None:
        return False
    if not path.startswith("/") or "\0" in path:
        raise ValueError("must have an absolute path, such as unix:/run/headrace/filter.sock")
    if len(path.encode()) > _LONGEST_UNIX_PATH:
        raise ValueError(
            f"has a path of more than {_LONGEST_UNIX_PATH} bytes, which no Unix socket can have; shorten it"
        )
    return True


def _check_listen_or_unix(address: str) -> str:
    return address if _check_unix(address) else _check_listen(address)


def _check_dial_or_unix(address: str) -> str:
    return address if _check_unix(address) else _check_dial(address)


def _check_etcd_endpoint(endpoint: str) -> str:
    scheme, separator, address = endpoint.partition("://")
    if separator and scheme not in {"http", "https"}:
        raise ValueError("must be host:port, with http:// or https:// in front if you like")
    _check_dial(address if separator else endpoint)
    return endpoint


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must be a URL that begins with http:// or https://, such as http://127.0.0.1:4317")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password")
    _check_dial(url_address(url))
    return url


def _check_redis_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must be a URL such as redis://host:6379/0, rediss:// for TLS, or unix:///run/valkey.sock")
    if "@" in parts.netloc or "pass" in parts.query:
        raise ValueError("must not hold a user or password; give username and password_file")
    if parts.scheme == "unix":
        if not re.fullmatch(r"(?:db=[0-9]{1,4})?", parts.query):
            raise ValueError("must end with the path, or a database's number after it, such as ?db=1")
        _check_unix(f"{_UNIX}{parts.path}")
        return url
    if not re.fullmatch(r"/?[0-9]{0,4}", parts.path) or parts.query or parts.fragment:
        raise ValueError("must end with the port, or a database's number after it, such as redis://host:6379/0")
    netloc = parts.netloc
    _check_dial(netloc if re.search(r":[0-9]*$", netloc.rpartition("]")[2]) else f"{netloc}:6379")
    return url


def _check_ledger_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        if parts.netloc or parts.query or parts.fragment or parts.path.strip("/") == "" or parts.path.endswith("/"):
            raise ValueError(
                "must name a file, as sqlite:///ledger.sqlite or sqlite:////var/lib/headrace/ledger.sqlite"
            )
        return url
    if parts.scheme != "postgresql":
        raise ValueError(
            "must be a URL such as sqlite:////var/lib/headrace/ledger.sqlite or postgresql://user@host/database"
        )
    if parts.password is not None or "password" in parts.query:
        raise ValueError("must not hold a password; give password_file")
    query = parse_qs(parts.query, keep_blank_values=True)
    if set(query) - {"host"} or parts.fragment:
        raise ValueError("takes no parameters but ?host=/folder, for a Unix socket")
    if not parts.username or not re.fullmatch(r"/[^/]+", parts.path):
        raise ValueError("must name user and database, as postgresql://user@host/database")
    address = parts.netloc.rpartition("@")[2]
    if folders := query.get("host"):
        if address or len(folders) > 1 or not folders[0].startswith("/"):
            raise ValueError(
                "must have either a host or ?host=/folder, as postgresql://user@/database?host=/run/postgresql"
            )
        return url
    _check_dial(address if re.search(r":[0-9]*$", address.rpartition("]")[2]) else f"{address}:5432")
    return url


ListenAddress = Annotated[str, AfterValidator(_check_listen)]
ListenOrUnixAddress = Annotated[str, AfterValidator(_check_listen_or_unix)]
DialAddress = Annotated[str, AfterValidator(_check_dial)]
DialOrUnixAddress = Annotated[str, AfterValidator(_check_dial_or_unix)]
EtcdEndpoint = Annotated[str, AfterValidator(_check_etcd_endpoint)]
HttpUrl = Annotated[str, AfterValidator(_check_url)]
RedisUrl = Annotated[str, AfterValidator(_check_redis_url)]
LedgerUrl = Annotated[str, AfterValidator(_check_ledger_url)]


def dialable(address: str) -> str:
    """The address by which this machine reaches a port that may listen on all addresses."""
    if unix_path(address) is not None:
        return address
    host, port = split_address(address)
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return joined_address(loopback, port)
