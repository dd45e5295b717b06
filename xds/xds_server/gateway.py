"""A gateway and its pools in plain words. `gateway_snapshot` of assembly.py makes Envoy resources of them.

The path of a request: the listener strips what clients must not say, the ext_proc filter names a pool in a header,
the route of that name leads to the cluster of that name.
"""

from __future__ import annotations

from dataclasses import dataclass

POOL_HEADER = "x-headrace-pool"
"""The request header by which the filter names the pool. Clients cannot set it, engines do not see it."""

TENANT_HEADER = "x-headrace-tenant"
"""The request header that tells the filter whom a verified token names. Clients cannot set it."""

PEER_HEADER = "x-headrace-peer"
"""The request header that tells the filter the address of whoever connected. As TENANT_HEADER."""

INTERNAL_PREFIX = "x-headrace-"
WISH_PREFIX = "headrace-wish-"
"""What a client may ask for by `x-headrace-NAME` reaches the filter, and only it, as `headrace-wish-NAME`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`ip` is an IPv4 or IPv6 address. `weight` shares traffic between the endpoints of a pool, 1 or more."""

    ip: str
    port: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class PoolCluster:
    """A pool: requests that name it go to its endpoints. None for `health_path` makes a TCP connection the check.

    `retried_at` names the pool that gets, once more, what an engine of this one answers with 400; empty for none.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    health_path: str | None = "/health"
    retried_at: str = ""

    @property
    def retrying(self) -> str:
        """The name of the cluster that leads to both; pools are not named so."""
        return f"{self.name}@retrying"


@dataclass(frozen=True, slots=True)
class UsageRule:
    """What to read out of responses: the `path` of keys to it, and the `key` that it gets in the access log.

    A number, or a `text` of at most 8 KiB, which is all that Envoy takes. A path leads through objects only: Envoy
    cannot look into arrays, so what stands in `choices` is out of reach.
    """

    path: tuple[str, ...]
    key: str
    text: bool = False


# OpenAI's chat/completions and completions; OpenAI's responses and Anthropic's messages; their events when streamed.
USAGE = (
    UsageRule(("usage", "prompt_tokens"), "prompt_tokens"),
    UsageRule(("usage", "completion_tokens"), "completion_tokens"),
    UsageRule(("usage", "input_tokens"), "prompt_tokens"),
    UsageRule(("usage", "output_tokens"), "completion_tokens"),
)
# Why an answer ended, where that does not stand in `choices`.
FINISH = (
    UsageRule(("incomplete_details", "reason"), "finish_reason", text=True),
    UsageRule(("stop_reason",), "finish_reason", text=True),
)
STREAMED_USAGE = (
    *USAGE,
    UsageRule(("response", "usage", "input_tokens"), "prompt_tokens"),
    UsageRule(("response", "usage", "output_tokens"), "completion_tokens"),
    UsageRule(("message", "usage", "input_tokens"), "prompt_tokens"),
    UsageRule(("message", "usage", "output_tokens"), "completion_tokens"),
    # llama.cpp's, in the last event of each stream: prompt tokens that it read, and those that it had read before.
    UsageRule(("timings", "prompt_n"), "read_tokens"),
    UsageRule(("timings", "cache_n"), "cached_tokens"),
    UsageRule(("timings", "predicted_n"), "predicted_tokens"),
    UsageRule(("response", "incomplete_details", "reason"), "finish_reason", text=True),
    UsageRule(("delta", "stop_reason"), "finish_reason", text=True),
)
# Of OpenAI's shape, and the flat one of SGLang and of vLLM before 0.10.
ERRORS = tuple(
    UsageRule((*parent, key), f"error_{key}", text=True)
    for parent in (("error",), ())
    for key in ("type", "code", "message")
)

# Where those are answered, so that usage is worth waiting for a body whose size is not known beforehand.
USAGE_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")

# Response header, and the key of the filter's metadata that it shows. Without the metadata there is no header.
RESPONSE_HEADERS = (
    ("x-headrace-pool", "pool"),
    ("x-headrace-format", "format"),
    ("x-headrace-verdict", "verdict"),
    ("x-headrace-action", "action"),
    ("x-headrace-degraded-to", "degraded_to"),
    ("x-headrace-decision", "debug"),
)
RATE_HEADERS = tuple(
    (f"x-ratelimit-{what}-{of}", f"ratelimit-{what}-{of}")
    for of in ("requests", "tokens")
    for what in ("limit", "remaining", "reset")
)

METADATA_NAMESPACE = "headrace"
# What the filter decided; requests that it has not seen have none.
DECISION_KEY = "decision"
# Of requests whose metadata has this key, the filter is told what became of them.
BILL_KEY = "bill"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Clients' tokens, and what makes them count. `claim` names the tenant.

    The issuer's public keys are `keys`, a JWKS, or are fetched from `keys_url` each `keys_refresh` seconds, by TLS from
    a server that `keys_authority` (PEM) vouches for, else the system's authorities. Empty for `issuer` or `audiences`
    is any.
    """

    claim: str
    keys: str = ""
    keys_url: str | None = None
    keys_authority: str | None = None
    keys_refresh: float = 300.0
    issuer: str = ""
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gateway:
    """One listener and its filter. Times are in seconds, sizes in bytes.

    `ext_proc` and `access_log` are addresses: `unix:/path`, `ip:port`, `[ipv6]:port` or `host:port`.

    Larger bodies than `max_body_bytes` are answered with 413. `request_timeout` bounds how long a client may take to
    send a request, `message_timeout` how long the filter may be silent once it has it: longer than the 1.5 s that
    finding out a hung worker takes, whose requests are then tried on another. `max_wait` is the most that the filter
    may ask for instead, by `override_message_timeout`.

    `metadata_namespace` is where the filter's dynamic metadata is; what is read out of responses, `errors` only of
    those with status 400, is in `<metadata_namespace>.usage`. Requests that the filter gave no pool go to
    `default_pool`, or get a 503. `tokens` are verified when there are any. `rates` says whether anybody is held to one,
    so that answers tell what is left of it.
    """

    ext_proc: tuple[str, ...]
    access_log: str | None = None
    host: str = "0.0.0.0"  # noqa: S104 (a gateway is there to be reached)
    port: int = 10000
    max_body_bytes: int = 10 << 20
    route_timeout: float = 600.0
    stream_idle_timeout: float = 600.0
    request_timeout: float = 120.0
    message_timeout: float = 4.0
    max_wait: float = 60.0
    default_pool: str | None = None
    tokens: Tokens | None = None
    rates: bool = True
    metadata_namespace: str = METADATA_NAMESPACE
    wishes: tuple[str, ...] = ("debug", "format")
    usage: tuple[UsageRule, ...] = (*USAGE, *FINISH)
    streamed_usage: tuple[UsageRule, ...] = STREAMED_USAGE
    errors: tuple[UsageRule, ...] = ERRORS
    usage_paths: tuple[str, ...] = USAGE_PATHS

    @property
    def buffer_bytes(self) -> int:
        """What a connection may hold back: the largest body, and what comes with it."""
        return self.max_body_bytes + (1 << 20)
