import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.rewrite import replace_string

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
    assert replace_string(body, "model", "b") == expected


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), JSON, st.text(), st.booleans())
def test_any_object_is_as_before_but_for_the_value(
    others: dict[str, object], old: object, new: str, ascii_: bool
) -> None:
    document = {**others, "model": old}
    body = json.dumps(document, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    assert json.loads(replace_string(body, "model", new)) == {**document, "model": new}


def test_a_long_hostile_string_is_passed_in_linear_time() -> None:
    body = b'{"x":"' + b"\\\\" * 500_000 + b'","model":"a"}'
    assert replace_string(body, "model", "b").endswith(b'"model":"b"}')
