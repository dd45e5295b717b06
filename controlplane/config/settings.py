"""All settings of Headrace as one frozen tree; every field has a default that works on one machine.

Durations are in seconds, sizes in bytes. Secrets are never in here, only the names of the files that hold them. `load`
makes a tree from YAML and checks it; a tree made in code is not checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import AfterValidator

from controlplane.config.addresses import (
    DialAddress,
    DialOrUnixAddress,
    EtcdEndpoint,
    HttpUrl,
    LedgerUrl,
    ListenAddress,
    ListenOrUnixAddress,
    RedisUrl,
)
from controlplane.config.quantities import Bytes, Seconds
from controlplane.policy.settings import Policy

MIB = 2**20

FileName = Annotated[str, MinLen(1)]
Query = Annotated[str, MinLen(1)]


def _check_cluster_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", name):
        raise ValueError("must be 1 to 63 of a-z, 0-9 and -, with no - at either end")
    return name


ClusterName = Annotated[str, AfterValidator(_check_cluster_name)]


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Tokens of clients that Envoy verifies, and which of their claims names the tenant.

    jwks_file, jwks_url: the issuer's public keys, as a file of the control plane's or as Envoy fetches them; with
      neither no token is looked at.
    jwks_ca_file: the authority that signed that server's certificate, PEM; without it those of Envoy's machine count.
    jwks_refresh: how often Envoy fetches the keys.
    issuer: what `iss` must be; without one it may be anything.
    audiences: one of which `aud` must be; empty means that it may be anything.
    claim: where the tenant's name stands, text.
    """

    jwks_file: FileName | None = None
    jwks_url: HttpUrl | None = None
    jwks_ca_file: FileName | None = None
    jwks_refresh: Annotated[Seconds, Ge(1), Le(86400)] = 300.0
    issuer: Annotated[str, MinLen(1)] | None = None
    audiences: tuple[Annotated[str, MinLen(1)], ...] = ()
    claim: Annotated[str, MinLen(1)] = "tenant"

    @property
    def is_used(self) -> bool:
        return self.jwks_file is not None or self.jwks_url is not None


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What clients meet: Envoy's listener.

    address: where clients connect.
    max_body_bytes: largest request body that is routed; a larger one gets 413 at once.
    route_timeout: longest time for a whole answer.
    stream_idle_timeout: longest silence on a request before it is given up.
    default_pool: the pool for requests that the filter could not decide about; without one they get 503.
    max_wait: longest time that a request waits in the filter for room.
    retry_refused: sends a request that an engine answers with 400 once more, to the pool of its model and format tier
        with the largest context. Engines say 400 of whatever they do not like, and all of that is sent again.
    jwt: tokens that name the tenant.
    """

    address: ListenAddress = "127.0.0.1:10000"
    max_body_bytes: Annotated[Bytes, Ge(1024), Le(1024 * MIB)] = 10 * MIB
    route_timeout: Annotated[Seconds, Gt(0), Le(86400)] = 600.0
    stream_idle_timeout: Annotated[Seconds, Gt(0), Le(86400)] = 300.0
    default_pool: Annotated[str, MinLen(1)] | None = None
    max_wait: Annotated[Seconds, Ge(0), Le(3600)] = 30.0
    retry_refused: bool = False
    jwt: JwtSettings = JwtSettings()


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may register nodes and who may administer.

    node_tokens_file, operator_tokens_file: files with one token per line; without one, anybody may.
    insecure: accepts a gRPC address that other machines reach although anybody may.
    """

    node_tokens_file: FileName | None = None
    operator_tokens_file: FileName | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of the gRPC port; without a certificate it speaks plain text, as the xDS port always does.

    cert_file, key_file: the server's certificate chain and private key, PEM.
    client_ca_file: when given, clients must show a certificate signed by it, PEM.
    """

    cert_file: FileName | None = None
    key_file: FileName | None = None
    client_ca_file: FileName | None = None


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """One control-plane process.

    grpc, xds, metrics: where nodes and operators, Envoys, and Prometheus connect.
    xds_advertise: the address at which Envoys reach the xds port; without one `xds`.
    lease: a node that is silent for so long leaves the fleet.
    heartbeat: how often nodes report their load; less than half the lease, so that one lost report is no death.
    recent_decisions: how many decisions are kept in memory.
    nodes_file: lists nodes that no agent registers, as `headrace explain --fleet` reads them; read at the start.
    """

    grpc: ListenAddress = "127.0.0.1:50051"
    xds: ListenAddress = "127.0.0.1:18000"
    xds_advertise: DialAddress | None = None
    metrics: ListenAddress = "127.0.0.1:9090"
    lease: Annotated[Seconds, Ge(1), Le(600)] = 10.0
    heartbeat: Annotated[Seconds, Ge(0.05), Le(300)] = 1.0
    recent_decisions: Annotated[int, Ge(1), Le(1_000_000)] = 10_000
    nodes_file: FileName | None = None
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where control planes read the loads of nodes that report none, as of those in `control_plane.nodes_file`.

    url: of Prometheus, or of what answers its HTTP API; without one nobody is asked.
    token_file: its first line is the bearer token to show.
    ca_file: the authority that signed the server's certificate, PEM; without it the system's authorities count.
    every: how often it is asked. A load counts for 5 s.
    oldest_sample: how old a sample may be; an older one is missing (`lookback_delta` of the API).
    node_label: the label of the values that says whose they are, by a node's address or its id.
    kv_cache_use, running, waiting: queries that give one value per node: a share, and counts of requests. None leaves
      the signal out.
    """

    url: HttpUrl | None = None
    token_file: FileName | None = None
    ca_file: FileName | None = None
    every: Annotated[Seconds, Ge(0.1), Le(4)] = 2.0
    oldest_sample: Annotated[Seconds, Ge(1), Le(300)] = 30.0
    node_label: Annotated[str, MinLen(1)] = "instance"
    kv_cache_use: Query | None = "max by (instance) (vllm:kv_cache_usage_perc)"
    running: Query | None = "sum by (instance) (vllm:num_requests_running)"
    waiting: Query | None = "sum by (instance) (vllm:num_requests_waiting)"


@dataclass(frozen=True, slots=True)
class SessionStoreSettings:
    """A Redis 7 or Valkey in which filter workers share the format tiers of sessions.

    url: such as redis://host:6379/0, rediss:// for TLS or unix:///run/valkey.sock, without user and password; without
      one each worker keeps them for itself.
    username, password_file: for its authentication; the file holds the password alone.
    ca_file: the authority that signed its certificate, PEM; without it the system's authorities count.
    timeout: how long a request waits for it at most, before the worker's own memory stands in for it.
    """

    url: RedisUrl | None = None
    username: Annotated[str, MinLen(1)] | None = None
    password_file: FileName | None = None
    ca_file: FileName | None = None
    timeout: Annotated[Seconds, Gt(0), Le(10)] = 0.1


@dataclass(frozen=True, slots=True)
class ExtProcSettings:
    """The filter's processes.

    listen: where Envoy asks for decisions, TCP or a Unix socket.
    health, metrics: where its health and its metrics are served.
    advertise: the addresses at which Envoy reaches the filter workers; empty means `listen`.
    workers: how many processes. None lets `headrace up` choose: one, or with a session store, which several need, half
      as many as there are processors for it, and two at least; a worker that is started by itself is then the only one.
    transport: by what Envoy is served: our own HTTP/2, or gRPC's, for comparison.
    session_store: where they share the format tiers of sessions.
    key_secret_file: holds the secret of the digests of API keys, which `headrace keys new` makes with it.
    engine_key_file: holds the key that engines are shown in place of the client's, as `Authorization: Bearer`.
    """

    listen: ListenOrUnixAddress = "127.0.0.1:9002"
    health: ListenAddress = "127.0.0.1:9003"
    metrics: ListenAddress = "127.0.0.1:9091"
    advertise: tuple[DialOrUnixAddress, ...] = ()
    workers: Annotated[int, Ge(1), Le(256)] | None = None
    transport: Literal["h2", "grpc"] = "h2"
    session_store: SessionStoreSettings = SessionStoreSettings()
    key_secret_file: FileName | None = None
    engine_key_file: FileName | None = None


@dataclass(frozen=True, slots=True)
class CallerSettings:
    """How Headrace's own parts and its command line call control planes.

    control_planes: their gRPC addresses, tried in turn; empty means the one at `control_plane.grpc`.
    token_file: file whose first line is the token to show: a node token for filters, an operator token for people.
    ca_file: the authority that signed the control planes' certificates, PEM; giving it turns TLS on.
    cert_file, key_file: the client certificate and key, PEM, where control planes ask for one.
    """

    control_planes: tuple[DialAddress, ...] = ()
    token_file: FileName | None = None
    ca_file: FileName | None = None
    cert_file: FileName | None = None
    key_file: FileName | None = None


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Where the fleet's shared state is.

    endpoints: `host:port` of the members, with http:// or https:// in front if you like; empty means that Headrace
      runs an etcd of its own, for one machine.
    data_dir: that etcd's directory; without one its state is gone when it stops.
    ca_file: the authority that signed the members' certificates, PEM. It turns TLS on, as https:// does; without it
      the system's authorities count.
    cert_file, key_file: the client certificate and key, PEM.
    username, password_file: for etcd's own authentication; the file holds the password alone.
    """

    endpoints: tuple[EtcdEndpoint, ...] = ()
    data_dir: FileName | None = None
    ca_file: FileName | None = None
    cert_file: FileName | None = None
    key_file: FileName | None = None
    username: Annotated[str, MinLen(1)] | None = None
    password_file: FileName | None = None


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Where decisions and what became of the requests are kept.

    url: sqlite:///relative.sqlite or sqlite:////absolute.sqlite, which one control plane writes; or for any number of
      control planes of one fleet postgresql://user@host:5432/database, with ?host=/folder for a Unix socket. Without
      one, `headrace up` keeps an SQLite file in its state directory, and a control plane by itself has only the
      decisions in its memory.
    password_file: holds the password of PostgreSQL's user alone.
    ca_file: the authority that signed PostgreSQL's certificate, PEM; without it TLS is used where the server offers it,
      unverified.
    retention: how long decisions are kept.
    queue: how many decisions wait at most while the database is away or slow; those that come then are not written.
    """

    url: LedgerUrl | None = None
    password_file: FileName | None = None
    ca_file: FileName | None = None
    retention: Annotated[Seconds, Ge(3600), Le(3650 * 86400)] = 7 * 86400.0
    queue: Annotated[int, Ge(1000), Le(1_000_000)] = 50_000


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """The Envoy that Headrace starts.

    admin: its administration interface, which has no password: this machine only.
    concurrency: worker threads; None means one per processor.
    max_heap: memory near which it answers new requests with 503, rather than be ended by the system for want of it.
    """

    admin: ListenAddress = "127.0.0.1:19000"
    concurrency: Annotated[int, Ge(1), Le(1024)] | None = None
    max_heap: Annotated[Bytes, Ge(64 * MIB)] = 4096 * MIB
    log_level: Literal["trace", "debug", "info", "warning", "error", "critical", "off"] = "warning"


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What Headrace says about itself.

    otlp_endpoint: URL of an OpenTelemetry collector's gRPC port; without one no spans are sent.
    log_decisions: share of the requests of which the control plane logs decision and outcome in one line.
    """

    otlp_endpoint: HttpUrl | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_decisions: Annotated[float, Ge(0), Le(1)] = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything. `cluster` names the fleet: its state lies in etcd under `/headrace/v1/<cluster>/`, what is learned of
    tokens under `/headrace/calibration/v1/<cluster>/`."""

    cluster: ClusterName = "headrace"
    gateway: GatewaySettings = GatewaySettings()
    control_plane: ControlPlaneSettings = ControlPlaneSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    ext_proc: ExtProcSettings = ExtProcSettings()
    caller: CallerSettings = CallerSettings()
    etcd: EtcdSettings = EtcdSettings()
    ledger: LedgerSettings = LedgerSettings()
    envoy: EnvoySettings = EnvoySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    policy: Policy = field(default_factory=Policy)
