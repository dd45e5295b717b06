"""How Headrace's parts call a control plane: TLS, the caller's token and keepalive, in one place."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from controlplane.grpc_serving import MAX_MESSAGE_BYTES

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class ChannelTls:
    """PEM contents: the CA that signed the control plane's certificate, and our own where it asks for one."""

    ca: bytes
    certificate: bytes | None = None
    key: bytes | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ControlPlaneTarget:
    """One control plane: `address` is host:port; `token` goes with each call as `metadata`, and is never shown."""

    address: str
    token: str | None = None
    tls: ChannelTls | None = None

    def __str__(self) -> str:
        return self.address

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def open(self) -> grpc.aio.Channel:
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, _OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.tls.ca, self.tls.key, self.tls.certificate)
        return grpc.aio.secure_channel(self.address, credentials, _OPTIONS)
