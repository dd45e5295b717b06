import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.rewrite import cap_output, replace_model

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


# --- output caps ---------------------------------------------------------------------------------------------------

CHAT_CAPS = ("max_tokens", "max_completion_tokens")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"max_tokens": 900}', b'{"max_tokens": 100}'),
        (b'{"max_tokens":99,"a":1}', b'{"max_tokens":99,"a":1}'),  # never raised
        (b'{"a" : 1e400, "max_completion_tokens":101}', b'{"a" : 1e400, "max_completion_tokens":100}'),
        (b'{"max_completion_tokens":101,"max_tokens":102}', b'{"max_completion_tokens":100,"max_tokens":100}'),
        (b'{"max_tokens":1,"max_tokens":5000}', b'{"max_tokens":1,"max_tokens":100}'),
        (b'{"max_tokens":"5000"}', b'{"max_tokens":100}'),
        (b'{"max_tokens":5e3}', b'{"max_tokens":100}'),
        (b'{"x":{"max_tokens":5000}}', b'{"max_tokens":100,"x":{"max_tokens":5000}}'),  # nested ones are others'
        (b" { } ", b' {"max_tokens":100 } '),
        (b'{"max_tokens":null,"a":1}', b'{"max_tokens":100,"a":1}'),
        (b'{"max_tokens":-1}', b'{"max_tokens":100}'),
        (b'{"a":"\xff\\ud800","m\\u0061x_tokens":500}', b'{"a":"\xff\\ud800","m\\u0061x_tokens":100}'),
        (b'{"max_tokens":null,"max_completion_tokens":50}', b'{"max_tokens":null,"max_completion_tokens":50}'),
        # Of duplicates engines take the last: one that caps nothing undoes those before it.
        (b'{"max_tokens":5000,"max_tokens":null}', b'{"max_tokens":100,"max_tokens":100}'),
        (b'{"max_tokens":5,"max_tokens":-1}', b'{"max_tokens":5,"max_tokens":100}'),
        (
            b'{"max_completion_tokens":5,"max_completion_tokens":0}',
            b'{"max_tokens":100,"max_completion_tokens":5,"max_completion_tokens":0}',
        ),
        # What only some engines take for a cap is lowered, and caps nothing for the others.
        (b'{"n_predict":5000}', b'{"max_tokens":100,"n_predict":100}'),
        (b'{"n_predict":-1,"max_tokens":7}', b'{"n_predict":100,"max_tokens":7}'),
    ],
)
def test_output_is_capped_under_every_name_and_no_other_byte_changes(body: bytes, expected: bytes) -> None:
    """Facts row: output caps under several names."""
    assert cap_output(body, 100, CHAT_CAPS, ("n_predict",)) == expected


@given(
    st.dictionaries(
        st.sampled_from(["max_tokens", "max_completion_tokens", "model", "n", "x"]) | st.text(max_size=4),
        st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(allow_nan=False) | st.text(max_size=5),
    ),
    st.integers(1, 10_000),
)
def test_after_capping_the_cap_is_the_lower_of_both_and_all_else_is_as_before(
    asked: dict[str, object], limit: int
) -> None:
    capped = json.loads(cap_output(json.dumps(asked).encode(), limit, CHAT_CAPS))
    caps = {key: tokens for key in CHAT_CAPS if (tokens := _tokens(capped.get(key))) is not None}
    assert caps
    assert max(caps.values()) <= limit
    before = {key: tokens for key in CHAT_CAPS if (tokens := _tokens(asked.get(key))) is not None}
    assert all(caps[key] <= tokens for key, tokens in before.items())
    assert {k: v for k, v in capped.items() if k not in CHAT_CAPS} == {
        k: v for k, v in asked.items() if k not in CHAT_CAPS
    }


def _tokens(value: object) -> float | None:
    try:
        tokens = None if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return tokens if tokens is not None and math.isfinite(tokens) and tokens > 0 else None
