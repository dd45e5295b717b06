"""Rules between settings: each a function of the whole tree that yields what it finds broken.

Single settings are checked by their types, and the policy's own rules stand in `policy_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from controlplane.config.addresses import is_loopback, is_wildcard, split_address, unix_path
from controlplane.config.document import Path, spell
from controlplane.config.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken rule. `paths` are the settings it is about; the first is the one to change."""

    paths: tuple[Path, ...]
    message: str


Rule = Callable[[T], Iterator[Broken]]


def path(dotted: str) -> Path:
    return tuple(dotted.split("."))


def heartbeats_outrun_the_lease(settings: Settings) -> Iterator[Broken]:
    control = settings.control_plane
    if control.heartbeat >= control.lease / 2:
        yield Broken(
            (path("control_plane.heartbeat"), path("control_plane.lease")),
            f"{control.heartbeat:g} s must be less than half of control_plane.lease ({control.lease:g} s), "
            "else one lost report ends a node session; shorten the heartbeat or lengthen the lease",
        )


def etcd_counts_in_seconds(settings: Settings) -> Iterator[Broken]:
    lease = settings.control_plane.lease
    if lease != int(lease):
        yield Broken((path("control_plane.lease"),), f"{lease:g} s must be whole seconds, as leases of etcd are")


def waiting_is_not_taken_for_idleness(settings: Settings) -> Iterator[Broken]:
    gateway = settings.gateway
    if gateway.max_wait >= gateway.stream_idle_timeout:
        yield Broken(
            (path("gateway.max_wait"), path("gateway.stream_idle_timeout")),
            f"{gateway.max_wait:g} s must be less than gateway.stream_idle_timeout "
            f"({gateway.stream_idle_timeout:g} s), else Envoy gives up requests that still wait; "
            "shorten the wait or lengthen the timeout",
        )


def strangers_need_tokens(settings: Settings) -> Iterator[Broken]:
    control = settings.control_plane
    if is_loopback(control.grpc) or control.auth.insecure:
        return
    for name, who in (("node_tokens_file", "register nodes"), ("operator_tokens_file", "administer the fleet")):
        if getattr(control.auth, name) is None:
            yield Broken(
                (path("control_plane.grpc"), path(f"control_plane.auth.{name}")),
                f"other machines reach {control.grpc}, and without control_plane.auth.{name} anybody there may {who}; "
                "write a file with one token per line and name it there, or listen on 127.0.0.1, "
                "or accept it with control_plane.auth.insecure: true",
            )


def envoy_admin_stays_on_this_machine(settings: Settings) -> Iterator[Broken]:
    if not is_loopback(settings.envoy.admin):
        yield Broken(
            (path("envoy.admin"),),
            f"other machines reach {settings.envoy.admin}, and Envoy's administration has no password; "
            "listen on 127.0.0.1 and forward the port where you need it",
        )


def certificates_come_with_keys(settings: Settings) -> Iterator[Broken]:
    pairs = (
        ("control_plane.tls", settings.control_plane.tls),
        ("caller", settings.caller),
        ("etcd", settings.etcd),
    )
    for section, pair in pairs:
        if (pair.cert_file is None) != (pair.key_file is None):
            given, lacking = ("cert_file", "key_file") if pair.cert_file is not None else ("key_file", "cert_file")
            yield Broken(
                (path(f"{section}.{given}"), path(f"{section}.{lacking}")),
                f"needs {section}.{lacking} too; give both or neither",
            )


def client_certificates_need_tls(settings: Settings) -> Iterator[Broken]:
    tls = settings.control_plane.tls
    if tls.client_ca_file is not None and tls.cert_file is None:
        yield Broken(
            (path("control_plane.tls.client_ca_file"), path("control_plane.tls.cert_file")),
            "asks clients for certificates over TLS, which is off; give control_plane.tls.cert_file and key_file",
        )


def callers_speak_as_control_planes_listen(settings: Settings) -> Iterator[Broken]:
    caller = settings.caller
    if caller.cert_file is not None and caller.ca_file is None:
        yield Broken(
            (path("caller.cert_file"), path("caller.ca_file")),
            "needs caller.ca_file, which turns TLS on; name the authority that signed the control planes' certificates",
        )


def session_store_is_complete(settings: Settings) -> Iterator[Broken]:
    store = settings.ext_proc.session_store
    if store.url is None:
        for name in ("username", "password_file", "ca_file"):
            if getattr(store, name) is not None:
                yield Broken(
                    (path(f"ext_proc.session_store.{name}"), path("ext_proc.session_store.url")),
                    "is for a store named by ext_proc.session_store.url, and none is; name it or remove this",
                )
        return
    if store.username is not None and store.password_file is None:
        yield Broken(
            (path("ext_proc.session_store.username"), path("ext_proc.session_store.password_file")),
            "needs ext_proc.session_store.password_file too; give it or remove this",
        )
    if store.ca_file is not None and not store.url.startswith("rediss://"):
        yield Broken(
            (path("ext_proc.session_store.ca_file"), path("ext_proc.session_store.url")),
            f"is for TLS, and {store.url} is none; write rediss:// there or remove this",
        )


def workers_agree_on_sessions(settings: Settings) -> Iterator[Broken]:
    ext_proc, sessions = settings.ext_proc, settings.policy.sessions
    workers = max(ext_proc.workers or 1, len(ext_proc.advertise))
    if workers > 1 and ext_proc.session_store.url is None and (sessions.headers or sessions.body_fields):
        at = "ext_proc.workers" if (ext_proc.workers or 1) > 1 else "ext_proc.advertise"
        yield Broken(
            (path(at), path("ext_proc.session_store.url")),
            f"{workers} filter workers would each keep a format tier of their own for a session; name a Redis or "
            "Valkey in ext_proc.session_store.url, run one worker, or look for no sessions: "
            "policy.sessions: {headers: [], body_fields: []}",
        )


def ledger_is_complete(settings: Settings) -> Iterator[Broken]:
    ledger = settings.ledger
    if ledger.url is None or not ledger.url.startswith("postgresql:"):
        for name in ("password_file", "ca_file"):
            if getattr(ledger, name) is not None:
                yield Broken(
                    (path(f"ledger.{name}"), path("ledger.url")),
                    "is for a PostgreSQL named by ledger.url, and none is; name it or remove this",
                )


def etcd_credentials_are_complete(settings: Settings) -> Iterator[Broken]:
    etcd = settings.etcd
    if (etcd.username is None) != (etcd.password_file is None):
        given, lacking = ("username", "password_file") if etcd.username is not None else ("password_file", "username")
        yield Broken(
            (path(f"etcd.{given}"), path(f"etcd.{lacking}")),
            f"needs etcd.{lacking} too; give both or neither",
        )


def etcd_speaks_tls_or_not(settings: Settings) -> Iterator[Broken]:
    etcd = settings.etcd
    secure = [endpoint for endpoint in etcd.endpoints if endpoint.startswith("https://")]
    plain = [endpoint for endpoint in etcd.endpoints if endpoint.startswith("http://")]
    if plain and secure:
        yield Broken(
            (path("etcd.endpoints"),), f"{plain[0]} is plain text and {secure[0]} is TLS; give all the same scheme"
        )
        return
    for name in ("ca_file", "cert_file"):
        if plain and getattr(etcd, name) is not None:
            yield Broken(
                (path(f"etcd.{name}"), path("etcd.endpoints")),
                f"is for TLS, and {plain[0]} is plain text; write https:// there or remove this",
            )


def etcd_is_ours_or_theirs(settings: Settings) -> Iterator[Broken]:
    etcd = settings.etcd
    if etcd.endpoints and etcd.data_dir is not None:
        yield Broken(
            (path("etcd.data_dir"), path("etcd.endpoints")),
            "is for the etcd that Headrace starts, and etcd.endpoints name another; remove one of them",
        )
    if not etcd.endpoints:
        for name in ("ca_file", "cert_file", "username"):
            if getattr(etcd, name) is not None:
                yield Broken(
                    (path(f"etcd.{name}"), path("etcd.endpoints")),
                    "is for an etcd named by etcd.endpoints, and none is; name its members or remove this",
                )


def envoy_can_reach_the_filter(settings: Settings) -> Iterator[Broken]:
    ext_proc = settings.ext_proc
    if not ext_proc.advertise and is_wildcard(ext_proc.listen):
        yield Broken(
            (path("ext_proc.listen"), path("ext_proc.advertise")),
            f"{ext_proc.listen} stands for all addresses of the machine and Envoy cannot connect to it; "
            "name the address that Envoy reaches in ext_proc.advertise",
        )


def envoy_can_reach_the_control_plane(settings: Settings) -> Iterator[Broken]:
    control = settings.control_plane
    if control.xds_advertise is None and is_wildcard(control.xds):
        yield Broken(
            (path("control_plane.xds"), path("control_plane.xds_advertise")),
            f"{control.xds} stands for all addresses of the machine and Envoy cannot connect to it; "
            "name the address that Envoy reaches in control_plane.xds_advertise",
        )


def addresses_are_not_shared(settings: Settings) -> Iterator[Broken]:
    listening = {
        "gateway.address": settings.gateway.address,
        "control_plane.grpc": settings.control_plane.grpc,
        "control_plane.xds": settings.control_plane.xds,
        "control_plane.metrics": settings.control_plane.metrics,
        "ext_proc.listen": settings.ext_proc.listen,
        "ext_proc.health": settings.ext_proc.health,
        "ext_proc.metrics": settings.ext_proc.metrics,
        "envoy.admin": settings.envoy.admin,
    }
    for (first, one), (second, other) in combinations(listening.items(), 2):
        if _collide(one, other):
            yield Broken(
                (path(second), path(first)),
                f"{other} is taken by {first} ({one}); give each its own port",
            )


def named_once(settings: Settings) -> Iterator[Broken]:
    lists = {
        "caller.control_planes": settings.caller.control_planes,
        "ext_proc.advertise": settings.ext_proc.advertise,
        "etcd.endpoints": settings.etcd.endpoints,
    }
    for dotted, addresses in lists.items():
        for index, address in enumerate(addresses):
            if address in addresses[:index]:
                yield Broken(
                    ((*path(dotted), index),), f"{address} is named twice in {spell(path(dotted))}; remove one"
                )


SETTINGS_RULES: tuple[Rule[Settings], ...] = (
    heartbeats_outrun_the_lease,
    etcd_counts_in_seconds,
    waiting_is_not_taken_for_idleness,
    strangers_need_tokens,
    envoy_admin_stays_on_this_machine,
    certificates_come_with_keys,
    client_certificates_need_tls,
    callers_speak_as_control_planes_listen,
    session_store_is_complete,
    workers_agree_on_sessions,
    ledger_is_complete,
    etcd_credentials_are_complete,
    etcd_speaks_tls_or_not,
    etcd_is_ours_or_theirs,
    envoy_can_reach_the_filter,
    envoy_can_reach_the_control_plane,
    addresses_are_not_shared,
    named_once,
)


def _collide(one: str, other: str) -> bool:
    if unix_path(one) is not None or unix_path(other) is not None:
        return one == other
    (host, port), (other_host, other_port) = split_address(one), split_address(other)
    return port == other_port != 0 and (host == other_host or is_wildcard(one) or is_wildcard(other))
