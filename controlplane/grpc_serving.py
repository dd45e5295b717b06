"""A grpc.aio server as every Headrace port offers it: with health and reflection, keepalive and explicit bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that vanished or hangs without closing is noticed within 10 s, since a filter worker has its share of the
    # credits until then. Peers that ping us are not cut off for it.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),  # a second process on the port is an error, not a silent share
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM contents. With `client_ca`, clients must present a certificate that it signed."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class Health:
    """The health of a server's services, as grpc.health.v1 tells it: `liveness` is the process, all else readiness.

    `statuses` has what is told of each, and whoever stands in `watchers` is called when that has changed.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self.servicer = health.aio.HealthServicer()
        self.statuses: dict[str, health_pb2.HealthCheckResponse.ServingStatus] = {}
        self.watchers: set[Callable[[], None]] = set()
        self._services = ("", "readiness", *services)

    async def set_ready(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        self.statuses = {"liveness": health_pb2.HealthCheckResponse.SERVING} | dict.fromkeys(self._services, status)
        for service, told in self.statuses.items():
            await self.servicer.set(service, told)
        for told_anew in tuple(self.watchers):
            told_anew()


def new_server(
    services: Sequence[str],
    health_of: Health,
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_concurrent_streams: int | None = None,
) -> grpc.aio.Server:
    """A server with health and reflection for `services` (full names); the caller adds their servicers."""
    options = [*_OPTIONS, ("grpc.max_receive_message_length", max_message_bytes)]
    if max_concurrent_streams is not None:
        options.append(("grpc.max_concurrent_streams", max_concurrent_streams))
    server = grpc.aio.server(interceptors=interceptors, options=options)
    health_pb2_grpc.add_HealthServicer_to_server(health_of.servicer, server)
    reflection.enable_server_reflection(
        (*services, health.SERVICE_NAME, reflection.SERVICE_NAME),
        server,
    )
    return server


def bind(server: grpc.aio.Server, address: str, tls: ServerTls | None = None) -> str:
    """Listen on `address` (host:port or unix:/path); returns it with the port that was given for port 0.

    Raises OSError when the address cannot be had.
    """
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)],
                root_certificates=tls.client_ca,
                require_client_auth=tls.client_ca is not None,
            )
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"
