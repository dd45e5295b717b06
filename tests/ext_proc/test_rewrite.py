import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.rewrite import replace_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a","n":1}', b'{"model":"b","n":1}'),
        (b'{ "n" : 1.50 ,\n "model" : "a" }', b'{ "n" : 1.50 ,\n "model" : "b" }'),
        (b'{"x":{"model":"a"},"model":"a"}', b'{"x":{"model":"a"},"model":"b"}'),
        (b'{"x":["model",{"model":"a"}]}', b'{"x":["model",{"model":"a"}]}'),
        (b'{"x":"model","model":"a"}', b'{"x":"model","model":"b"}'),
        (b'{"x":"\\"model\\":\\"a\\"","model":"a\\"}"}', b'{"x":"\\"model\\":\\"a\\"","model":"b"}'),
        (b'{"model":"a","model":"c"}', b'{"model":"b","model":"b"}'),
        (b'{"mod\\u0065l":"a"}', b'{"mod\\u0065l":"b"}'),
        (b'{"model":null,"k":[1,{"a":"]"}]}', b'{"model":"b","k":[1,{"a":"]"}]}'),
        (b'{"model":{"a":["}"]},"k":1}', b'{"model":"b","k":1}'),
        (b"{}", b"{}"),
    ],
)
def test_only_top_level_values_of_the_name_change(body: bytes, expected: bytes) -> None:
    assert replace_model(body, "b") == expected


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), JSON, st.text(), st.booleans())
def test_any_object_is_as_before_but_for_the_value(
    others: dict[str, object], old: object, new: str, ascii_: bool
) -> None:
    document = {**others, "model": old}
    body = json.dumps(document, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    assert json.loads(replace_model(body, new)) == {**document, "model": new}


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"model":"a"}',
        b'{"x":1',
        b'{"x"',
        b"{x",
        b"",
        b"\xff\xfe{",
    ],
)
def test_what_cannot_be_read_stays_as_it_is(body: bytes) -> None:
    assert replace_model(body, "b") == body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"x":' + b"9" * 5000 + b',"model":"a"}', b'{"x":' + b"9" * 5000 + b',"model":"b"}'),
        (b'{"x":NaN,"y":-Infinity,"model":"a"}', b'{"x":NaN,"y":-Infinity,"model":"b"}'),
        (b'{"x":"\xff\xfe","model":"a"}', b'{"x":"\xff\xfe","model":"b"}'),
        (b'{"x":"\\ud800","model":"a"}', b'{"x":"\\ud800","model":"b"}'),
    ],
)
def test_what_is_hardly_json_is_passed_byte_for_byte(body: bytes, expected: bytes) -> None:
    assert replace_model(body, "b") == expected


def test_many_members_and_values_are_passed_fast() -> None:
    body = b"{" + b'"x":1,' * 500_000 + b'"y":[' + b"[]," * 500_000 + b'1],"model":"a"}'
    assert replace_model(body, "b") == body.replace(b'"a"', b'"b"')


def test_a_long_hostile_string_is_passed_in_linear_time() -> None:
    body = b'{"x":"' + b"\\\\" * 500_000 + b'","model":"a"}'
    assert replace_model(body, "b").endswith(b'"model":"b"}')
