"""Decisions in few bytes, and those that earlier versions wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.ledger.compact import UnreadableMessageError, pack, unpack
from support.ledger import recorded

# The same decision as every dictionary that was released packed it.
MESSAGE = recorded().SerializeToString(deterministic=True)
RELEASED = {
    1: "01e3622c12e2e1f8f7f1da29368186535bdf314a159299dbf3524b81f92f07de6c01e77660b441c5a1d1a6e9e0c4c2c12520b28891332f"
    "3137d52a31393755c99c4cef83bcf109e872034600",
    2: "0228b52ffd20c7d5020033c40f9e6c7101c8911757ab163eb2499bb4c9c904f3f6b832926f45e44fdf0abfe2c31362c8f7722541dd68b0"
    "5854cc6bd404175ebe161780dac0c3b50493f25e0107fcc3610eeaf9941d7d383ace515651ab9e46c6469f9c01",
}


@given(st.lists(st.binary(max_size=3000), max_size=20))
def test_what_is_packed_comes_out_as_it_was(messages: list[bytes]) -> None:
    assert [unpack(each) for each in pack(messages)] == messages


def test_decisions_become_small() -> None:
    (packed,) = pack([MESSAGE])
    assert len(packed) < 0.6 * len(MESSAGE)


@pytest.mark.parametrize("number", RELEASED)
def test_what_earlier_versions_wrote_can_be_read(number: int) -> None:
    assert unpack(bytes.fromhex(RELEASED[number])) == MESSAGE


@pytest.mark.parametrize("packed", [b"", b"\x01", b"\x01\xff\xff", b"\x02", b"\x02not a frame", b"\xff\x00"])
def test_what_nobody_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        unpack(packed)
