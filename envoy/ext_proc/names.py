"""Every header and metadata name that the filter reads or writes, with what it is for."""

from __future__ import annotations

from typing import Final

# Request headers, from Envoy to the filter.
METHOD: Final = ":method"
PATH: Final = ":path"
CONTENT_LENGTH: Final = "content-length"
# What a client may ask for by `x-headrace-NAME` reaches the filter as `headrace-wish-NAME`: the listener renames it,
# and strips every other `x-headrace-*` header.
WISH_PREFIX: Final = "headrace-wish-"
CLIENT_PREFIX: Final = "x-headrace-"

# Request header that names the cluster, a pool or its settled nodes; the routes match it, and remove it before the
# engine.
POOL: Final = "x-headrace-pool"

# Response headers. Envoy writes them from the metadata below on answers of engines; the filter on its own answers.
RESPONSE_REASON: Final = "x-headrace-reason"
RESPONSE_ACTION: Final = "x-headrace-action"

# Dynamic metadata of the decision, which response headers and the access log read.
NAMESPACE: Final = "headrace"
KEY_POOL: Final = "pool"
KEY_FORMAT: Final = "format"
KEY_VERDICT: Final = "verdict"
KEY_ACTION: Final = "action"  # only of what pressure has done: degrade or fallback
KEY_DEGRADED_TO: Final = "degraded_to"  # such as model=NAME or max_tokens=COUNT
KEY_DEBUG: Final = "debug"  # only for x-headrace-debug: a summary, sent back as x-headrace-decision
KEY_DECISION: Final = "decision"  # base64 of headrace.v1.Decision, for the control plane
KEY_MADE: Final = "made"  # by which worker, in which minute, as which of its decisions, for the control plane
KEY_BILL: Final = "bill"  # the tokens that the request was charged with, for the filter itself
# With OpenAI's names after it: limit-requests and so on, sent back as x-ratelimit-limit-requests.
KEY_RATE_PREFIX: Final = "ratelimit-"
RATE_PREFIX: Final = "x-ratelimit-"

# Dynamic metadata of Envoy's filters that read usage out of answers.
USAGE_NAMESPACE: Final = "headrace.usage"
USAGE_KEYS: Final = ("prompt_tokens", "completion_tokens")
