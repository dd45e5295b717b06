import pytest

from controlplane.model import HttpRequest
from ext_proc.exchange import Exchange, TooLarge

HEADERS = {":method": "POST", ":path": "/v1/chat/completions"}


def test_a_request_without_a_body_is_whole_with_its_headers() -> None:
    request = Exchange(10).take_headers({":method": "GET", ":path": "/v1/models"}, end_of_stream=True)
    assert isinstance(request, HttpRequest)
    assert (request.method, request.path, request.body) == ("GET", "/v1/models", b"")


def test_a_body_is_collected_until_the_end_of_the_stream() -> None:
    exchange = Exchange(10)
    assert exchange.take_headers(HEADERS, end_of_stream=False) is None
    assert exchange.take_body(b"abc", end_of_stream=False) is None
    request = exchange.take_body(b"de", end_of_stream=True)
    assert isinstance(request, HttpRequest)
    assert request.body == b"abcde"


def test_an_empty_last_chunk_ends_the_body() -> None:
    exchange = Exchange(10)
    exchange.take_headers(HEADERS, end_of_stream=False)
    exchange.take_body(b"abc", end_of_stream=False)
    request = exchange.take_body(b"", end_of_stream=True)
    assert isinstance(request, HttpRequest)
    assert request.body == b"abc"


def test_a_second_end_of_the_stream_is_ignored() -> None:
    exchange = Exchange(10)
    exchange.take_headers(HEADERS, end_of_stream=False)
    assert exchange.take_body(b"abc", end_of_stream=True) is not None
    assert exchange.take_body(b"abc", end_of_stream=True) is None


@pytest.mark.parametrize(("length", "allowed"), [("10", True), ("11", False), ("9" * 18, False)])
def test_an_announced_length_over_the_limit_is_refused_with_the_headers(length: str, allowed: bool) -> None:
    result = Exchange(10).take_headers({**HEADERS, "content-length": length}, end_of_stream=False)
    assert (result is None) is allowed


@pytest.mark.parametrize("length", ["", "-1", "x", "9" * 5000, "\u0661"])
def test_a_length_that_is_no_number_waits_for_the_body(length: str) -> None:
    assert Exchange(10).take_headers({**HEADERS, "content-length": length}, end_of_stream=False) is None


def test_a_body_over_the_limit_is_refused_at_the_byte_that_exceeds_it() -> None:
    exchange = Exchange(10)
    exchange.take_headers(HEADERS, end_of_stream=False)
    assert exchange.take_body(b"x" * 10, end_of_stream=False) is None
    result = exchange.take_body(b"x", end_of_stream=False)
    assert isinstance(result, TooLarge)
    assert (result.limit, result.head.path) == (10, "/v1/chat/completions")
    assert exchange.take_body(b"x", end_of_stream=True) is None
