"""Whatever bytes come: no exception, a farewell with a code of the RFC where they are wrong, and bounded memory."""

from __future__ import annotations

import random
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc.http2 import fields, frames
from ext_proc.http2.connection import Limits
from ext_proc.http2.frames import ErrorCode, FrameReader, ProtocolError
from ext_proc.http2.grpc import Call, GrpcConnection, Status
from ext_proc.http2.stream import Stream
from support.http2 import OPENING, REQUEST, data, request, said

MOST_MESSAGE = 1000
LIMITS = Limits(concurrent_streams=5, stream_window=70_000, connection_window=140_000, header_list=2000)
END = fields.block([("grpc-status", "0")])


class Echo:
    """Sends each message back, and ends with the client."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.ends = 0

    def take(self, message: bytes) -> None:
        assert len(message) <= MOST_MESSAGE
        self._call.send(message)
        if message[:1] == b"!":
            self._call.finish(Status.NOT_FOUND, "as asked: 100%\r\n\u00e9")

    def half_close(self) -> None:
        self._call.finish()

    def end(self) -> None:
        self.ends += 1


class Never:
    def cancel(self) -> None:
        pass


def served(kept: list[Echo]) -> GrpcConnection:
    def echo(call: Call) -> Echo:
        kept.append(Echo(call))
        return kept[-1]

    return GrpcConnection(
        {"/test.Test/Test": echo}, LIMITS, MOST_MESSAGE, wake=lambda: None, later=lambda _, __: Never(), now=0.0
    )


def message(payload: bytes) -> bytes:
    return b"\0" + len(payload).to_bytes(4, "big") + payload


STREAMS = st.sampled_from([0, 1, 1, 3, 3, 5, 7, 9, 11, 2, 2**31 - 1])
BLOCKS = st.sampled_from(
    [
        fields.block(REQUEST),
        b"\x20" + fields.block(REQUEST),
        fields.block((*REQUEST, ("grpc-timeout", "1S"))),
        fields.block((*REQUEST, ("grpc-timeout", "soon"))),
        fields.block((*REQUEST, ("content-length", "7"))),
        fields.block([("x", "y")]),
        fields.block([(":method", "GET"), (":scheme", "http"), (":path", "/")]),
        b"",
        b"\x3f\xe1\xff\x03",
        b"\x40\x01x\x01y" + fields.block(REQUEST),
        b"\xbe",
    ]
) | st.binary(max_size=30)
PAYLOADS = (
    st.binary(max_size=40)
    | st.binary(max_size=40).map(message)
    | st.sampled_from([message(b"!"), b"\1\0\0\0\0", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x05ab", b"", message(b"m") * 3])
    | st.sampled_from([b"\0" * 4, b"\0" * 5, b"\0" * 8, b"\x7f\xff\xff\xff", b"\0\x04\0\0\0\1", b"\0\x05\0\0\x40\0"])
)
FRAMES = (
    st.builds(frames.frame, st.integers(0, 12), st.integers(0, 255), STREAMS, PAYLOADS)
    | st.builds(partial(frames.frame, frames.HEADERS), st.sampled_from([4, 5, 0, 12, 36]), STREAMS, BLOCKS)
    | st.builds(partial(frames.frame, frames.CONTINUATION), st.sampled_from([0, 4]), STREAMS, BLOCKS)
    | st.builds(lambda stream, payload, end: data(stream, payload, end=end), STREAMS, PAYLOADS, st.booleans())
    | st.builds(request, st.sampled_from([1, 3, 5, 7, 9, 11, 13]))
    | st.builds(frames.window_update, STREAMS, st.sampled_from([0, 1, 70_000, 2**31 - 1]))
    | st.builds(frames.rst_stream, STREAMS, st.sampled_from(ErrorCode))
    | st.builds(
        lambda n, v: frames.settings([(n, v)]), st.integers(0, 8), st.sampled_from([0, 1, 16_384, 2**31 - 1, 2**32 - 1])
    )
)


@st.composite
def sessions(draw: st.DrawFn) -> bytes:
    """Of frames that are right by themselves, cut, changed or doubled somewhere."""
    sent = OPENING + b"".join(draw(st.lists(FRAMES, max_size=12)))
    match draw(st.sampled_from(["kept", "kept", "cut", "changed", "doubled"])):
        case "cut":
            at = draw(st.integers(0, len(sent)))
            return sent[:at] + sent[at + draw(st.integers(1, 9)) :]
        case "changed":
            at = draw(st.integers(0, len(sent) - 1))
            return sent[:at] + bytes((draw(st.integers(0, 255)),)) + sent[at + 1 :]
        case "doubled":
            at = draw(st.integers(0, len(sent)))
            return sent + sent[at:]
    return sent


def check(sent: bytes, step: int) -> None:
    """Sends it in such pieces and looks at all that the server says and keeps."""
    kept: list[Echo] = []
    server = served(kept)
    out = server.http2.take_output()
    for at in range(0, len(sent), step):
        server.receive(sent[at : at + step], at / 1e6)
        out += server.http2.take_output()
        assert len(server.http2._streams) <= LIMITS.concurrent_streams
        assert server.http2._frames._have <= LIMITS.frame_size + frames.HEAD_BYTES + step
        assert all(_kept_bytes(stream) <= MOST_MESSAGE + 5 for stream in server.http2._streams.values())
    over = server.http2.is_over
    written = said(out)
    farewells = [payload for kind, _, _, payload in written if kind == frames.GOAWAY]
    assert len(farewells) == (1 if over else 0)
    assert all(ErrorCode(int.from_bytes(payload[4:8], "big")) for payload in farewells)
    server.close()
    assert not server.http2._streams
    assert all(echo.ends <= 1 for echo in kept)


def _kept_bytes(stream: Stream) -> int:
    call = stream.inbound
    return call.messages._have if isinstance(call, Call) and call.messages is not None else 0


@settings(max_examples=400)
@given(sessions(), st.sampled_from([1, 3, 10, 100, 1 << 16]))
def test_any_session_is_survived(sent: bytes, step: int) -> None:
    check(sent, step)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.sampled_from([b"", frames.PREFACE, OPENING, OPENING + request()]))
def test_any_bytes_are_survived(sent: bytes, before: bytes) -> None:
    check(before + sent, 1 << 16)


def test_many_random_changes_of_a_good_session_are_survived() -> None:
    dice = random.Random(7)
    good = OPENING + b"".join(
        request(n) + data(n, message(b"hello")) + data(n, message(b"world"), end=True) for n in (1, 3, 5)
    )
    for _ in range(3000):
        sent = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(OPENING) - 9, len(sent))
            if dice.random() < 0.7:
                sent[at] = dice.randrange(256)
            else:
                del sent[at : at + dice.randint(1, 12)]
        check(bytes(sent), 1 << 16)


@given(st.binary(max_size=100), st.lists(st.integers(1, 20), max_size=20))
def test_frames_are_the_same_however_bytes_are_cut(sent: bytes, steps: list[int]) -> None:
    whole, pieces = FrameReader(1 << 14), FrameReader(1 << 14)

    def read(reader: FrameReader, piece: bytes) -> list[tuple[int, int, int, bytes]]:
        found = []
        try:
            for frame in reader.take(piece):
                found.append(frame)  # noqa: PERF402 - those before a fault count
        except ProtocolError:
            return [*found, (-1, 0, 0, b"")]
        return found

    expected = read(whole, frames.PREFACE + sent)
    got: list[tuple[int, int, int, bytes]] = []
    rest = frames.PREFACE + sent
    for step in (*steps, len(rest)):
        if got and got[-1][0] == -1:
            break
        got += read(pieces, rest[:step])
        rest = rest[step:]
    assert got == expected


def test_a_reset_tells_the_call_once() -> None:
    kept: list[Echo] = []
    server = served(kept)
    server.receive(OPENING + request(1) + frames.rst_stream(1, ErrorCode.CANCEL), 0.0)
    server.close()
    assert [echo.ends for echo in kept] == [1]
