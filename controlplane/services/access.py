"""Who may call what: bearer tokens checked before any service runs, over gRPC and over HTTP.

Nodes and filters carry a node token, people an operator token; operators may do what nodes may. Where no tokens are
configured for a kind, anybody may (the configuration allows that on loopback only, unless told otherwise). Health and
reflection are open.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

REGISTRY = "/headrace.v1.Registry/"
WATCH_ROUTING_TABLE = "/headrace.v1.Fleet/WatchRoutingTable"
FLEET = "/headrace.v1.Fleet/"
ADMIN = "/headrace.v1.Admin/"


class BearerTokens(grpc.aio.ServerInterceptor):
    """Refuses calls without a fitting token with UNAUTHENTICATED, and says which kind is needed, not why it failed."""

    def __init__(self, node_tokens: Iterable[str], operator_tokens: Iterable[str]) -> None:
        self._operators = tuple(token.encode() for token in operator_tokens)
        self._nodes = tuple(token.encode() for token in node_tokens)

    @property
    def knows_operators(self) -> bool:
        return bool(self._operators)

    def admits_operator(self, authorization: str) -> bool:
        """Whether this value of an `authorization` header shows an operator token."""
        return _fits(authorization.encode("utf-8", "replace"), self._operators)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        needed, accepted = self._needed(handler_call_details.method)
        if not accepted or handler is None or _carries(handler_call_details.invocation_metadata, accepted):
            return handler
        return _refusing(handler, f"this call needs `authorization: Bearer <{needed} token>`")

    def _needed(self, method: str) -> tuple[str, tuple[bytes, ...]]:
        """The kind of token, and the tokens that do; none means open."""
        if method.startswith(REGISTRY) or method == WATCH_ROUTING_TABLE:
            return "node", (*self._nodes, *self._operators) if self._nodes else ()
        if method.startswith((FLEET, ADMIN)):
            return "operator", self._operators
        return "", ()


def _carries(metadata: Iterable[tuple[str, str | bytes]], accepted: Iterable[bytes]) -> bool:
    for name, value in metadata:
        if name == "authorization":
            return _fits(value.encode() if isinstance(value, str) else value, accepted)
    return False


def _fits(authorization: bytes, accepted: Iterable[bytes]) -> bool:
    scheme, _, token = authorization.partition(b" ")
    # Every token is compared, each in constant time, so that timing tells nothing.
    fits = [hmac.compare_digest(token.strip(), candidate) for candidate in accepted]
    return scheme.lower() == b"bearer" and any(fits)


def _refusing(handler: grpc.RpcMethodHandler[Any, Any], message: str) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler of the same kind that refuses every call."""

    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

    async def refuse_stream(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        yield  # pragma: no cover - makes this an async generator

    makers = {
        (False, False): (grpc.unary_unary_rpc_method_handler, refuse),
        (False, True): (grpc.unary_stream_rpc_method_handler, refuse_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, refuse),
        (True, True): (grpc.stream_stream_rpc_method_handler, refuse_stream),
    }
    make, behaviour = makers[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)
