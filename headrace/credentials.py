"""Reads the files that settings name for tokens, passwords and certificates. What they hold is never shown."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from controlplane.agentless.prometheus import PrometheusAccess
from controlplane.config.addresses import dialable
from controlplane.config.settings import (
    CallerSettings,
    EtcdSettings,
    ExtProcSettings,
    JwtSettings,
    LedgerSettings,
    PrometheusSettings,
    SessionStoreSettings,
    Settings,
    TlsSettings,
)
from controlplane.errors import ConfigurationError
from controlplane.etcd.connection import EtcdAccess
from controlplane.grpc_calling import ChannelTls, ControlPlaneTarget
from controlplane.grpc_serving import ServerTls
from controlplane.ledger.postgresql_store import PostgresqlAccess, PostgresqlStore
from controlplane.ledger.sqlite_store import SqliteStore
from controlplane.ledger.store import LedgerStore
from ext_proc.keys import Keys
from ext_proc.redis_connection import RedisAccess
from xds_server.gateway import Tokens

_SQLITE = "sqlite:///"
SHORTEST_SECRET = 32


def server_tls(tls: TlsSettings) -> ServerTls | None:
    if tls.cert_file is None or tls.key_file is None:
        return None
    _check_certificate("control_plane.tls", tls.cert_file, tls.key_file, tls.client_ca_file, "client_ca_file")
    return ServerTls(
        certificate=_bytes("control_plane.tls.cert_file", tls.cert_file),
        key=_bytes("control_plane.tls.key_file", tls.key_file),
        client_ca=_bytes("control_plane.tls.client_ca_file", tls.client_ca_file) if tls.client_ca_file else None,
    )


def target(address: str, caller: CallerSettings) -> ControlPlaneTarget:
    tokens = read_tokens("caller.token_file", caller.token_file)
    return ControlPlaneTarget(address, tokens[0] if tokens else None, _channel_tls(caller))


def control_planes(settings: Settings) -> tuple[ControlPlaneTarget, ...]:
    """Those that the settings name for callers, else the one that the same settings describe."""
    addresses = settings.caller.control_planes or (dialable(settings.control_plane.grpc),)
    return tuple(target(address, settings.caller) for address in addresses)


def _channel_tls(caller: CallerSettings) -> ChannelTls | None:
    if caller.ca_file is None:
        return None
    _check_certificate("caller", caller.cert_file, caller.key_file, caller.ca_file, "ca_file")
    return ChannelTls(
        ca=_bytes("caller.ca_file", caller.ca_file),
        certificate=_bytes("caller.cert_file", caller.cert_file) if caller.cert_file else None,
        key=_bytes("caller.key_file", caller.key_file) if caller.key_file else None,
    )


def _check_certificate(
    section: str, cert_file: str | None, key_file: str | None, ca_file: str | None, ca_setting: str
) -> None:
    """gRPC would say of a bad file only that a port cannot be had or a handshake failed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if cert_file is not None and key_file is not None:
        for name, file in (("cert_file", cert_file), ("key_file", key_file)):
            _bytes(f"{section}.{name}", file)
        try:
            context.load_cert_chain(cert_file, key_file, password="")
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                [f"{section}.cert_file: {cert_file} and {key_file} are no PEM certificate and its key: {error}"]
            ) from error
    if ca_file is not None:
        try:
            context.load_verify_locations(cadata=_bytes(f"{section}.{ca_setting}", ca_file).decode("ascii", "replace"))
        except ssl.SSLError as error:
            raise ConfigurationError(
                [f"{section}.{ca_setting}: {ca_file} holds no PEM certificate: {error}"]
            ) from error


def read_tokens(setting: str, file: str | None) -> tuple[str, ...]:
    """One token per line; blank lines and lines that begin with # do not count. Empty when there is no file.

    Raises ConfigurationError when the file cannot be read, holds none, or holds one that a header cannot carry.
    """
    if file is None:
        return ()
    lines = [line.strip() for line in _bytes(setting, file).decode("utf-8", "replace").splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise ConfigurationError([f"{setting}: {file} holds no token; write one per line"])
    if not all(token.isascii() and token.isprintable() and " " not in token for token in tokens):
        raise ConfigurationError([f"{setting}: {file} holds a token with blanks or other than printable ASCII"])
    return tokens


def prometheus_access(prometheus: PrometheusSettings) -> PrometheusAccess | None:
    if prometheus.url is None:
        return None
    _check_certificate("prometheus", None, None, prometheus.ca_file, "ca_file")
    tokens = read_tokens("prometheus.token_file", prometheus.token_file)
    return PrometheusAccess(prometheus, prometheus.url, tokens[0] if tokens else None)


def redis_access(store: SessionStoreSettings) -> RedisAccess | None:
    if store.url is None:
        return None
    setting = "ext_proc.session_store"
    _check_certificate(setting, None, None, store.ca_file, "ca_file")
    return RedisAccess(
        url=store.url,
        username=store.username,
        password=_password(f"{setting}.password_file", store.password_file),
        ca_file=store.ca_file,
    )


def filter_keys(ext_proc: ExtProcSettings) -> Keys:
    engine_key = read_tokens("ext_proc.engine_key_file", ext_proc.engine_key_file)
    return Keys(key_secret(ext_proc), engine_key[0] if engine_key else None)


def key_secret(ext_proc: ExtProcSettings) -> bytes | None:
    """Raises ConfigurationError when it is short enough to be guessed."""
    secret = _password("ext_proc.key_secret_file", ext_proc.key_secret_file)
    if secret is not None and len(secret) < SHORTEST_SECRET:
        raise ConfigurationError(
            [
                f"ext_proc.key_secret_file: {ext_proc.key_secret_file} holds fewer than {SHORTEST_SECRET} characters; "
                "write a random one into it, such as `openssl rand -hex 32` makes"
            ]
        )
    return secret.encode() if secret is not None else None


def tokens_of(jwt: JwtSettings) -> Tokens | None:
    """What makes clients' tokens count; None when they are not looked at."""
    if not jwt.is_used:
        return None
    _check_certificate("gateway.jwt", None, None, jwt.jwks_ca_file, "jwks_ca_file")
    return Tokens(
        claim=jwt.claim,
        keys=_jwks("gateway.jwt.jwks_file", jwt.jwks_file) if jwt.jwks_file is not None else "",
        keys_url=jwt.jwks_url,
        keys_authority=_bytes("gateway.jwt.jwks_ca_file", jwt.jwks_ca_file).decode() if jwt.jwks_ca_file else None,
        keys_refresh=jwt.jwks_refresh,
        issuer=jwt.issuer or "",
        audiences=jwt.audiences,
    )


def _jwks(setting: str, file: str) -> str:
    """https://www.rfc-editor.org/rfc/rfc7517#section-5"""
    text = _bytes(setting, file).decode("utf-8", "replace")
    try:
        keys = json.loads(text)["keys"]
    except (ValueError, LookupError, TypeError):
        keys = None
    if not isinstance(keys, list) or not keys:
        raise ConfigurationError([f'{setting}: {file} is no set of keys; it must be JSON as {{"keys": [...]}}'])
    return text


def ledger_store(ledger: LedgerSettings) -> LedgerStore | None:
    if ledger.url is None:
        return None
    if ledger.url.startswith(_SQLITE):
        return SqliteStore(Path(ledger.url.removeprefix(_SQLITE)))
    _check_certificate("ledger", None, None, ledger.ca_file, "ca_file")
    return PostgresqlStore(
        PostgresqlAccess(ledger.url, _password("ledger.password_file", ledger.password_file), ledger.ca_file)
    )


def _password(setting: str, file: str | None) -> str | None:
    return None if file is None else _bytes(setting, file).decode("utf-8", "replace").strip("\r\n")


def etcd_access(etcd: EtcdSettings) -> EtcdAccess:
    return EtcdAccess(
        endpoints=etcd.endpoints,
        ca_file=Path(etcd.ca_file) if etcd.ca_file else None,
        cert_file=Path(etcd.cert_file) if etcd.cert_file else None,
        key_file=Path(etcd.key_file) if etcd.key_file else None,
        user=etcd.username,
        password=_password("etcd.password_file", etcd.password_file),
    )


def _bytes(setting: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError([f"{setting}: {file} cannot be read: {error.strerror}"]) from error
