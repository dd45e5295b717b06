"""Blocks of fields: what is remembered of them is what the hpack library would decode again."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.http2 import fields
from ext_proc.http2.fields import FieldDecoder, Head
from ext_proc.http2.frames import ErrorCode, ProtocolError
from support.http2 import REQUEST

NAMES = st.sampled_from(["x-a", "x-b", "accept", "content-type", "x-long-name-of-a-header"])
VALUES = st.sampled_from(["", "1", "application/grpc", "v" * 200]) | st.text("abcé", max_size=5)
PATHS = st.sampled_from(["/a", "/b", "/test.Test/Test"])
REQUESTS = st.tuples(PATHS, st.lists(st.tuples(NAMES, VALUES), max_size=4))
SIZES = st.sampled_from([None, None, None, 0, 100, 4096])


def expected(decoder: Decoder, block: bytes) -> Head:
    decoded = [
        (bytes(name).decode("latin-1"), bytes(v).decode("latin-1")) for name, v in decoder.decode(block, raw=True)
    ]
    pseudo = {name: value for name, value in decoded if name.startswith(":")}
    others = {name: value for name, value in decoded if not name.startswith(":")}
    return Head(pseudo[":method"], pseudo[":path"], others, None)


@given(st.lists(st.tuples(REQUESTS, SIZES, st.booleans()), max_size=12), st.integers(0, 12))
def test_any_sequence_of_blocks_means_what_it_means_to_hpack(
    sent: list[tuple[tuple[str, list[tuple[str, str]]], int | None, bool]], forbidden_from: int
) -> None:
    """The client resizes its table as it likes, and has none from a moment on; some blocks use none."""
    encoder, ours, theirs = Encoder(), FieldDecoder(1 << 16), Decoder(1 << 16)
    for at, ((path, others), size, plain) in enumerate(sent):
        if at == forbidden_from:
            ours.forbid_table()
            encoder.header_table_size = 0
        elif size is not None and at < forbidden_from:
            encoder.header_table_size = size
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), *others]
        named = [(name.encode(), value.encode()) for name, value in headers]
        block = encoder.encode(named)
        if plain and block[:1] not in {b"\x20", b"\x3f"} and encoder.header_table_size == 0:
            block = fields.block(headers).replace("é".encode("latin-1"), b"e")
        assert ours.request(block) == expected(theirs, block)


def test_a_block_is_not_taken_for_one_that_is_remembered_while_the_client_has_a_table() -> None:
    """At first it has none of its own will, and what it would put in is dropped; later the same puts it in."""
    decoder = FieldDecoder(1 << 16)
    adding = fields.block(REQUEST) + b"\x40\x01x\x01y"
    decoder.request(b"\x20" + adding)
    for resizing in (b"", b"\x3f\xe1\x1f"):
        assert decoder.request(resizing + adding).fields["x"] == "y"
    assert decoder.request(adding).fields["x"] == "y"
    assert decoder.request(fields.block(REQUEST) + b"\xbe\xbf").fields["x"] == "y"


def test_a_client_that_ignores_that_it_has_no_table_is_cut_off() -> None:
    decoder = FieldDecoder(1 << 16)
    decoder.forbid_table()
    with pytest.raises(ProtocolError) as raised:
        decoder.request(fields.block(REQUEST))
    assert raised.value.code is ErrorCode.COMPRESSION_ERROR


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "MOST_REMEMBERED", 5)
    decoder = FieldDecoder(1 << 16)
    for number in range(20):
        head = decoder.request(b"\x20" + fields.block((*REQUEST, ("x", str(number)))))
        assert head.fields["x"] == str(number)
        assert len(decoder._remembered) <= 5
    before = dict(decoder._remembered)
    decoder.request(b"\x20" + fields.block((*REQUEST, ("x", "y" * 3000))))
    assert decoder._remembered == before


@pytest.mark.parametrize("length", [0, 126, 127, 128, 254, 255, 300, 20_000])
def test_our_blocks_are_read_by_hpack(length: int) -> None:
    sent = [(":status", "200"), ("grpc-message", "m" * length)]
    assert list(map(tuple, Decoder(1 << 16).decode(fields.block(sent)))) == sent
