"""The filter that verifies clients' tokens (JWT), and the cluster of the server that has the issuer's keys.

Only an `Authorization` that looks like a token is verified, and refused with 401 if it is none that counts: what else a
request may be known by is for the filter behind ext_proc to judge.
https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/jwt_authn_filter
"""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

from headrace_protos.envoy.config.cluster.v3 import cluster_pb2
from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.config.endpoint.v3 import endpoint_pb2
from headrace_protos.envoy.extensions.filters.http.jwt_authn.v3 import config_pb2
from headrace_protos.envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from xds_server.gateway import TENANT_HEADER, Tokens
from xds_server.hosts import is_ip
from xds_server.resource import packed

JWKS_CLUSTER = "headrace-jwks"

_PROVIDER = "tenants"
# https://www.rfc-editor.org/rfc/rfc7519#section-3: three parts of base64url, the first of them a JSON object's.
_COMPACT_JWT = r"(?i:bearer) +eyJ[\w-]*\.[\w-]*\.[\w-]* *"
_FETCH_TIMEOUT = timedelta(seconds=5)


def token_check(tokens: Tokens) -> config_pb2.JwtAuthentication:
    provider = config_pb2.JwtProvider(
        issuer=tokens.issuer,
        audiences=tokens.audiences,
        require_expiration=True,
        from_headers=[{"name": "authorization", "value_prefix": "Bearer "}],
        claim_to_headers=[{"header_name": TENANT_HEADER, "claim_name": tokens.claim}],
        jwt_cache_config={},
    )
    if tokens.keys_url is None:
        provider.local_jwks.inline_string = tokens.keys
    else:
        provider.remote_jwks.CopyFrom(
            config_pb2.RemoteJwks(
                http_uri={"uri": tokens.keys_url, "cluster": JWKS_CLUSTER, "timeout": _FETCH_TIMEOUT},
                cache_duration=timedelta(seconds=tokens.keys_refresh),
                # Before the first token comes; a server of keys that is away holds back no listener.
                async_fetch={"fast_listener": True},
            )
        )
    looks_like_a_token = {
        "name": "authorization",
        "string_match": {"safe_regex": {"google_re2": {}, "regex": _COMPACT_JWT}},
    }
    return config_pb2.JwtAuthentication(
        providers={_PROVIDER: provider},
        rules=[
            {"match": {"prefix": "/", "headers": [looks_like_a_token]}, "requires": {"provider_name": _PROVIDER}},
        ],
    )


def token_keys_cluster(url: str, authority: str | None) -> cluster_pb2.Cluster:
    """`authority` is in PEM; without one that server's certificate is vouched for by those of Envoy's machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    cluster = cluster_pb2.Cluster(
        name=JWKS_CLUSTER,
        type=cluster_pb2.Cluster.STATIC if is_ip(host) else cluster_pb2.Cluster.STRICT_DNS,
        connect_timeout=_FETCH_TIMEOUT,
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=JWKS_CLUSTER,
            endpoints=[
                {"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}}]}
            ],
        ),
    )
    if secure:
        cluster.transport_socket.CopyFrom(
            base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=packed(_tls(host, authority)))
        )
    return cluster


def _tls(host: str, authority: str | None) -> tls_pb2.UpstreamTlsContext:
    """Envoy verifies nothing by itself: neither who signed a certificate nor whose it is."""
    name_type = common_pb2.SubjectAltNameMatcher.IP_ADDRESS if is_ip(host) else common_pb2.SubjectAltNameMatcher.DNS
    trust = common_pb2.CertificateValidationContext(
        match_typed_subject_alt_names=[{"san_type": name_type, "matcher": {"exact": host}}]
    )
    if authority is not None:
        trust.trusted_ca.inline_string = authority
    else:
        trust.system_root_certs.SetInParent()
    return tls_pb2.UpstreamTlsContext(sni="" if is_ip(host) else host, common_tls_context={"validation_context": trust})
