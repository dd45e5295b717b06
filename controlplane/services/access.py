"""Who may call what: bearer tokens checked before any service runs, over gRPC and over HTTP.

Nodes and filters carry a node token, people an operator token; operators may do what nodes may. Where no tokens are
configured for a kind, anybody may (the configuration allows that on loopback only, unless told otherwise). Health and
reflection are open.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

_log = logging.getLogger(__name__)

# Between two lines about refused calls: whoever can reach the port can have calls refused.
LOG_SECONDS = 10.0

REGISTRY = "/headrace.v1.Registry/"
OF_FILTERS = frozenset({"/headrace.v1.Fleet/WatchRoutingTable", "/headrace.v1.Fleet/ReportWorker"})
FLEET = "/headrace.v1.Fleet/"
ADMIN = "/headrace.v1.Admin/"


class BearerTokens(grpc.aio.ServerInterceptor):
    """Refuses calls without a fitting token with UNAUTHENTICATED, says which kind is needed and which was shown, and
    logs it, at most one line in LOG_SECONDS. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        node_tokens: Iterable[str],
        operator_tokens: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._operators = tuple(token.encode() for token in operator_tokens)
        self._nodes = tuple(token.encode() for token in node_tokens)
        self._clock = clock
        self._logged_at: float | None = None
        self._not_logged = 0

    @property
    def knows_operators(self) -> bool:
        return bool(self._operators)

    def refusal_of_operator(self, authorization: str, call: str) -> str | None:
        """Why this value of an `authorization` header does not show an operator token; None when it does."""
        shown = authorization.encode("utf-8", "replace")
        return None if _fits(shown, self._operators) else self._refusal("operator", shown, call, "HTTP")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        needed, accepted = self._needed(method)
        if not accepted or handler is None:
            return handler
        shown = _authorization(handler_call_details.invocation_metadata)
        if _fits(shown, accepted):
            return handler
        return _refusing(handler, lambda peer: self._refusal(needed, shown, method, peer))

    def _refusal(self, needed: str, shown: bytes, call: str, peer: str) -> str:
        """What is said of it; it is logged with who called."""
        if not shown:
            found = ""
        elif needed == "operator" and _fits(shown, self._nodes):
            found = ", and the one shown is a node's"
        else:
            found = ", and the one shown is not known here"
        self._log(call, peer, f"no {needed} token{found}")
        return f"this call needs `authorization: Bearer <{needed} token>`{found}"

    def _log(self, call: str, peer: str, why: str) -> None:
        now = self._clock()
        if self._logged_at is not None and now - self._logged_at < LOG_SECONDS:
            self._not_logged += 1
            return
        _log.warning(
            "call refused call=%s peer=%s why=%s others_since_the_last_line=%d", call, peer, why, self._not_logged
        )
        self._logged_at, self._not_logged = now, 0

    def _needed(self, method: str) -> tuple[str, tuple[bytes, ...]]:
        """The kind of token, and the tokens that do; none means open."""
        if method.startswith(REGISTRY) or method in OF_FILTERS:
            return "node", (*self._nodes, *self._operators) if self._nodes else ()
        if method.startswith((FLEET, ADMIN)):
            return "operator", self._operators
        return "", ()


def _authorization(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    for name, value in metadata:
        if name == "authorization":
            return value.encode() if isinstance(value, str) else value
    return b""


def _fits(authorization: bytes, accepted: Iterable[bytes]) -> bool:
    scheme, _, token = authorization.partition(b" ")
    # Every token is compared, each in constant time, so that timing tells nothing.
    fits = [hmac.compare_digest(token.strip(), candidate) for candidate in accepted]
    return scheme.lower() == b"bearer" and any(fits)


def _refusing(
    handler: grpc.RpcMethodHandler[Any, Any], message_for: Callable[[str], str]
) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler of the same kind that refuses every call; `message_for` is given who calls."""

    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message_for(context.peer()))

    async def refuse_stream(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message_for(context.peer()))
        yield  # pragma: no cover - makes this an async generator

    makers = {
        (False, False): (grpc.unary_unary_rpc_method_handler, refuse),
        (False, True): (grpc.unary_stream_rpc_method_handler, refuse_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, refuse),
        (True, True): (grpc.stream_stream_rpc_method_handler, refuse_stream),
    }
    make, behaviour = makers[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)
