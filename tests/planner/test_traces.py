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
