from __future__ import annotations

import pytest

from controlplane.errors import ConfigurationError
from planner.workload.reading import read_traces

CODE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
CONVERSATION = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
MOONCAKE = '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": []}\n'


def test_files_of_one_clock_become_one_workload() -> None:
    workload = read_traces([("code.csv", CODE), ("conv.csv", CONVERSATION)])

    assert workload.source == "Azure LLM inference trace (CC-BY 4.0): code.csv, conv.csv"
    assert workload.input_tokens.tolist() == [374, 4808]
    assert workload.seconds == pytest.approx(77.3, abs=0.01)


def test_files_of_two_kinds_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="are of several"):
        read_traces([("code.csv", CODE), ("moon.jsonl", MOONCAKE)])


def test_faults_of_all_files_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_traces([("a.csv", CODE + "x,1,1\n"), ("b.csv", CODE + "y,1,1\n")])

    assert [fault.split(": ")[0] for fault in raised.value.faults] == ["a.csv:3", "b.csv:3"]


def test_any_other_file_is_refused_with_what_can_be_read() -> None:
    with pytest.raises(ConfigurationError, match="CSV of Azure or BurstGPT"):
        read_traces([("a.txt", "hello\n")])
