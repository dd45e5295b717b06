"""Between ext_proc's protobuf messages and the filter's values. The only place that knows the shape of either side.

Header values go out as `raw_value` alone: Envoy refuses a header that has both, and drops `value` (envoy#31555).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from google.protobuf.struct_pb2 import Struct

from controlplane.model import HttpRequest
from ext_proc.answer import Answer, Reply, Route
from ext_proc.exchange import Exchange, TooLarge
from ext_proc.names import CLIENT_PREFIX, NAMESPACE, POOL, WISH_PREFIX
from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from headrace_protos.envoy.type.v3 import http_status_pb2


def take(exchange: Exchange, message: ext_proc.ProcessingRequest) -> HttpRequest | TooLarge | None:
    """Hand one message to the exchange. Kinds that the filter did not ask for are ignored."""
    match message.WhichOneof("request"):
        case "request_headers":
            headers = message.request_headers
            return exchange.take_headers(_header_map(headers.headers.headers), end_of_stream=headers.end_of_stream)
        case "request_body":
            body = message.request_body
            return exchange.take_body(body.body, end_of_stream=body.end_of_stream)
        case _:
            return None


def extension(seconds: float) -> ext_proc.ProcessingResponse:
    """Asks Envoy to wait for the answer so much longer from now on; it listens to the first one only."""
    return ext_proc.ProcessingResponse(override_message_timeout=timedelta(seconds=seconds))


def response(answer: Answer) -> ext_proc.ProcessingResponse:
    message = without_metadata(answer)
    message.dynamic_metadata.CopyFrom(_metadata(answer.metadata))
    return message


def without_metadata(answer: Answer) -> ext_proc.ProcessingResponse:
    match answer:
        case Route():
            return _route(answer)
        case Reply():
            return _reply(answer)


def _route(route: Route) -> ext_proc.ProcessingResponse:
    common = ext_proc.CommonResponse(
        header_mutation=ext_proc.HeaderMutation(
            set_headers=_set_headers([(POOL, route.cluster), *route.headers]), remove_headers=route.taken_off
        ),
        clear_route_cache=True,  # routes are matched before filters run; without it the pool header is ignored
    )
    if route.body is not None:
        common.status = ext_proc.CommonResponse.CONTINUE_AND_REPLACE
        common.body_mutation.body = route.body
    return ext_proc.ProcessingResponse(request_headers=ext_proc.HeadersResponse(response=common))


def _reply(reply: Reply) -> ext_proc.ProcessingResponse:
    return ext_proc.ProcessingResponse(
        immediate_response=ext_proc.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=reply.status),  # type: ignore[arg-type]
            headers=ext_proc.HeaderMutation(set_headers=_set_headers(reply.headers)),
            body=reply.body,
            details=reply.details,
        )
    )


def _header_map(headers: Iterable[base_pb2.HeaderValue]) -> dict[str, str]:
    """Of equal names the last counts."""
    return dict(map(header, headers))


def header(message: base_pb2.HeaderValue) -> tuple[str, str]:
    """Name and value. Latin-1 keeps every byte of a value, as HTTP/1.1 does."""
    return _name(message.key), message.raw_value.decode("latin-1") or message.value


def _name(key: str) -> str:
    """The header's name as clients know it, also that of a wish."""
    return CLIENT_PREFIX + key.removeprefix(WISH_PREFIX) if key.startswith(WISH_PREFIX) else key


def _set_headers(headers: Iterable[tuple[str, str]]) -> list[base_pb2.HeaderValueOption]:
    return [
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=name, raw_value=value.encode()),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for name, value in headers
    ]


def _metadata(values: Mapping[str, str]) -> Struct:
    metadata = Struct()
    ours = metadata.fields[NAMESPACE].struct_value
    ours.SetInParent()  # also when it is empty: a Value without a kind is none
    for key, value in values.items():
        ours.fields[key].string_value = value
    return metadata
