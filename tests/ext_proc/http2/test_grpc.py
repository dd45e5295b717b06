"""gRPC's framing and endings, without I/O."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.http2 import fields, frames
from ext_proc.http2.connection import Limits
from ext_proc.http2.fields import FieldDecoder
from ext_proc.http2.grpc import Call, GrpcConnection, MessageReader, Status, StatusError
from support.http2 import OPENING, REQUEST, data, request, said


class Timers:
    """Of the server; the test says when one is over."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, then: Callable[[], None]) -> Timer:
        self.waiting.append((seconds, then))
        return Timer(self)


class Timer:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._mine = timers.waiting[-1]

    def cancel(self) -> None:
        if self._mine in self._timers.waiting:
            self._timers.waiting.remove(self._mine)


class Recording:
    """A method that notes what it is told, and raises or answers when a message asks for it."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.told: list[bytes | str] = []

    def take(self, message: bytes) -> None:
        self.told.append(message)
        match message:
            case b"answer":
                self.call.send(b"1")
                self.call.send(b"2")
                self.call.finish()
            case b"refuse":
                raise StatusError(Status.NOT_FOUND, "not here")
            case b"break":
                raise ZeroDivisionError("secret")

    def half_close(self) -> None:
        self.told.append("half-closed")

    def end(self) -> None:
        self.told.append("ended")


class Server:
    def __init__(self, most: int = 1000) -> None:
        self.timers = Timers()
        self.methods: list[Recording] = []
        self.woken = 0
        self.grpc = GrpcConnection(
            {"/test.Test/Test": self._new},
            Limits(),
            most,
            wake=self._wake,
            later=self.timers.later,
            now=0.0,
        )
        self.send(OPENING)

    def send(self, sent: bytes) -> bytes:
        self.grpc.receive(sent, 0.0)
        return self.grpc.http2.take_output()

    def _new(self, call: Call) -> Recording:
        self.methods.append(Recording(call))
        return self.methods[-1]

    def _wake(self) -> None:
        self.woken += 1


def message(payload: bytes) -> bytes:
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def ending(out: bytes) -> dict[str, str]:
    """The fields of the last HEADERS frame, which must end the stream."""
    _, flags, _, block = [frame for frame in said(out) if frame[0] == frames.HEADERS][-1]
    assert flags & frames.END_STREAM
    decoded = FieldDecoder(1 << 16)._decode(block)
    return {name.decode(): value.decode() for name, value in decoded}


def test_messages_come_whole_and_answers_end_with_ok() -> None:
    server = Server()
    out = server.send(request() + data(1, message(b"one") + message(b"two")[:4]) + data(1, message(b"two")[4:]))
    assert out == b""
    assert server.methods[0].told == [b"one", b"two"]
    out = server.send(data(1, message(b"answer")))
    assert [payload for kind, _, _, payload in said(out) if kind == frames.DATA] == [message(b"1"), message(b"2")]
    assert ending(out) == {"grpc-status": "0"}
    assert server.woken


def test_what_comes_after_the_answer_is_not_told() -> None:
    server = Server()
    server.send(request() + data(1, message(b"answer") + message(b"late")) + data(1, b"", end=True))
    assert server.methods[0].told == [b"answer"]
    server.methods[0].call.send(b"late")
    server.methods[0].call.finish(Status.INTERNAL, "late")
    assert server.grpc.http2.take_output() == b""


def test_the_client_ends_its_messages() -> None:
    server = Server()
    server.send(request() + data(1, message(b"one"), end=True))
    server.send(request(3, end=True))
    assert server.methods[0].told == [b"one", "half-closed"]
    assert server.methods[1].told == ["half-closed"]


def test_a_client_that_leaves_ends_the_call_once() -> None:
    server = Server()
    server.send(request() + frames.rst_stream(1, frames.ErrorCode.CANCEL))
    server.grpc.close()
    assert server.methods[0].told == ["ended"]


def test_a_lost_connection_ends_all_calls() -> None:
    server = Server()
    server.send(request(1) + request(3))
    server.grpc.close()
    assert [method.told for method in server.methods] == [["ended"], ["ended"]]


def headed(**changed: str) -> bytes:
    named = {
        f":{name}" if name in {"path", "method"} else name.replace("_", "-"): value for name, value in changed.items()
    }
    kept = [(name, named.pop(name, value)) for name, value in REQUEST]
    return frames.headers(1, fields.block([*kept, *named.items()]), 1 << 14, end_stream=False)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (headed(path="/test.Test/Other"), Status.UNIMPLEMENTED),
        (headed(grpc_timeout="soon"), Status.INTERNAL),
        (headed(grpc_timeout="123456789S"), Status.INTERNAL),
        (request() + data(1, b"\x01\0\0\0\0"), Status.UNIMPLEMENTED),
        (request() + data(1, b"\x02\0\0\0\0"), Status.INTERNAL),
        (request() + data(1, message(b"x" * 1001)), Status.RESOURCE_EXHAUSTED),
        (request() + data(1, b"\0\xff\xff\xff\xff"), Status.RESOURCE_EXHAUSTED),
        (request() + data(1, message(b"one")[:-1], end=True), Status.INTERNAL),
        (request() + data(1, message(b"refuse")), Status.NOT_FOUND),
        (request() + data(1, message(b"break")), Status.INTERNAL),
    ],
)
def test_what_cannot_be_served_ends_with_a_status(sent: bytes, status: Status) -> None:
    server = Server()
    out = server.send(sent)
    told = ending(out)
    assert told[":status"] == "200"  # of a response that is trailers only
    assert told["content-type"] == "application/grpc"
    assert int(told["grpc-status"]) == status
    assert "secret" not in told["grpc-message"]
    assert all(stream.inbound is None for stream in server.grpc.http2._streams.values())
    assert ending(server.send(request(3) + data(3, message(b"answer")))) == {"grpc-status": "0"}


def test_a_compressed_message_is_told_what_would_be_understood() -> None:
    assert ending(Server().send(request() + data(1, b"\x01\0\0\0\0")))["grpc-accept-encoding"] == "identity"


def test_what_is_no_grpc_gets_an_answer_of_http() -> None:
    assert ending(Server().send(headed(method="GET")))[":status"] == "405"
    assert ending(Server().send(headed(content_type="text/html")))[":status"] == "415"


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9)]
)
def test_a_deadline_ends_the_call_and_tells_it(timeout: str, seconds: float) -> None:
    server = Server()
    server.send(headed(grpc_timeout=timeout))
    [(due, expire)] = server.timers.waiting
    assert due == pytest.approx(seconds)
    expire()
    assert ending(server.grpc.http2.take_output())["grpc-status"] == str(int(Status.DEADLINE_EXCEEDED))
    assert server.methods[0].told == ["ended"]
    assert not server.timers.waiting


def test_an_answer_in_time_forgets_the_deadline() -> None:
    server = Server()
    server.send(headed(grpc_timeout="1S") + data(1, message(b"answer")))
    assert not server.timers.waiting


@pytest.mark.parametrize("ending", [b"answer", b"refuse", b"break", b"reset", b"deadline"])
def test_nothing_of_a_call_waits_for_the_garbage_collector(ending: bytes) -> None:
    server = Server()
    gc.disable()
    try:
        server.send(headed(grpc_timeout="1S"))
        [method] = server.methods
        server.methods.clear()
        gone = weakref.ref(method)
        del method
        match ending:
            case b"reset":
                server.send(frames.rst_stream(1, frames.ErrorCode.CANCEL))
            case b"deadline":
                server.timers.waiting.pop()[1]()
            case _:
                server.send(data(1, message(ending)))
        assert gone() is None
    finally:
        gc.enable()


def test_a_status_text_is_sent_as_it_may_be() -> None:
    server = Server()
    server.send(request())
    server.methods[0].call.finish(Status.UNAVAILABLE, "100% \u00e9\n")
    assert ending(server.grpc.http2.take_output())["grpc-message"] == "100%25 %C3%A9%0A"


@given(st.lists(st.binary(max_size=3000), max_size=8), st.lists(st.integers(1, 2500), max_size=30))
def test_messages_are_the_same_however_they_are_cut(sent: list[bytes], steps: list[int]) -> None:
    reader = MessageReader(3000)
    rest = b"".join(map(message, sent))
    got: list[bytes] = []
    for step in (*steps, len(rest)):
        got += reader.take(rest[:step])
        rest = rest[step:]
    reader.end()
    assert got == sent


def test_a_message_in_single_bytes_takes_little_more_memory_than_its_own() -> None:
    reader = MessageReader(1 << 20)
    for byte in message(b"x" * 100_000)[:-1]:
        assert list(reader.take(bytes((byte,)))) == []
    assert len(reader._parts) < 200
    assert list(reader.take(b"x")) == [b"x" * 100_000]
