import pytest

from controlplane.model import HttpRequest
from ext_proc import wire
from ext_proc.answer import Reply, Route
from ext_proc.exchange import Exchange
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc


def take(*headers: tuple[str, bytes]) -> HttpRequest:
    message = ext_proc.ProcessingRequest()
    for key, value in headers:
        message.request_headers.headers.headers.add(key=key, raw_value=value)
    message.request_headers.end_of_stream = True
    request = wire.take(Exchange(10), message)
    assert isinstance(request, HttpRequest)
    return request


def test_a_wish_is_read_under_the_name_that_clients_use() -> None:
    request = take(("headrace-wish-debug", b"1"), ("x-headrace-wish-debug", b"2"))
    assert request.headers == {"x-headrace-debug": "1", "x-headrace-wish-debug": "2"}


def test_of_equal_headers_the_last_counts_and_every_byte_of_a_value_is_kept() -> None:
    request = take(("x-session-id", b"a"), ("x-session-id", b"\xffb"), ("empty", b""))
    assert request.headers == {"x-session-id": "\xffb", "empty": ""}


def test_values_of_older_envoys_are_read_too() -> None:
    message = ext_proc.ProcessingRequest()
    message.request_headers.headers.headers.add(key=":path", value="/v1/models")
    message.request_headers.end_of_stream = True
    request = wire.take(Exchange(10), message)
    assert isinstance(request, HttpRequest)
    assert request.path == "/v1/models"


@pytest.mark.parametrize("body", [None, b"{}"])
def test_a_route_overwrites_the_pool_header_and_clears_the_route(body: bytes | None) -> None:
    message = wire.response(Route("pool", {"pool": "pool"}, body))
    common = message.request_headers.response
    assert common.clear_route_cache
    [option] = common.header_mutation.set_headers
    assert (option.header.key, option.header.raw_value, option.header.value) == ("x-headrace-pool", b"pool", "")
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
    assert common.body_mutation.body == (body or b"")
    expected = ext_proc.CommonResponse.CONTINUE if body is None else ext_proc.CommonResponse.CONTINUE_AND_REPLACE
    assert common.status == expected
    assert message.dynamic_metadata.fields["headrace"].struct_value.fields["pool"].string_value == "pool"


def test_a_reply_is_an_immediate_response() -> None:
    message = wire.response(Reply(429, (("retry-after", "3"),), b"{}", {"reason": "r"}, "headrace_r"))
    reply = message.immediate_response
    assert (reply.status.code, reply.body, reply.details) == (429, b"{}", "headrace_r")
    assert [(o.header.key, o.header.raw_value) for o in reply.headers.set_headers] == [("retry-after", b"3")]
    assert message.dynamic_metadata.fields["headrace"].struct_value.fields["reason"].string_value == "r"
