"""What is counted of a text for the token estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.features import FEATURES, FRAMING, Category, Features, TextCounts, categorise
from controlplane.policy.text import count_text


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {}),
        (
            "Hello, World 42\n",
            {
                "letters": 10,
                "capitals": 2,
                "digits": 2,
                "punctuation": 1,
                "blanks": 2,
                "newlines": 1,
                "words": 1,
                "stops": 1,
            },
        ),
        ("a.b(c, d)", {"letters": 4, "punctuation": 4, "blanks": 1, "words": 1, "joins": 2, "stops": 1}),
        ("    if x:\n", {"letters": 3, "punctuation": 1, "blanks": 5, "newlines": 1, "blank_pairs": 2, "words": 2}),
        (
            "if x:\n\ty = 1234",
            {"letters": 4, "digits": 4, "punctuation": 2, "blanks": 4, "newlines": 1, "words": 2}
            | {"stops": 1, "indents": 1, "triples": 1},
        ),
        ("café", {"letters": 3, "latin": 1}),
        ("Привет", {"cyrillic": 6}),
        ("مرحبا", {"semitic": 5}),
        ("नमस्ते", {"indic": 6}),
        ("今日は。", {"han": 2, "kana": 1, "marks": 1}),
        ("今日は", {"han": 2, "kana": 1}),
        ("안녕", {"hangul": 2}),
        ("“好”", {"symbols": 2, "han": 1}),
        ("😀", {"astral": 1}),
    ],
)
def test_characters_are_counted_by_class_and_script(text: str, counts: dict[str, int]) -> None:
    assert count_text(text) == TextCounts(**{"total": len(text.encode()), **counts})


@given(st.text(alphabet="a0. \n"))
def test_what_stands_together_is_counted_as_it_stands(text: str) -> None:
    counts = count_text(text)
    found = counts.blank_pairs, counts.words, counts.joins, counts.stops, counts.indents, counts.triples
    assert found == tuple(map(text.count, ("  ", " a", ".a", ". ", "\n ", "000")))


@given(st.text())
def test_no_character_is_in_two_classes(text: str) -> None:
    counts = count_text(text)
    assert all(count >= 0 for count in counts)
    ascii_bytes = counts.letters + counts.digits + counts.punctuation + counts.blanks + counts.newlines
    beyond = 2 * (counts.latin + counts.cyrillic + counts.semitic) + 4 * counts.astral
    beyond += 3 * (counts.indic + counts.symbols + counts.marks + counts.kana + counts.han + counts.hangul)
    control = sum(char.isascii() and not char.isprintable() and char not in "\n\t" for char in text)
    assert ascii_bytes + beyond + control == counts.total == len(text.encode(errors="replace"))


@given(st.text(min_size=1), st.integers(1, 400))
def test_counts_are_never_more_than_the_text(text: str, times: int) -> None:
    counts = count_text(text * times)
    assert counts.total == len((text * times).encode(errors="replace"))
    assert all(0 <= count <= 1.01 * counts.total for count in counts)


PIECES = (
    "The council met on Tuesday to discuss the plans, and several members asked how the costs had been worked out.\n",
    "    for name, value in sorted(self.items.items()):\n        total += value.price * 3\n",
    "今天天气很好。我们去公园散步吧。",
    '{"id": 18231, "at": "2024-05-01T10:00:00Z", "ok": true}\n',
)


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_text_is_known_by_a_sample_of_it(piece: str) -> None:
    one, long = (count_text(piece * (size // len(piece.encode()))) for size in (1000, 60_000))
    assert long.total > 50_000
    for name, count, expected in zip(TextCounts._fields, long, one, strict=True):
        share = expected / one.total
        assert count / long.total == pytest.approx(share, rel=0.12, abs=0.01), name


def test_a_long_texts_sample_is_of_all_of_it() -> None:
    """Also where it changes in the middle."""
    text = PIECES[0] * 300 + PIECES[2] * 600
    counts = count_text(text)
    ideographs = 600 * sum("\u4e00" <= char <= "\u9fff" for char in PIECES[2])
    assert counts.han == pytest.approx(ideographs, rel=0.05)
    assert categorise(counts) is Category.MIXED


def test_a_vector_has_a_number_for_each_feature() -> None:
    features = Features(count_text("a1"), messages=2, tools=3, calls=4, images=5, token_ids=6, schema_bytes=7)
    vector = dict(zip(FEATURES, features.vector, strict=True))
    assert [vector[name] for name in FRAMING] == [1, 2, 1, 3, 4, 5, 7]
    assert (vector["letters"], vector["digits"]) == (1, 1)
