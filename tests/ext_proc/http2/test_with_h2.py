"""Our end against the h2 library's client, in memory."""

from __future__ import annotations

import h2.events
import pytest

from ext_proc.http2 import fields
from ext_proc.http2.connection import Limits
from ext_proc.http2.frames import ErrorCode
from support.http2 import DataArrived, Pair

HEAD = fields.block([(":status", "200"), ("content-type", "application/grpc")])
END = fields.block([("grpc-status", "0"), ("grpc-message", "fine")])
MIB = 1 << 20


@pytest.mark.parametrize("step", [1, 5, 1 << 16])
def test_a_request_with_a_body_is_answered_with_data_and_trailers(step: int) -> None:
    pair = Pair(step=step)
    stream_id = pair.begin([("x-long", "v" * 300)])
    pair.client.send_data(stream_id, b"question", end_stream=True, pad_length=9)
    pair.pump()
    [started] = pair.heads_at_server()
    assert (started.head.path, started.head.fields["x-long"]) == ("/test.Test/Test", "v" * 300)
    assert pair.body_at_server(stream_id) == b"question"
    pair.server.send_headers(stream_id, HEAD)
    pair.server.send_data(stream_id, b"answer")
    pair.server.end(stream_id, END)
    pair.pump()
    kinds = [type(event) for event in pair.at_client if getattr(event, "stream_id", 0)]
    assert kinds == [
        h2.events.ResponseReceived,
        h2.events.DataReceived,
        h2.events.TrailersReceived,
        h2.events.StreamEnded,
    ]
    trailers = next(e.headers for e in pair.at_client if isinstance(e, h2.events.TrailersReceived))
    assert (trailers[0][0], trailers[0][1]) == ("grpc-status", "0")


def test_blocks_are_remembered_once_the_client_uses_no_table() -> None:
    pair = Pair()
    for _ in range(4):
        pair.begin(end=True)
        pair.pump()
    heads = [started.head for started in pair.heads_at_server()]
    assert heads[0] == heads[3]
    assert heads[2] is heads[3]


@pytest.mark.parametrize("window", [1, 100, 65_535])
def test_an_answer_waits_for_the_clients_windows(window: int) -> None:
    size = 3000 if window == 1 else 10 * MIB if window > 100 else 50_000
    pair = Pair(window=window)
    stream_id = pair.begin(end=True)
    pair.pump()
    answer = bytes(range(256)) * (size // 256)
    pair.server.send_headers(stream_id, HEAD)
    pair.server.send_data(stream_id, answer)
    pair.server.end(stream_id, END)
    got = bytearray()
    while not any(isinstance(event, h2.events.StreamEnded) for event in pair.at_client):
        pair.at_client.clear()
        pair.pump()
        pieces = [event for event in pair.at_client if isinstance(event, h2.events.DataReceived)]
        assert sum(len(piece.data) for piece in pieces) <= max(window, 65_535)
        for piece in pieces:
            got += piece.data
            pair.client.acknowledge_received_data(piece.flow_controlled_length, stream_id)
        assert pieces or any(isinstance(event, h2.events.StreamEnded) for event in pair.at_client)
    assert bytes(got) == answer


def test_a_stream_without_window_holds_up_no_other() -> None:
    pair = Pair(window=10)
    slow, fast = pair.begin(end=True), pair.begin(end=True)
    pair.pump()
    for stream_id, size in ((slow, 1000), (fast, 10)):
        pair.server.send_headers(stream_id, HEAD)
        pair.server.send_data(stream_id, b"x" * size)
        pair.server.end(stream_id, END)
    pair.pump()
    assert [e.stream_id for e in pair.at_client if isinstance(e, h2.events.StreamEnded)] == [fast]


def test_an_answer_to_a_client_that_leaves_meanwhile_is_dropped() -> None:
    pair = Pair(window=10)
    stream_id = pair.begin(end=True)
    pair.pump()
    pair.server.send_headers(stream_id, HEAD)
    pair.server.send_data(stream_id, b"x" * 1000)
    pair.server.end(stream_id, END)
    pair.pump()
    pair.client.reset_stream(stream_id, ErrorCode.CANCEL)
    pair.pump()
    assert not pair.server.connection._streams
    assert not pair.server.connection._sender._blocked


@pytest.mark.parametrize(("stream_window", "size"), [(100, 20_000), (1 << 20, 10 * MIB)])
def test_a_body_of_any_size_comes_through_our_windows(stream_window: int, size: int) -> None:
    pair = Pair(Limits(stream_window=stream_window, connection_window=max(65_535, stream_window)))
    stream_id = pair.begin([("content-length", str(size))])
    pair.pump()
    pair.upload(stream_id, b"y" * size)
    pair.client.end_stream(stream_id)
    pair.pump()
    assert pair.body_at_server(stream_id) == b"y" * size
    assert pair.at_server[-1] == DataArrived(stream_id, b"", True)


def test_a_client_that_resizes_its_window_below_what_is_sent_is_obeyed() -> None:
    pair = Pair(window=1000)
    stream_id = pair.begin(end=True)
    pair.pump()
    pair.server.send_headers(stream_id, HEAD)
    pair.server.send_data(stream_id, b"x" * 3000)
    pair.pump()
    pair.client.update_settings({4: 100})
    pair.pump()
    pair.at_client.clear()
    pair.client.increment_flow_control_window(900, stream_id)
    pair.pump()
    assert not [event for event in pair.at_client if isinstance(event, h2.events.DataReceived)]
    pair.client.increment_flow_control_window(1, stream_id)
    pair.pump()
    assert [e.data for e in pair.at_client if isinstance(e, h2.events.DataReceived)] == [b"x"]
