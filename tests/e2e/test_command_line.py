"""The command line against a running system with two nodes: tables, JSON, draining, and the policy."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
FULL, QUANTIZED = f"{MODEL}/full/short/on_demand", f"{MODEL}/quantized/short/on_demand"
STORY = {"model": MODEL, "temperature": 0.9, "messages": [{"role": "user", "content": "Tell a story of a dragon."}]}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with (
        running_system(FREE_PORTS) as system,
        running_engine(EngineShape(model=MODEL)) as full,
        running_engine(EngineShape(model=MODEL)) as quantized,
        system.node(full.url, "full", "--max-sequences", "8", "--format", "fp16"),
        system.node(quantized.url, "quantized", "--max-sequences", "8", "--format", "int4-awq"),
    ):
        await system.until_pools(FULL, QUANTIZED)
        yield system


async def shown(system: RunningSystem, *arguments: str) -> Any:
    """What a command shows as JSON."""
    end = await system.headrace(*arguments, "--json")
    assert end.status == 0, end.err
    return json.loads(end.out)


async def test_nodes_are_listed(system: RunningSystem) -> None:
    table = await system.headrace("nodes")
    assert table.status == 0
    for word in ("full", "quantized", f"{MODEL} fp16 4096 x 8", f"{MODEL} int4-awq", "ready", FULL, QUANTIZED):
        assert word in table.out
    nodes = (await shown(system, "nodes"))["nodes"]
    assert [node["spec"]["node_id"] for node in nodes] == ["full", "quantized"]
    assert [node["ready"] for node in nodes] == [True, True]
    assert nodes[0]["pools"] == [FULL]
    assert nodes[0]["spec"]["models"][0]["max_context"] == 4096
    none = await system.headrace("nodes", "--model", "other")
    assert none.out.splitlines()[-1] == "none"


async def test_pools_are_listed(system: RunningSystem) -> None:
    table = await system.headrace("pools")
    assert table.status == 0
    for word in (FULL, QUANTIZED, "short (4096)", "1/1", "int4-awq"):
        assert word in table.out
    pools = (await shown(system, "pools", "-m", MODEL))["pools"]
    assert [(pool["name"], pool["ready_nodes"], pool["nodes"]) for pool in pools] == [(FULL, 1, 1), (QUANTIZED, 1, 1)]


async def test_the_status_of_a_system_that_is_well(system: RunningSystem) -> None:
    status = await shown(system, "status")
    assert (status["nodes"], status["ready_nodes"], status["pools"]) == (2, 2, 2)
    assert status["etcd"] == "connected"
    assert len(status["filter_workers"]) == len(status["envoys"]) == 1
    assert status["conditions"] == []
    told = await system.headrace("status")
    assert "2 ready of 2, in 2 pools" in told.out
    assert "all is well" in told.out


async def test_decisions_are_listed(system: RunningSystem) -> None:
    response = await system.http.post("/v1/chat/completions", json=STORY)
    assert response.status_code == 200
    await system.recorded(response)
    table = await system.headrace("decisions", "-n", "1")
    for word in (MODEL, "tolerant", QUANTIZED, "tolerant_prefers_quantized", "200"):
        assert word in table.out
    (decision,) = (await shown(system, "decisions", "-n", "1"))["decisions"]
    assert decision["request_id"] == response.headers["x-request-id"]
    assert decision["decision"]["pool"] == QUANTIZED
    assert decision["outcome"]["status"] == 200
    listed = (await shown(system, "decisions", "--pool", FULL))["decisions"]
    assert all(each["decision"]["pool"] == FULL for each in listed)


async def test_decisions_are_filtered_and_the_ledger_has_them(system: RunningSystem) -> None:
    session = {"x-session-id": "conversation-7", "authorization": "Bearer of-a-client"}
    response = await system.http.post("/v1/chat/completions", json=STORY, headers=session)
    refused = await system.http.post("/v1/chat/completions", json={**STORY, "model": "no-such"}, headers=session)
    assert refused.status_code == 404
    for each in (response, refused):
        await system.recorded(each)

    async def listed(*options: str) -> list[str]:
        return [each["request_id"] for each in (await shown(system, "decisions", *options))["decisions"]]

    both = [refused.headers["x-request-id"], response.headers["x-request-id"]]
    assert await listed("--session", "conversation-7") == both
    (whole,) = (await shown(system, "decisions", "--request-id", both[1]))["decisions"]
    assert whole["decision"]["session"].startswith("id:")
    assert "conversation-7" not in json.dumps(whole)
    assert await listed("--session", whole["decision"]["session"], "--tenant", whole["decision"]["tenant"]) == both
    assert await listed("--session", "conversation-7", "--errors") == both[:1]
    assert await listed("--session", "conversation-7", "--status", "4xx", "--since", "10m") == both[:1]
    assert await listed("--session", "conversation-7", "--verdict", "tolerant", "--tier", "quantized") == both[1:]
    assert await listed("--session", "conversation-7", "--until", "2020-01-01") == []

    async def written() -> bool:
        ledger = (await shown(system, "status"))["ledger"]
        return ledger["waiting"] == "0" and int(ledger["written"]) >= 2 and not ledger["trouble"]

    await until(written)
    assert await listed("--session", "conversation-7") == both


async def test_decisions_are_followed_line_by_line(system: RunningSystem) -> None:
    argv = [sys.executable, "-m", "headrace", "decisions", "--follow", "--json", "-n", "0", "--status", "200"]
    follower = await asyncio.create_subprocess_exec(
        *argv, "--control-plane", system.addresses["grpc"], stdout=asyncio.subprocess.PIPE
    )
    assert follower.stdout is not None
    try:
        reading = asyncio.ensure_future(follower.stdout.readline())
        sent = set()
        while not reading.done():  # it may not have begun when the first ones are recorded
            response = await system.http.post("/v1/chat/completions", json=STORY)
            sent.add(response.headers["x-request-id"])
            await system.recorded(response)
        line = json.loads(await reading)
        assert line["request_id"] in sent
        assert line["decision"]["reasons"]
    finally:
        follower.send_signal(signal.SIGINT)
        assert await follower.wait() == 0


async def test_a_request_is_explained_by_the_running_fleet_and_sent_nowhere(system: RunningSystem) -> None:
    before = len((await shown(system, "decisions"))["decisions"])
    end = await system.headrace("explain", "-", "-H", "x-session-id: 7", "--json", stdin=json.dumps(STORY).encode())
    assert end.status == 0
    decision = json.loads(end.out)
    assert decision["pool"] == QUANTIZED
    assert {alternative["pool"] for alternative in decision["alternatives"]} == {FULL, QUANTIZED}
    refused = await system.headrace("explain", stdin=b"{")
    assert refused.status == 0
    assert "reject: " in refused.out
    after = len((await shown(system, "decisions"))["decisions"])
    assert before == after


async def test_a_policy_is_shown_set_in_force_and_reset(system: RunningSystem, tmp_path: Path) -> None:
    shown = await system.headrace("policy", "get")
    assert shown.status == 0
    assert shown.out.startswith("# from the configuration file\n")

    # What is shown can be changed and set again.
    file = tmp_path / "policy.yaml"
    file.write_text("context_classes: [{name: tiny, max_context: 100}, {name: all}]\n")
    done = await system.headrace("policy", "set", str(file))
    assert (done.status, done.out) == (0, "the policy is set\n")
    await system.until_pools(f"{MODEL}/full/all/on_demand", f"{MODEL}/quantized/all/on_demand")
    overridden = await system.headrace("policy", "get")
    assert overridden.out.startswith("# set by an operator\n")
    file.write_text(overridden.out)
    assert (await system.headrace("policy", "set", str(file))).status == 0

    async def leads_to(pool: str) -> bool:
        response = await system.http.post("/v1/chat/completions", json=STORY)
        return response.headers.get("x-headrace-pool") == pool

    await until(lambda: leads_to(f"{MODEL}/quantized/all/on_demand"))
    done = await system.headrace("policy", "reset")
    assert (done.status, done.out) == (0, "the configured policy is in force again\n")
    await until(lambda: leads_to(QUANTIZED))
    assert (await system.headrace("policy", "get")).out == shown.out


async def test_a_policy_with_faults_is_refused_whole_with_each_and_its_line(
    system: RunningSystem, tmp_path: Path
) -> None:
    before = await system.headrace("policy", "get")
    file = tmp_path / "policy.yaml"
    file.write_text("context_classes: [{name: all}]\nsensitivity: 7\nno_such_thing: 1\n")
    end = await system.headrace("policy", "set", str(file))
    assert (end.status, end.out) == (1, "")
    first, second = end.err.splitlines()
    assert first.startswith(f"error: {file}:2: sensitivity: ")
    assert second.startswith(f"{file}:3: no_such_thing: ")
    assert (await system.headrace("policy", "get")).out == before.out


@pytest.mark.parametrize(
    "mistake",
    [
        "no_such_thing: 1",
        "sensitivity: {sensitive_at: much}",
        "qos: {mode: enabled, standard: {output_caps: []}}",
        "qos: {standard: {elevated_at: {kv_cache_use: 0.9}, critical_at: {kv_cache_use: 0.8}}}",
        "qos: {standard: {when_critical: fallback}}",
        "qos: {mode: enabled",
    ],
)
async def test_a_policy_with_any_mistake_is_refused_whole_and_the_running_one_stays(
    system: RunningSystem, tmp_path: Path, mistake: str
) -> None:
    before = await system.headrace("policy", "get")
    file = tmp_path / "policy.yaml"
    # What is right in it would lead to pools of other names.
    file.write_text(f"context_classes: [{{name: all}}]\n{mistake}\n")
    end = await system.headrace("policy", "set", str(file))
    assert (end.status, end.out) == (1, "")
    assert f"error: {file}:" in end.err
    assert (await system.headrace("policy", "get")).out == before.out
    response = await system.http.post("/v1/chat/completions", json=STORY)
    assert response.headers["x-headrace-pool"] == QUANTIZED


async def test_draining_takes_a_node_out_of_routing(system: RunningSystem) -> None:
    unknown = await system.headrace("drain", "no-such-node")
    assert (unknown.status, unknown.err) == (1, "error: node no-such-node is not registered\n")
    async with (
        running_engine(EngineShape(model="other")) as engine,
        system.node(engine.url, "leaving", "--max-sequences", "8", "--format", "fp16"),
    ):
        await system.until_pools(FULL, QUANTIZED, "other/full/short/on_demand")
        done = await system.headrace("drain", "leaving")
        assert (done.status, done.out) == (0, "leaving is draining\n")
        await system.until_pools(FULL, QUANTIZED)
        assert "draining" in (await system.headrace("nodes", "-m", "other")).out
        status = await shown(system, "status")
        assert [condition["name"] for condition in status["conditions"]] == ["pool_without_ready_node"]
