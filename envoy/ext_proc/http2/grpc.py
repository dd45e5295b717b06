"""gRPC over HTTP/2 for servers, without I/O: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md

A method is a function that is given a Call, by which it answers, and returns a Receiver, which is told what comes in.
Neither waits: what takes time is the receiver's to run, and to end when it is told that the call is over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from ext_proc.http2 import fields
from ext_proc.http2.connection import Connection, Limits
from ext_proc.http2.fields import Head
from ext_proc.http2.frames import fields_frame
from ext_proc.http2.stream import Stream

_log = logging.getLogger(__name__)

_PREFIX_BYTES: Final = 5
_LARGE_PIECE: Final = 1024
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Status(IntEnum):
    """https://github.com/grpc/grpc/blob/master/doc/statuscodes.md; those that are used here."""

    OK = 0
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class StatusError(Exception):
    """Ends a call with this status; the text is sent to the client."""

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status = status


class Receiver(Protocol):
    """Told of one call. Raising StatusError ends the call with that status, anything else with INTERNAL."""

    def take(self, message: bytes) -> None:
        """A message, whole."""

    def half_close(self) -> None:
        """There are no more messages."""

    def end(self) -> None:
        """The call is over before it was finished: the client has left, or the deadline has passed."""


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], Timer]
"""Has the function called after so many seconds."""


_HEADERS: Final = fields.block([(":status", "200"), ("content-type", "application/grpc")])
_OK: Final = fields.block([("grpc-status", "0")])
_HEADERS_FRAME: Final = fields_frame(_HEADERS, end_stream=False)
_OK_FRAME: Final = fields_frame(_OK, end_stream=True)
_NOT_POST: Final = fields.block([(":status", "405"), ("allow", "POST")])
_NOT_GRPC: Final = fields.block([(":status", "415")])


def _trailers(status: Status, why: str) -> bytes:
    told = [("grpc-status", str(int(status)))]
    if why:
        told.append(("grpc-message", quote(why, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")))
    if status is Status.UNIMPLEMENTED:
        told.append(("grpc-accept-encoding", "identity"))
    return fields.block(told)


class Call(msgspec.Struct, eq=False):
    """How a method answers. After it is finished, or over, nothing more is sent.

    grpc: whose call it is; None when it is over.
    receiver: who answers, from when the method has been called until the call is over.
    messages: reads them where they do not come one to a frame.
    """

    grpc: GrpcConnection | None
    stream: Stream
    most_message_bytes: int
    is_answering: bool = False
    receiver: Receiver | None = None
    messages: MessageReader | None = None
    deadline: Timer | None = None

    @property
    def is_over(self) -> bool:
        return self.grpc is None

    def send(self, message: bytes) -> None:
        if self.grpc is not None:
            self._begin(self.grpc).send_data(self.stream, _framed(message))

    def answer(self, message: bytes) -> None:
        """`send` and `finish` in one."""
        grpc = self.grpc
        if grpc is None:
            return
        if self.is_answering:
            self.send(message)
            self.finish()
            return
        self.close()
        grpc.http2.send_whole(self.stream, _HEADERS_FRAME, _framed(message), _OK_FRAME)
        grpc.wake()

    def finish(self, status: Status = Status.OK, why: str = "") -> None:
        grpc = self.grpc
        if grpc is None:
            return
        self.close()
        if status is Status.OK:
            self._begin(grpc).end(self.stream, _OK)
        else:
            trailers = _trailers(status, why)
            grpc.http2.end(self.stream, trailers if self.is_answering else _HEADERS + trailers)
            grpc.wake()

    def close(self) -> None:
        """Takes and sends nothing more."""
        self.grpc = None
        self.receiver = None  # which has the call: so neither waits for the garbage collector
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _begin(self, grpc: GrpcConnection) -> Connection:
        if not self.is_answering:
            self.is_answering = True
            grpc.http2.send_headers(self.stream, _HEADERS)
        grpc.wake()
        return grpc.http2

    # --- what its stream tells -------------------------------------------------------------------------------------

    def take(self, data: bytes, ended: bool, /) -> None:
        receiver = self.receiver
        if receiver is None:
            return
        size = len(data) - _PREFIX_BYTES
        try:
            # The usual case: just one message, whole. Its prefix is a flag, which is 0, and its length.
            if (
                self.messages is None
                and 0 <= size <= self.most_message_bytes
                and data.startswith(size.to_bytes(_PREFIX_BYTES, "big"))
            ):
                receiver.take(data[_PREFIX_BYTES:])
            elif data:
                self._take_pieces(receiver, data)
            if ended and self.grpc is not None:
                if self.messages is not None:
                    self.messages.end()
                receiver.half_close()
        except Exception as error:
            self.fail(error)
            receiver.end()

    def _take_pieces(self, receiver: Receiver, data: bytes) -> None:
        if self.messages is None:
            self.messages = MessageReader(self.most_message_bytes)
        for message in self.messages.take(data):
            receiver.take(message)
            if self.is_over:
                return

    def reset(self, code: int, /) -> None:
        receiver = self.receiver
        self.close()
        if receiver is not None:
            receiver.end()

    def expire(self) -> None:
        receiver = self.receiver
        self.finish(Status.DEADLINE_EXCEEDED, "the deadline has passed")
        if receiver is not None:
            receiver.end()

    def fail(self, error: Exception) -> None:
        """A fault of the server's own is not told in detail: its text may quote the request."""
        if isinstance(error, StatusError):
            self.finish(error.status, str(error))
        else:
            _log.error("internal error in a call error=%s", type(error).__name__)
            self.finish(Status.INTERNAL, "internal error")


def _framed(message: bytes) -> bytes:
    """With its prefix: a flag, which is 0, and its length."""
    return len(message).to_bytes(_PREFIX_BYTES, "big") + message


Method = Callable[[Call], Receiver]


class MessageReader:
    """Pieces of a body -> messages, each of `most_bytes` or fewer. Holds no more than one of them."""

    __slots__ = ("_have", "_missing", "_most", "_parts")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._parts: list[bytes | bytearray] = []
        self._have = 0
        self._missing = 0  # of what was begun: of the message, or of its prefix as long as that is not whole

    def end(self) -> None:
        """Raises StatusError when a message was begun."""
        if self._have:
            raise StatusError(Status.INTERNAL, "the stream ended within a message")

    def take(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole now. Raises StatusError for one that cannot be taken."""
        if self._have:
            self._keep(data)
            if self._missing > 0:
                return
            parts, self._parts, self._have = self._parts, [], 0
            if not self._missing and len(parts[0]) > _PREFIX_BYTES:
                parts[0] = parts[0][_PREFIX_BYTES:]  # so that a large message is copied only once
                yield b"".join(parts)
                return
            data = b"".join(parts)
        at, end = 0, len(data)
        while end - at >= _PREFIX_BYTES:
            message_end = self._end_of(data, at)
            if end < message_end:
                break
            yield data[at + _PREFIX_BYTES : message_end]
            at = message_end
        else:
            message_end = at + _PREFIX_BYTES
        if at < end:
            self._missing = message_end - at
            self._keep(data[at:])

    def _keep(self, data: bytes) -> None:
        """Large pieces as they are, to be copied once; small ones together, as each costs more than its bytes."""
        size = len(data)
        self._have += size
        self._missing -= size
        if size >= _LARGE_PIECE:
            self._parts.append(data)
            return
        last = self._parts[-1] if self._parts else None
        if isinstance(last, bytearray) and len(last) < _LARGE_PIECE:
            last += data
        else:
            self._parts.append(bytearray(data))

    def _end_of(self, data: bytes, at: int) -> int:
        """Where the message ends whose prefix is at `at`."""
        if data[at] == 1:
            raise StatusError(Status.UNIMPLEMENTED, "compressed messages are not supported")
        if data[at]:
            raise StatusError(Status.INTERNAL, f"a message with flag {data[at]}")
        size = int.from_bytes(data[at + 1 : at + _PREFIX_BYTES], "big")
        if size > self._most:
            raise StatusError(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes, above the limit of {self._most}")
        return at + _PREFIX_BYTES + size


class GrpcConnection:
    """One client's calls to `methods`, whose names are paths such as `/grpc.health.v1.Health/Check`."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        limits: Limits,
        most_message_bytes: int,
        *,
        wake: Callable[[], None],
        later: Later,
        now: float,
    ) -> None:
        """`wake` is called whenever there is something to write; it must not write at once."""
        self.http2 = Connection(limits, self._begin, now)
        self.wake = wake
        self._most = most_message_bytes
        self._methods = methods
        self._later = later

    def receive(self, data: bytes, now: float) -> None:
        """Takes bytes of the client; what there is to write is then `http2.take_output()`."""
        self.http2.receive(data, now)

    def close(self) -> None:
        """Ends all calls: nobody is there any more, or nobody is to be served."""
        self.http2.close()

    def _begin(self, stream: Stream, head: Head, ended: bool) -> None:
        if head.method != "POST":
            self.http2.end(stream, _NOT_POST)
            return
        if not head.fields.get("content-type", "").startswith("application/grpc"):
            self.http2.end(stream, _NOT_GRPC)
            return
        call = stream.inbound = Call(self, stream, self._most)
        try:
            receiver = self._called(call, head)
        except Exception as error:
            call.fail(error)
            return
        if call.grpc is not None:
            call.receiver = receiver
            if ended:
                call.take(b"", True)

    def _called(self, call: Call, head: Head) -> Receiver:
        method = self._methods.get(head.path)
        if method is None:
            raise StatusError(Status.UNIMPLEMENTED, "there is no such method")
        timeout = head.fields.get("grpc-timeout")
        if timeout is not None:
            call.deadline = self._later(_seconds(timeout), call.expire)
        return method(call)


def _seconds(timeout: str) -> float:
    match = _TIMEOUT.fullmatch(timeout)
    if match is None:
        raise StatusError(Status.INTERNAL, "grpc-timeout cannot be read")
    return int(match[1]) * _UNIT_SECONDS[match[2]]
