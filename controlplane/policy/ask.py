"""Reads out of an HTTP request what routing needs to know, as an `Ask`.

Lenient: a field of a type that no engine would take is as good as absent, and unknown fields and endpoints pass. Only
what no engine could read is refused. Nothing is judged here; `classify` and `budget` do that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import structs

from controlplane.features import Features
from controlplane.model import Ask, Endpoint, FormatTier, HttpRequest, Refusal
from controlplane.policy.body import ABSENT, Body, Unusual, model_of, read_body
from controlplane.policy.prompt import Prompt, read_prompt
from controlplane.policy.sessions import session_of
from controlplane.policy.settings import Policy
from controlplane.policy.text import count_text, cut_data_uris, excerpt

_MAX_TOKENS = 2**31 - 1
_MAX_CHOICES = 1024
_UNENCODED = frozenset({"", "identity"})
# To make an object of each takes a microsecond, while everybody else waits. Prompts of a million tokens have far fewer,
# and what is smaller cannot have enough to matter.
_MOST_OPENED = 200_000
_LARGE_BYTES = 1 << 20
_MODELS = "/v1/models/"
_METHODS = frozenset({"POST", "PUT", "PATCH"})
_ENDPOINTS = (
    ("/chat/completions", Endpoint.CHAT),
    ("/completions", Endpoint.COMPLETIONS),
    ("/responses", Endpoint.RESPONSES),
    ("/messages", Endpoint.MESSAGES),
    ("/embeddings", Endpoint.EMBEDDINGS),
)


_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class _Around(NamedTuple):
    """What there is of a request besides its body."""

    request: HttpRequest
    policy: Policy
    tenant: str
    known_by: str


def parse(request: HttpRequest, policy: Policy, tenant: str = "", known_by: str = "") -> Ask | Refusal:
    """What routing needs to know of a request, or the error to answer when no engine could read it.

    `tenant` is whom `access` found it to be from, `known_by` how.
    """
    endpoint = endpoint_of(request.method, request.path)
    around = _Around(request, policy, tenant, known_by)
    body = request.body
    if endpoint is Endpoint.MODELS or endpoint is Endpoint.OTHER:
        return _ask_by_name(endpoint, model_of(body), None, around)
    if request.headers.get("content-encoding", "").strip().lower() not in _UNENCODED:
        return Refusal(
            415,
            "invalid_request_error",
            "unsupported_content_encoding",
            "Request bodies must not be compressed; send it without Content-Encoding.",
        )
    if len(body) > _LARGE_BYTES and body.count(b"{") + body.count(b"[") > _MOST_OPENED:
        return _unreadable(f"it opens more than {_MOST_OPENED} objects and arrays; send fewer")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            return _unreadable(f"byte {error.start} is not valid UTF-8")
    try:
        return _ask(endpoint, read_body(endpoint, body), around)
    except (msgspec.MsgspecError, RecursionError):
        return _parse_what_python_reads(endpoint, around)


def model_in(path: str) -> str | None:
    """The model that a request to the models' API asks of by its path; None where it asks of all."""
    name = unquote(path.partition("?")[0].partition(_MODELS)[2])
    return name.rstrip("/") or None


@lru_cache(maxsize=256)
def endpoint_of(method: str, path: str) -> Endpoint:
    """The API of a request by the end of its path, whatever stands before it."""
    bare = path.partition("?")[0].rstrip("/")
    if method in _METHODS:
        for suffix, endpoint in _ENDPOINTS:
            if bare.endswith(suffix):
                return endpoint
    elif method == "GET" and _MODELS in f"{bare}/":
        return Endpoint.MODELS
    return Endpoint.OTHER


# --- decoding ------------------------------------------------------------------------------------------------------


def _parse_what_python_reads(endpoint: Endpoint, around: _Around) -> Ask | Refusal:
    """Reads JSON as Python's own parser does, which engines use: it takes NaN, lone surrogates and numbers of any size.

    Numbers that no field can mean are made harmless and text is made valid, then it is read as usual.
    """
    try:
        value = json.loads(around.request.body, parse_constant=_no_number, parse_float=_finite, parse_int=_bounded)
        if not isinstance(value, dict):
            return _unreadable(f"it must be an object, not {_kind(value)}")
        plain = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        return _ask(endpoint, read_body(endpoint, plain), around)
    except json.JSONDecodeError as error:
        return _unreadable(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except UnicodeDecodeError:  # Python tries UTF-16 and UTF-32 where there are zero bytes
        return _unreadable("it is not UTF-8")
    except RecursionError:
        return _unreadable("it is nested too deeply")


def _no_number(_: str) -> None:
    return None


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _bounded(digits: str) -> int:
    if len(digits) < 19:
        return int(digits)
    return -(2**63) if digits.startswith("-") else 2**63 - 1


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return "a number"


def _unreadable(why: str) -> Refusal:
    return Refusal(400, "invalid_request_error", "invalid_json", f"The request body could not be read as JSON: {why}.")


# --- reading fields ------------------------------------------------------------------------------------------------


def _ask(endpoint: Endpoint, body: Body, around: _Around) -> Ask:
    if endpoint is Endpoint.EMBEDDINGS:
        return _ask_by_name(endpoint, body.model, body, around)
    request, policy, tenant, known_by = around
    headers = request.headers
    prompt = read_prompt(body)
    preferred = headers.get("x-headrace-format", "").strip().lower()
    preference = _tier(preferred) if preferred else None
    first, last = prompt.first_user, prompt.last_user
    rules = policy.sensitivity
    last_user = excerpt(last, rules.head_chars, rules.tail_chars)
    ask = Ask(
        endpoint=endpoint,
        model=_name(body.model),
        system=excerpt("\n".join(prompt.system), rules.head_chars, rules.tail_chars),
        first_user=last_user if first is last else excerpt(first, rules.head_chars, rules.tail_chars),
        last_user=last_user,
        features=_features(prompt, body, request.body),
        temperature=_number(body.temperature),
        top_p=_number(body.top_p),
        output_cap=_output_cap(body),
        stream=body.stream is True,
        session=session_of(headers, body, policy.sessions),
        tenant=tenant,
        known_by=known_by,
        preference=preference,
        preference_unknown=preference is None and bool(preferred),
        debug=_wants_debug(headers),
        body_bytes=len(request.body),
    )
    return ask if body.is_usual else _with_unusual(ask, body)


def _ask_by_name(endpoint: Endpoint, model: object, body: Body | None, around: _Around) -> Ask:
    """Of a request that is routed by its model alone."""
    request, policy, tenant, known_by = around
    return Ask(
        endpoint=endpoint,
        model=_name(model),
        session=session_of(request.headers, body, policy.sessions),
        tenant=tenant,
        known_by=known_by,
        debug=_wants_debug(request.headers),
        body_bytes=len(request.body),
    )


def _with_unusual(ask: Ask, body: Unusual) -> Ask:
    return structs.replace(
        ask,
        top_k=_integer(body.top_k),
        min_p=_number(body.min_p),
        seed=_integer(body.seed),
        logprobs=_wants_logprobs(body),
        structured_output=_is_structured(body),
        reasoning=_wants_reasoning(body),
        choices=min(max(1, _integer(body.n) or 1, _integer(body.best_of) or 1), _MAX_CHOICES),
        output_floor=_output_floor(body),
    )


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    """A finite number, or None; engines also take one written as a string."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (float, int, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None


def _integer(value: object) -> int | None:
    """A whole number; engines also take 8.0 and "8"."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


def _output_cap(body: Body) -> int | None:
    for value in (body.max_completion_tokens, body.max_tokens, body.max_output_tokens):
        cap = _integer(value)
        if cap is not None and cap > 0:  # llama.cpp reads -1 as no cap
            return min(cap, _MAX_TOKENS)
    return None


def _features(prompt: Prompt, body: Body, data: bytes) -> Features:
    """In one pass over all text. Of a body of more pieces than are looked at the raw bytes are counted, which are more
    than its text: that errs on the safe side."""
    tools = 0
    texts = [*prompt.texts, *prompt.calls]
    for raw in (body.tools, body.functions):
        if not _is_null(raw):
            text, uris = cut_data_uris(bytes(raw).decode(errors="replace"))
            texts.append(text)
            prompt.images += uris
            try:
                tools += len(_items_decoder.decode(raw))
            except msgspec.ValidationError:
                continue
    return Features(
        text=count_text(data.decode(errors="replace") if prompt.is_cut else "\n".join(texts)),
        messages=prompt.messages,
        tools=tools,
        calls=len(prompt.calls),
        images=prompt.images,
        token_ids=prompt.token_ids,
        schema_bytes=0 if _is_null(body.response_format) else len(memoryview(body.response_format)),
        is_cut=prompt.is_cut,
    )


def _is_null(raw: msgspec.Raw) -> bool:
    return raw is ABSENT or bytes(raw) == b"null"


def _output_floor(body: Unusual) -> int:
    """vLLM refuses a cap below `min_tokens`, and Anthropic's API one that is not above what thinking may take."""
    floor = _integer(body.min_tokens) or 0
    if isinstance(body.thinking, dict):
        thinking = _integer(body.thinking.get("budget_tokens")) or 0
        floor = max(floor, thinking + 1 if thinking > 0 else 0)
    return min(max(floor, 0), _MAX_TOKENS)


def _is_structured(body: Unusual) -> bool:
    for raw in (
        body.structured_outputs,
        body.guided_json,
        body.guided_regex,
        body.guided_choice,
        body.guided_grammar,
        body.json_schema,
        body.grammar,
        body.regex,
        body.ebnf,
    ):
        if raw is not ABSENT and not _is_null(raw):
            return True
    for raw in (body.response_format, body.output_format):
        if not _is_null(raw) and _format_type(raw) not in {None, "text"}:
            return True
    return not _is_null(body.text) and _text_format_type(body.text) not in {None, "text"}


def _format_type(raw: msgspec.Raw) -> str | None:
    return _type_of(msgspec.json.decode(raw))


def _text_format_type(raw: msgspec.Raw) -> str | None:
    """The `format` of the responses API's `text` field, which also has fields that say nothing of structure."""
    value = msgspec.json.decode(raw)
    return _type_of(value.get("format")) if isinstance(value, dict) else None


def _type_of(form: object) -> str | None:
    kind = form.get("type") if isinstance(form, dict) else None
    return kind if isinstance(kind, str) else None


def _wants_logprobs(body: Unusual) -> bool:
    # A boolean in chat, a number in completions, where 0 asks for the chosen token's own.
    if body.logprobs is True or (_integer(body.logprobs) is not None):
        return True
    return any((_integer(value) or 0) > 0 for value in (body.top_logprobs, body.prompt_logprobs))


def _wants_reasoning(body: Unusual) -> bool:
    if isinstance(body.reasoning_effort, str) and body.reasoning_effort not in {"none", ""}:
        return True
    match body.reasoning:
        case {"effort": str(effort)}:
            return effort not in {"none", ""}
        case {"max_tokens": int(tokens)}:
            return tokens > 0
    match body.thinking:
        case {"type": str(kind)}:
            return kind != "disabled"
    match body.chat_template_kwargs:
        case {"enable_thinking": True} | {"thinking": True}:
            return True
    return False


# --- headers -------------------------------------------------------------------------------------------------------


def _tier(name: str) -> FormatTier | None:
    for tier in FormatTier:
        if name == tier:
            return tier
    return None


def _wants_debug(headers: Mapping[str, str]) -> bool:
    return headers.get("x-headrace-debug", "").strip().lower() in {"1", "true", "yes"}
