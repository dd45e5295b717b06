"""What Prometheus answers, and the loads that follow."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.agentless.answers import UnusableAnswerError, loads_of, values_by_label
from controlplane.model import NodeLoad, NodeSpec

NODE = NodeSpec("gpu-1", "10.0.0.1:8000", ())


def vector(*values: tuple[dict[str, str], str]) -> bytes:
    result = [{"metric": labels, "value": [1764500000.1, value]} for labels, value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_values_are_found_by_their_label_and_what_is_no_number_is_missing() -> None:
    b = {"instance": "b:1", "job": "vllm"}
    body = vector(({"instance": "a:1"}, "0.25"), (b, "1e-05"), ({"instance": "c"}, "NaN"))
    assert values_by_label(body, "instance") == {"a:1": 0.25, "b:1": 1e-05}
    assert values_by_label(vector(), "instance") == {}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"status": "error", "errorType": "bad_data", "error": "parse error at char 3"}', "bad_data: parse error"),
        (b'{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}', "gives a scalar"),
        (vector(({}, "1")), "without the label instance"),
        (vector(({"instance": "a", "rank": "0"}, "1"), ({"instance": "a", "rank": "1"}, "1")), "several values"),
        (b"<html>", "none of Prometheus"),
        (b"[]", "none of Prometheus"),
        (b'{"status": "success"}', "none of Prometheus"),
    ],
)
def test_what_cannot_be_used_says_why(body: bytes, says: str) -> None:
    with pytest.raises(UnusableAnswerError, match=says):
        values_by_label(body, "instance")


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["status", "data", "result"]), inner),
    max_leaves=8,
)


@given(JSON)
def test_any_answer_is_read_or_refused(answer: Any) -> None:
    with suppress(UnusableAnswerError):
        values_by_label(json.dumps(answer).encode(), "instance")


@pytest.mark.parametrize(
    ("answers", "load"),
    [
        ({"kv_cache_use": 0.5, "running": 3.0, "waiting": 2.0}, NodeLoad(3, 2, 0.5, sampled=True, reported_at=9.0)),
        ({"kv_cache_use": 0.5}, NodeLoad(0, 0, 0.5, uncounted=True, sampled=True, reported_at=9.0)),
        ({"waiting": 0.0}, NodeLoad(0, 0, None, sampled=True, reported_at=9.0)),
    ],
)
@pytest.mark.parametrize("name", [NODE.address, NODE.node_id])
def test_a_node_is_known_by_its_address_or_its_id_and_what_is_not_told_is_missing(
    answers: dict[str, float], load: NodeLoad, name: str
) -> None:
    assert loads_of({signal: {name: value} for signal, value in answers.items()}, [NODE], 9.0) == {"gpu-1": load}


def test_of_a_node_that_nothing_is_told_of_there_is_no_load() -> None:
    assert loads_of({"kv_cache_use": {"10.0.0.2:8000": 0.9}}, [NODE], 9.0) == {}


def test_percent_is_not_taken_for_a_share() -> None:
    with pytest.raises(UnusableAnswerError, match="gpu-1 is 42, and has to be from 0 to 1"):
        loads_of({"kv_cache_use": {"gpu-1": 42.0}}, [NODE], 9.0)
