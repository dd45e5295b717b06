from __future__ import annotations

import json

import numpy as np
import pytest

from controlplane.errors import ConfigurationError
from controlplane.model import Verdict
from planner.workload.azure import read_azure
from planner.workload.building import build
from planner.workload.burstgpt import read_burstgpt
from planner.workload.ledger import read_ledger
from planner.workload.mooncake import read_mooncake

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:51.0000000,10,0
"""


def decision(second: int, verdict: str, **outcome: object) -> dict[str, object]:
    return {
        "time": f"2026-11-30T10:00:{second:02}Z",
        "decision": {"sensitivity": {"verdict": verdict}, "output_cap": 100, "choices": 1, "qos_tier": "standard"},
        "outcome": {"status": 200, "prompt_tokens": 20, "completion_tokens": 30, **outcome},
    }


def test_azure_requests_are_put_in_order_and_those_without_an_answer_left_out() -> None:
    workload = build("azure", read_azure(AZURE, "a.csv"))

    assert workload.input_tokens.tolist() == [374, 396]
    assert workload.arrival_seconds == pytest.approx([0.0, 4.314579])
    assert workload.category is None


def test_every_line_that_cannot_be_read_is_named_at_once() -> None:
    text = AZURE + "yesterday,1,1\n2023-11-16 18:15:51,-4,1\n2023-11-16 18:15:51,1\n"

    with pytest.raises(ConfigurationError) as raised:
        read_azure(text, "a.csv")

    assert raised.value.faults == (
        "a.csv:5: TIMESTAMP is 'yesterday', which is no time",
        "a.csv:6: ContextTokens is '-4', which is no number of tokens",
        "a.csv:7: has 2 columns where the header has 3",
    )


def test_a_file_of_nothing_but_faults_is_told_of_in_few_lines() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_azure(AZURE + "x,y,z\n" * 1000, "a.csv")

    assert len(raised.value.faults) == 21
    assert raised.value.faults[-1] == "a.csv: and 980 more lines that cannot be read"


def test_another_file_is_told_by_its_header() -> None:
    with pytest.raises(ConfigurationError, match="has no column TIMESTAMP, ContextTokens, GeneratedTokens"):
        read_azure("a,b\n1,2\n", "a.csv")


def test_burstgpt_tells_models_and_sessions_and_leaves_failures_out() -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,s1,1.0,ChatGPT,472,18,490,Conversation log\n"
        "45,s1,1.0,GPT-4,1087,230,1317,Conversation log\n"
        "118,s2,0.1,GPT-4,417,0,417,API log\n"
    )
    workload = build("burst", read_burstgpt(text, "b.csv"))

    assert workload.output_tokens.tolist() == [18, 230]
    assert workload.category_names == ("ChatGPT", "GPT-4")
    assert workload.session is not None
    assert workload.session.tolist() == [0, 0]


def test_mooncake_times_are_in_milliseconds() -> None:
    lines = [
        {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
        {"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0]},
    ]
    workload = build("moon", read_mooncake("\n".join(map(json.dumps, lines)), "m.jsonl"))

    assert workload.arrival_seconds.tolist() == [0.0, 3.0]


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"timestamp": 1}', '{"timestamp": "a", "input_length": 1, "output_length": 1}']
)
def test_a_wrong_line_of_json_is_named(line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"m\.jsonl:1: "):
        read_mooncake(line, "m.jsonl")


def test_the_ledger_is_read_as_a_document_and_as_lines_alike() -> None:
    recorded = [
        decision(2, "tolerant"),
        decision(1, "sensitive", prompt_tokens=5),
        decision(3, "neutral", status=503),
        decision(4, "neutral", completion_tokens=None),
    ]
    document = build("ours", read_ledger(json.dumps({"decisions": recorded}), "d.json"))
    lines = build("ours", read_ledger("\n".join(map(json.dumps, recorded)), "d.jsonl"))

    for workload in (document, lines):
        assert workload.input_tokens.tolist() == [5, 20]
        assert workload.output_cap.tolist() == [100, 100]
        assert workload.verdict is not None
        assert [list(Verdict)[index] for index in workload.verdict] == [Verdict.SENSITIVE, Verdict.TOLERANT]
        assert np.all(workload.qos_tier == 1)


def test_something_else_than_decisions_is_named() -> None:
    with pytest.raises(ConfigurationError, match="decision 1 is no recorded decision"):
        read_ledger(json.dumps({"decisions": [{"a": 1}]}), "d.json")


@pytest.mark.parametrize("tokens", ["inf", "1e400", "nan", "1.5", "-1", "2147483647", "many", ""])
def test_what_is_no_number_of_tokens_is_told(tokens: str) -> None:
    with pytest.raises(ConfigurationError, match=r"a.csv:2: ContextTokens is .*, which is no number"):
        read_azure(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:51,{tokens},1\n", "a.csv")


@pytest.mark.parametrize("time", ["nan", "inf", "-inf", "soon", "1e999"])
def test_a_time_that_is_no_number_is_told(time: str) -> None:
    with pytest.raises(ConfigurationError, match=r"b.csv:2: Timestamp is .*, which is no number of seconds"):
        read_burstgpt(f"Timestamp,Model,Request tokens,Response tokens\n{time},m,3,4\n", "b.csv")


@pytest.mark.parametrize("time", ["NaN", "Infinity", '"soon"', "null", "[]", "1" + 400 * "0"])
def test_a_time_of_mooncake_that_is_no_number_is_told(time: str) -> None:
    line = f'{{"timestamp": {time}, "input_length": 5, "output_length": 6}}'
    with pytest.raises(ConfigurationError, match=r"m.jsonl:1: timestamp is .*, which is no number of milliseconds"):
        read_mooncake(line, "m.jsonl")


@pytest.mark.parametrize("recorded", [4, None, [], "x", {}, {"time": 3, "outcome": {}}, {"time": "x", "outcome": 4}])
def test_what_is_no_decision_is_told(recorded: object) -> None:
    with pytest.raises(ConfigurationError, match=r"d.json:1: decision 1 is no recorded decision"):
        read_ledger(json.dumps({"decisions": [recorded]}), "d.json")


def test_parts_of_a_decision_that_are_no_objects_tell_nothing() -> None:
    odd = decision(1, "tolerant") | {"decision": {"budget": "x", "sensitivity": [], "output_cap": 2**30, "choices": 9}}
    (request,) = read_ledger(json.dumps({"decisions": [odd]}), "d.json")

    assert (request.category, request.verdict, request.output_cap) == ("", "", 2**30 - 1)
    build("ledger", [request])


def test_times_without_a_zone_are_utc() -> None:
    (here,) = read_ledger(json.dumps(decision(1, "tolerant") | {"time": "2026-11-30T10:00:01"}), "d.jsonl")
    (there,) = read_ledger(json.dumps(decision(1, "tolerant")), "d.jsonl")

    assert here.seconds == there.seconds


def test_lines_end_where_files_say_and_nowhere_else() -> None:
    """JSON may hold the separators of lines and paragraphs that Unicode has."""
    line = json.dumps(decision(1, "tolerant") | {"request_id": "a\u2028b\x85c"}, ensure_ascii=False)

    assert len(read_ledger(f"{line}\n{line}\n", "d.jsonl")) == 2


def test_a_field_longer_than_csv_has_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"a.csv:2: is no CSV: field larger"):
        read_azure(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{'1' * 200_000},1,1\n", "a.csv")
