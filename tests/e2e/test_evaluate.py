"""`headrace evaluate` against the real engines: the same model in 4 and in 16 bits."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MODEL, RealFleet
from headrace_protos.headrace.v1 import fleet_pb2
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "Zanzibar"
REQUESTS = [
    {
        "model": MODEL,
        "category": "extraction",
        "temperature": 0,
        "messages": [{"role": "user", "content": f'Extract the city as JSON: "She moved to {SECRET}."'}],
    },
    {
        "model": MODEL,
        "category": "writing",
        "temperature": 0.9,
        "headers": {"x-session-id": "evaluated"},
        "messages": [{"role": "user", "content": f"Tell me a story about {SECRET}."}],
    },
    {"model": MODEL, "prompt": "Once upon a time", "temperature": 1.0},
]


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in REQUESTS))
    return file


async def decided(fleet: RealFleet) -> int:
    """How many decisions are recorded."""
    return len((await fleet.system.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=1000))).decisions)


async def test_both_tiers_are_measured_and_reported_as_table_json_and_picture(
    fleet: RealFleet, requests: Path, tmp_path: Path
) -> None:
    report, picture = tmp_path / "report.json", tmp_path / "report.png"
    end = await fleet.system.headrace(
        "evaluate", str(requests), "--gateway", fleet.system.gateway, "--max-tokens", "12",
        "--json", str(report), "--png", str(picture),
    )  # fmt: skip
    assert end.status == 0, end.err
    assert "3 of 3 requests compared" in end.out
    assert "gguf-q4 against" in end.out
    for word in ("per 100 tokens", "shift per token", "decoding speed", "extraction", "sensitive", "noise"):
        assert word in end.out
    assert "Whether the verdicts hold on this model is open: too few requests (1 sensitive" in end.out
    text = report.read_text()
    assert SECRET not in text + end.out + end.err
    found = json.loads(text)
    assert found["requests"] == {"asked": 3, "compared": 3, "complete": True, "set_aside": [], "failures": {}}
    measured = {each["number"]: each for each in found["measured"]}
    assert [measured[n]["verdict"] for n in (1, 2)] == ["sensitive", "tolerant"]
    assert [measured[n]["category"] for n in (1, 2, 3)] == ["extraction", "writing", "prose"]
    assert [len(measured[n]["comparisons"]) for n in (1, 2, 3)] == [2, 4, 4]
    # The two engines hold other numbers for the same weights, the full one holds the same ones twice.
    overall = found["overall"]["greedy"]
    assert overall["quantized"]["unit"] == "tokens"
    assert overall["quantized"]["prefix_shift"]["value"] > 5 * overall["noise"]["prefix_shift"]["value"]
    assert overall["quantized"]["speed"] is not None
    assert picture.read_bytes().startswith(b"\x89PNG")


async def test_texts_are_kept_on_demand(fleet: RealFleet, requests: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    end = await fleet.system.headrace(
        "evaluate", str(requests), "--gateway", fleet.system.gateway, "--max-tokens", "4", "--limit", "1",
        "--keep-texts", "--json", str(report),
    )  # fmt: skip
    assert end.status == 0, end.err
    (measured,) = json.loads(report.read_text())["measured"]
    assert measured["request"]["model"] == MODEL
    assert {each["source"] for each in measured["answers"]} == {"full", "quantized", "full_again"}


async def test_a_policy_that_ignores_the_wish_is_told_before_anything_is_sent(
    fleet: RealFleet, requests: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    classes = "context_classes: [{name: short, max_context: 512}, {name: long}]\n"
    policy.write_text(classes + "tenants: {client_may_prefer: []}\n")
    assert (await fleet.system.headrace("policy", "set", str(policy))).status == 0
    try:
        before = await decided(fleet)
        end = await fleet.system.headrace("evaluate", str(requests), "--gateway", fleet.system.gateway)
        assert await decided(fleet) == before
    finally:
        assert (await fleet.system.headrace("policy", "reset")).status == 0
    assert end.status == 1
    assert end.out == ""
    assert "none of the 3 requests can be evaluated" in end.err
    assert "the policy does not let clients ask for the" in end.err
    assert "add quantized to tenants.client_may_prefer" in end.err


async def test_a_model_that_is_not_there_is_one_error_with_those_that_are(fleet: RealFleet) -> None:
    end = await fleet.system.headrace("evaluate", "--model", "nope", "--gateway", fleet.system.gateway)
    assert end.status == 1
    assert end.out == ""
    (error,) = end.err.strip().splitlines()
    assert error.startswith("error: none of the 42 requests can be evaluated: The model `nope` does not exist here")
    assert MODEL in error


async def test_ctrl_c_ends_it_with_a_report_of_what_was_done(fleet: RealFleet, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    before = await decided(fleet)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "evaluate", "--gateway", fleet.system.gateway, "--max-tokens", "8"),
        *("--control-plane", fleet.system.addresses["grpc"], "--json", str(report)),
        stdout=PIPE,
        stderr=PIPE,
    )

    async def two_are_done() -> bool:
        return await decided(fleet) - before > 12

    await until(two_are_done, 60)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "ended early" in out.decode()
    requests: dict[str, Any] = json.loads(report.read_text())["requests"]
    assert requests["complete"] is False
    assert 2 <= requests["compared"] < requests["asked"]


async def test_a_gateway_that_is_not_there_is_named(fleet: RealFleet, requests: Path) -> None:
    end = await fleet.system.headrace("evaluate", str(requests), "--gateway", "http://127.0.0.1:9")
    assert end.status == 1
    assert "the gateway could not be reached (http://127.0.0.1:9" in end.out
