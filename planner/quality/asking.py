"""What is sent of a request, greedily or as asked: streamed, bounded, with log-probabilities, in no session."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from controlplane.model import FormatTier
from controlplane.policy.settings import SessionRules
from planner.quality.sample import CHAT, Sample

# What makes several answers, or other than the likeliest one. Temperature 0 alone is greedy with vLLM, SGLang and
# llama.cpp; what narrows or bends the choice beside it could only make both tiers' answers more alike.
_SAMPLING = ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_SEVERAL = ("n", "best_of", "use_beam_search")
# The gateway's own, and what the HTTP client writes by itself.
_NOT_SENT = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"})
_OWN_PREFIX = "x-headrace-"


class Mode(StrEnum):
    """How an answer is asked for."""

    GREEDY = "greedy"
    AS_ASKED = "as_asked"


def is_greedy(body: Mapping[str, Any]) -> bool:
    """Whether the request asks for the likeliest answer by itself, so that both modes are the same."""
    temperature = body.get("temperature")
    hot = not isinstance(temperature, int | float) or temperature > 0
    return not hot or body.get("top_k") == 1


def body_to_send(
    sample: Sample, mode: Mode, model: str, *, max_tokens: int, seed: int, rules: SessionRules
) -> dict[str, Any]:
    """The body for one answer of at most `max_tokens`; in greedy mode with the seed, else with the request's own."""
    body = {name: value for name, value in sample.body.items() if name not in _SEVERAL}
    for path in rules.body_fields:
        _remove(body, path.split("."))
    if mode is Mode.GREEDY:
        for name in _SAMPLING:
            body.pop(name, None)
        body |= {"temperature": 0, "seed": seed}
    capped = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    own = body.get(capped)
    body[capped] = min(own, max_tokens) if isinstance(own, int) and own > 0 else max_tokens
    body["model"] = model
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | ({"logprobs": True, "top_logprobs": 1} if sample.path == CHAT else {"logprobs": 1})


def without_logprobs(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in {"logprobs", "top_logprobs"}}


def headers_to_send(sample: Sample, more: Mapping[str, str], tier: FormatTier, rules: SessionRules) -> dict[str, str]:
    """The request's own headers without those of sessions, whose pins would be stronger than the wish for a tier."""
    unwanted = {name.lower() for name in rules.headers} | _NOT_SENT
    headers = {
        name: value
        for name, value in {**sample.headers, **more}.items()
        if name not in unwanted and not name.startswith(_OWN_PREFIX)
    }
    return headers | {f"{_OWN_PREFIX}format": tier.value, f"{_OWN_PREFIX}debug": "1"}


def _remove(body: dict[str, Any], path: list[str]) -> None:
    """Takes a nested field out, without a change of what the objects on the way are shared with."""
    name, *rest = path
    if not rest:
        body.pop(name, None)
    elif isinstance(body.get(name), dict):
        body[name] = dict(body[name])
        _remove(body[name], rest)
