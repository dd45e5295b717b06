"""The rules of RFC 9113 for a server, frame by frame."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.http2 import fields, frames
from ext_proc.http2.connection import Limits
from ext_proc.http2.frames import ErrorCode, frame
from ext_proc.http2.patience import AT_ONCE
from support.http2 import (
    OPENING,
    REQUEST,
    DataArrived,
    Recorded,
    RequestStarted,
    StreamReset,
    data,
    farewell,
    opened,
    request,
    resets,
    said,
)

HEAD = fields.block([(":status", "200")])
END = fields.block([("grpc-status", "0")])
BLOCK = fields.block(REQUEST)


def test_the_first_frame_is_settings_that_allow_no_table_and_say_our_limits() -> None:
    out = Recorded(Limits(concurrent_streams=7, stream_window=70_000, frame_size=20_000)).take_output()
    kind, flags, stream, payload = said(out)[0]
    assert (kind, flags, stream) == (frames.SETTINGS, 0, 0)
    told = dict(frames.read_settings(payload))
    assert told[frames.HEADER_TABLE_SIZE] == 0
    assert told[frames.MAX_CONCURRENT_STREAMS] == 7
    assert told[frames.INITIAL_WINDOW_SIZE] == 70_000
    assert told[frames.MAX_FRAME_SIZE] == 20_000


def test_settings_are_acknowledged_and_pings_are_answered_with_what_they_carry() -> None:
    connection = Recorded()
    connection.take_output()
    connection.receive(OPENING + frame(frames.PING, 0, 0, b"12345678"), 0.0)
    assert said(connection.take_output()) == [
        (frames.SETTINGS, frames.ACK, 0, b""),
        (frames.PING, frames.ACK, 0, b"12345678"),
    ]


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_bytes_may_come_in_any_pieces(step: int) -> None:
    connection = Recorded()
    sent = OPENING + request() + data(1, b"abc") + data(1, b"de", end=True)
    events = [e for at in range(0, len(sent), step) for e in connection.receive(sent[at : at + step], 0.0)]
    assert isinstance(events[0], RequestStarted)
    assert (events[0].head.method, events[0].head.path) == ("POST", "/test.Test/Test")
    assert events[1:] == [DataArrived(1, b"abc", False), DataArrived(1, b"de", True)]


def test_padding_and_priority_are_taken_off() -> None:
    connection = opened()
    padded = b"\x03" + b"\0\0\0\0\x10" + BLOCK + b"\0\0\0"
    flags = frames.PADDED | frames.WITH_PRIORITY | frames.END_HEADERS
    [started] = connection.receive(frame(frames.HEADERS, flags, 1, padded), 0.0)
    assert isinstance(started, RequestStarted)
    assert connection.receive(frame(frames.DATA, frames.PADDED, 1, b"\x02abc\0\0"), 0.0) == [
        DataArrived(1, b"abc", False)
    ]


def test_a_block_in_many_frames_is_one_block() -> None:
    connection = opened()
    sent = frame(frames.HEADERS, frames.END_STREAM, 1, BLOCK[:5])
    sent += frame(frames.CONTINUATION, 0, 1, BLOCK[5:9]) + frame(frames.CONTINUATION, frames.END_HEADERS, 1, BLOCK[9:])
    [started] = connection.receive(sent, 0.0)
    assert isinstance(started, RequestStarted)
    assert started.ended


def test_trailers_end_a_request() -> None:
    connection = opened()
    connection.receive(request(), 0.0)
    trailers = frames.headers(1, fields.block([("x-checksum", "1")]), 1 << 14, end_stream=True)
    assert connection.receive(trailers, 0.0) == [DataArrived(1, b"", True)]


CONNECTION_ERRORS = {
    "no preface": (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
    "no SETTINGS first": (frames.PREFACE + frame(frames.PING, 0, 0, b"12345678"), ErrorCode.PROTOCOL_ERROR),
    "an ACK first": (frames.PREFACE + frames.SETTINGS_ACK, ErrorCode.PROTOCOL_ERROR),
    "frame too large": (OPENING + b"\xff\xff\xff\0\0\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
    "DATA on stream 0": (OPENING + data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on an idle stream": (OPENING + data(1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on stream 0": (OPENING + request(0), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on an even stream": (OPENING + request(2), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on an older stream": (OPENING + request(5) + request(3), ErrorCode.STREAM_CLOSED),
    "padding beyond the frame": (
        OPENING + request() + frame(frames.DATA, frames.PADDED, 1, b"\5abc"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "padding without its length": (
        OPENING + request() + frame(frames.DATA, frames.PADDED, 1, b""),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a block that is no HPACK": (
        OPENING + frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "a block cut short": (
        OPENING + frame(frames.HEADERS, frames.END_HEADERS, 1, BLOCK[:-3]),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "fields beyond the limit": (
        OPENING + request(1, [(f"x{n}", "y" * 900) for n in range(40)]),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a frame within a block": (
        OPENING + frame(frames.HEADERS, 0, 1, BLOCK) + frame(frames.PING, 0, 0, b"12345678"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a block of another stream within": (
        OPENING + frame(frames.HEADERS, 0, 1, BLOCK) + frame(frames.CONTINUATION, 4, 3, b""),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "CONTINUATION of nothing": (OPENING + frame(frames.CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "endless CONTINUATION": (
        OPENING + frame(frames.HEADERS, 0, 1, b"") + frame(frames.CONTINUATION, 0, 1, b"x" * 9000) * 4,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "PRIORITY of stream 0": (OPENING + frame(frames.PRIORITY, 0, 0, b"12345"), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of an idle stream": (OPENING + frames.rst_stream(1, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of stream 0": (OPENING + frames.rst_stream(0, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of a wrong length": (
        OPENING + request() + frame(frames.RST_STREAM, 0, 1, b"123"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "SETTINGS of a stream": (OPENING + frame(frames.SETTINGS, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "SETTINGS of a wrong length": (OPENING + frame(frames.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS ACK with a payload": (OPENING + frame(frames.SETTINGS, 1, 0, b"123456"), ErrorCode.FRAME_SIZE_ERROR),
    "ENABLE_PUSH of 2": (OPENING + frames.settings([(2, 2)]), ErrorCode.PROTOCOL_ERROR),
    "INITIAL_WINDOW_SIZE too large": (OPENING + frames.settings([(4, 1 << 31)]), ErrorCode.FLOW_CONTROL_ERROR),
    "MAX_FRAME_SIZE too small": (OPENING + frames.settings([(5, 16_383)]), ErrorCode.PROTOCOL_ERROR),
    "MAX_FRAME_SIZE too large": (OPENING + frames.settings([(5, 1 << 24)]), ErrorCode.PROTOCOL_ERROR),
    "a window that settings overflow": (
        OPENING + request() + frames.window_update(1, (1 << 31) - 1 - 65_535) + frames.settings([(4, 65_536)]),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "PUSH_PROMISE": (OPENING + frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), ErrorCode.PROTOCOL_ERROR),
    "PING on a stream": (OPENING + frame(frames.PING, 0, 1, b"12345678"), ErrorCode.PROTOCOL_ERROR),
    "PING of a wrong length": (OPENING + frame(frames.PING, 0, 0, b"1234567"), ErrorCode.FRAME_SIZE_ERROR),
    "GOAWAY of a stream": (OPENING + frame(frames.GOAWAY, 0, 1, b"12345678"), ErrorCode.PROTOCOL_ERROR),
    "GOAWAY of a wrong length": (OPENING + frame(frames.GOAWAY, 0, 0, b"1234567"), ErrorCode.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of a wrong length": (
        OPENING + frame(frames.WINDOW_UPDATE, 0, 0, b"123"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "WINDOW_UPDATE of 0": (OPENING + frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE of an idle stream": (OPENING + frames.window_update(1, 1), ErrorCode.PROTOCOL_ERROR),
    "a connection window that overflows": (
        OPENING + frames.window_update(0, (1 << 31) - 1),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("name", CONNECTION_ERRORS)
def test_faults_of_the_connection_end_it_with_the_code_that_the_rfc_says(name: str) -> None:
    sent, code = CONNECTION_ERRORS[name]
    connection = Recorded()
    connection.receive(sent, 0.0)
    assert farewell(connection.take_output()) is code
    assert connection.is_over
    assert connection.receive(OPENING + request(9), 0.0) == []
    assert connection.take_output() == b""


def malformed(*changed: tuple[str, str], without: str = "") -> bytes:
    kept = [(name, value) for name, value in REQUEST if name != without]
    return frames.headers(1, fields.block((*kept, *changed)), 1 << 14, end_stream=False)


STREAM_ERRORS = {
    "a name in upper case": (malformed(("X-Up", "1")), ErrorCode.PROTOCOL_ERROR),
    "an empty name": (malformed(("", "1")), ErrorCode.PROTOCOL_ERROR),
    "a line break in a value": (malformed(("x", "1\r\ny: 2")), ErrorCode.PROTOCOL_ERROR),
    "a blank before a value": (malformed(("x", " 1")), ErrorCode.PROTOCOL_ERROR),
    "a field of HTTP/1": (malformed(("connection", "close")), ErrorCode.PROTOCOL_ERROR),
    "te of HTTP/1": (malformed(("te", "gzip")), ErrorCode.PROTOCOL_ERROR),
    "a pseudo-header after others": (malformed((":authority", "x"), without=":authority"), ErrorCode.PROTOCOL_ERROR),
    "a pseudo-header twice": (
        frames.headers(1, fields.block([(":method", "GET"), *REQUEST]), 1 << 14, end_stream=False),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "an unknown pseudo-header": (malformed((":status", "500")), ErrorCode.PROTOCOL_ERROR),
    "no path": (malformed(without=":path"), ErrorCode.PROTOCOL_ERROR),
    "a content-length that is none": (malformed(("content-length", "-1")), ErrorCode.PROTOCOL_ERROR),
    "a body that is shorter than announced": (
        malformed(("content-length", "3")) + data(1, b"ab", end=True),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a body that is longer than announced": (
        malformed(("content-length", "3")) + data(1, b"abcd"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "an announced body that does not come": (request(1, [("content-length", "3")], end=True), ErrorCode.PROTOCOL_ERROR),
    "trailers that do not end": (
        request() + frames.headers(1, fields.block([("x", "1")]), 1 << 14, end_stream=False),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "pseudo-headers in trailers": (
        request() + frames.headers(1, fields.block([(":path", "/")]), 1 << 14, end_stream=True),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "DATA after the end": (request(end=True) + data(1, b"x"), ErrorCode.STREAM_CLOSED),
    "HEADERS after the end": (
        request(end=True) + frames.headers(1, fields.block([("x", "1")]), 1 << 14, end_stream=True),
        ErrorCode.STREAM_CLOSED,
    ),
    "PRIORITY of a wrong length": (request() + frame(frames.PRIORITY, 0, 1, b"1234"), ErrorCode.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of 0": (request() + frames.window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
    "a window that overflows": (request() + frames.window_update(1, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
}


@pytest.mark.parametrize("name", STREAM_ERRORS)
def test_faults_of_a_stream_end_only_it_with_the_code_that_the_rfc_says(name: str) -> None:
    sent, code = STREAM_ERRORS[name]
    connection = opened()
    events = connection.receive(sent, 0.0)
    assert resets(connection.take_output()) == {1: code}
    if any(isinstance(event, RequestStarted) for event in events):
        assert events[-1] == StreamReset(1, code)
    [started] = connection.receive(request(3), 0.0)
    assert isinstance(started, RequestStarted)
    connection.receive(data(1, b"still on its way") + frames.window_update(1, 5), 0.0)
    assert connection.take_output() == b""


def test_more_streams_than_allowed_are_refused_and_those_that_end_make_room() -> None:
    connection = opened(Limits(concurrent_streams=2))
    connection.receive(request(1, end=True) + request(3) + request(5), 0.0)
    assert resets(connection.take_output()) == {5: ErrorCode.REFUSED_STREAM}
    connection.send_headers(1, HEAD)
    connection.end(1, END)
    [started] = connection.receive(request(7), 0.0)
    assert isinstance(started, RequestStarted)


def test_data_beyond_the_windows_is_a_fault() -> None:
    connection = opened(Limits(stream_window=65_535, connection_window=65_535 * 2))
    connection.receive(request(1) + data(1, b"x" * 60_000)[:30_000], 0.0)
    limits = Limits(stream_window=100, connection_window=70_000)
    connection = opened(limits)
    events = connection.receive(request(1) + data(1, b"x" * 101), 0.0)
    assert events[-1] == StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)
    assert farewell(connection.take_output()) is None
    connection = opened(Limits(stream_window=1 << 20, connection_window=65_535, frame_size=1 << 17))
    connection.receive(request(1) + data(1, b"x" * 65_536), 0.0)
    assert farewell(connection.take_output()) is ErrorCode.FLOW_CONTROL_ERROR


def test_a_stream_that_the_client_resets_is_told_of_unless_it_was_answered() -> None:
    connection = opened()
    connection.receive(request(1) + request(3), 0.0)
    connection.send_headers(3, HEAD)
    connection.end(3, END)
    sent = frames.rst_stream(1, ErrorCode.CANCEL) + frames.rst_stream(3, ErrorCode.CANCEL)
    assert connection.receive(sent, 0.0) == [StreamReset(1, ErrorCode.CANCEL)]
    connection.take_output()
    connection.send_data(1, b"x")
    assert connection.take_output() == b""


def test_a_client_that_goes_on_after_the_answer_is_asked_to_stop() -> None:
    connection = opened()
    connection.receive(request(1), 0.0)
    connection.send_headers(1, HEAD)
    connection.end(1, END)
    connection.take_output()
    assert connection.receive(data(1, b"x"), 0.0) == []
    assert resets(connection.take_output()) == {1: ErrorCode.NO_ERROR}


@given(st.integers(0, 40_000), st.integers(0, 70_000), st.integers(0, 3), st.sampled_from([16_384, 30_000]))
def test_an_answer_in_one_is_what_it_is_in_three(window: int, size: int, more: int, frame_size: int) -> None:
    written = []
    for in_one in (True, False):
        connection = opened()
        connection.receive(frames.settings([(frames.INITIAL_WINDOW_SIZE, window), (frames.MAX_FRAME_SIZE, frame_size)]))
        connection.receive(request(1) + request(3, end=True))
        connection.take_output()
        out = b""
        for stream_id in (1, 3):
            if in_one:
                connection.send_whole(stream_id, HEAD, b"x" * size, END)
            else:
                connection.send_headers(stream_id, HEAD)
                connection.send_data(stream_id, b"x" * size)
                connection.end(stream_id, END)
            out += connection.take_output()
        for _ in range(more):
            connection.receive(frames.window_update(0, 20_000) + frames.window_update(3, 20_000))
            out += connection.take_output()
        written.append((said(out), sorted(connection.connection._streams)))
    assert written[0] == written[1]


FLOODS = {
    "pings": frame(frames.PING, 0, 0, b"12345678"),
    "settings": frames.settings([]),
    "priorities": frame(frames.PRIORITY, 0, 3, b"12345"),
    "window updates": frames.window_update(0, 1),
    "empty data": data(1, b""),
    "unknown frames": frame(0xBE, 0, 0, b""),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_that_bring_nothing_are_taken_up_to_a_limit(name: str) -> None:
    connection = opened()
    connection.receive(request(1), 0.0)
    connection.receive(FLOODS[name] * (AT_ONCE - 10), 0.0)
    assert farewell(connection.take_output()) is None
    connection.receive(FLOODS[name] * 500, 1.0)  # a second later there is room again
    assert farewell(connection.take_output()) is None
    connection.receive(FLOODS[name] * AT_ONCE, 1.0)
    assert farewell(connection.take_output()) is ErrorCode.ENHANCE_YOUR_CALM


def test_resets_one_after_the_other_are_taken_up_to_a_limit() -> None:
    connection = opened()
    for stream_id in range(1, 2 * AT_ONCE + 5, 2):
        connection.receive(request(stream_id) + frames.rst_stream(stream_id, ErrorCode.CANCEL), 0.0)
    assert farewell(connection.take_output()) is ErrorCode.ENHANCE_YOUR_CALM


def test_resets_of_what_was_answered_are_not_limited() -> None:
    connection = opened()
    for stream_id in range(1, 4 * AT_ONCE, 2):
        connection.receive(request(stream_id), 0.0)
        connection.end(stream_id, END)
        connection.receive(frames.rst_stream(stream_id, ErrorCode.CANCEL), 0.0)
    assert farewell(connection.take_output()) is None


def test_faults_of_streams_one_after_the_other_are_taken_up_to_a_limit() -> None:
    connection = opened()
    bad = fields.block([(":method", "GET")])
    for stream_id in range(1, 2 * AT_ONCE + 5, 2):
        connection.receive(frames.headers(stream_id, bad, 1 << 14, end_stream=True), 0.0)
    assert farewell(connection.take_output()) is ErrorCode.ENHANCE_YOUR_CALM


def test_draining_serves_what_comes_before_the_client_knows_and_nothing_after() -> None:
    connection = opened()
    connection.receive(request(1, end=True), 0.0)
    connection.drain()
    (kind, _, _, payload), (ping, _, _, asked) = said(connection.take_output())
    assert (kind, struct.unpack(">II", payload[:8])) == (frames.GOAWAY, ((1 << 31) - 1, 0))
    assert ping == frames.PING
    [started] = connection.receive(request(3, end=True), 0.0)
    assert isinstance(started, RequestStarted)
    connection.receive(frame(frames.PING, frames.ACK, 0, asked), 0.0)
    [(kind, _, _, payload)] = said(connection.take_output())
    assert (kind, struct.unpack(">II", payload[:8])) == (frames.GOAWAY, (3, 0))
    assert connection.receive(request(5, end=True), 0.0) == []
    for stream_id in (1, 3):
        assert not connection.is_over
        connection.end(stream_id, END)
    assert connection.is_over


def test_closing_resets_all_streams_and_says_goodbye() -> None:
    connection = opened()
    connection.receive(request(1) + request(3), 0.0)
    assert connection.close() == [StreamReset(1, 0), StreamReset(3, 0)]
    assert farewell(connection.take_output()) is ErrorCode.NO_ERROR
    assert connection.close() == []
