"""What engines count changes where requests go: through Envoy, the access log, etcd and the routing table."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from controlplane import child
from controlplane.config.load import dump
from controlplane.estimation import codec
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.etcd.server import free_ports
from headrace_protos.headrace.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    calibration_pb2,
    decision_pb2,
    fleet_pb2,
    fleet_pb2_grpc,
)
from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, START_SECONDS, STOP_SECONDS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
SHORT, LONG = f"{MODEL}/full/short/on_demand", f"{MODEL}/full/long/on_demand"
CONFIG = FREE_PORTS + "policy: {context_classes: [{name: short, max_context: 2048}, {name: long}]}\n"
# No tokenizer is so thrifty, which makes what is learned another thing than what is expected.
BYTES_PER_TOKEN = 8.0
PROSE = "The council met on Tuesday to discuss the plans, and several members asked how it had been worked out. "
BORDERLINE = 7500  # bytes: some 1700 tokens by the priors, 940 by this engine


def chat(size: int, number: int = 0, **more: Any) -> dict[str, Any]:
    text = f"{number} {PROSE * (size // len(PROSE) + 1)}"[:size]
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 500, **more}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with running_system(CONFIG) as running, node(running, "short", 2048), node(running, "long", 16384):
        await running.until_pools(SHORT, LONG)
        yield running


@asynccontextmanager
async def node(system: RunningSystem, name: str, context: int) -> AsyncIterator[None]:
    shape = EngineShape(model=MODEL, max_model_len=context, bytes_per_token=BYTES_PER_TOKEN)
    async with (
        running_engine(shape) as engine,
        system.node(engine.url, name, "--max-sequences", "8", "--format", "fp16"),
    ):
        yield


async def send(system: RunningSystem, body: dict[str, Any], **headers: str) -> httpx.Response:
    answer = await system.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


async def pools_of_borderline(system: RunningSystem) -> set[str]:
    """Of a whole answer and of a streamed one."""
    return {
        (await send(system, chat(BORDERLINE, **form))).headers["x-headrace-pool"] for form in ({}, {"stream": True})
    }


async def calibration(system: RunningSystem) -> calibration_pb2.GetCalibrationResponse:
    return await system.fleet.GetCalibration(calibration_pb2.GetCalibrationRequest(model=MODEL))


async def samples(system: RunningSystem) -> int:
    (model,) = (await calibration(system)).models
    return sum(category.samples for category in model.categories)


async def usage(system: RunningSystem, result: str, *, streamed: bool) -> int:
    counts = (await calibration(system)).usage
    return sum(count.requests for count in counts if (count.result, count.streamed) == (result, streamed))


async def test_what_the_engine_counts_changes_the_pool_of_a_borderline_request(system: RunningSystem) -> None:
    """Facts row: decision order (answers teach)."""
    before = await send(system, chat(BORDERLINE), **{"x-headrace-debug": "1"})
    assert await pools_of_borderline(system) == {before.headers["x-headrace-pool"]} == {LONG}
    assert json.loads(before.headers["x-headrace-decision"])["rests_on"] == "prior"
    for number in range(20):
        whole = chat(1000 + 150 * number, number, max_tokens=4)
        await send(system, whole)
        await send(system, {**whole, "stream": True, "stream_options": {"include_usage": True}})

    async def is_learned() -> httpx.Response | None:
        """By both forms, since what a few answers less had taught may have held the next one back."""
        answer = await send(system, chat(BORDERLINE), **{"x-headrace-debug": "1"})
        learned = json.loads(answer.headers["x-headrace-decision"])["samples"] >= 20
        return answer if learned and await pools_of_borderline(system) == {SHORT} else None

    after: httpx.Response = await until(is_learned, 20.0)
    debug = json.loads(after.headers["x-headrace-decision"])
    assert after.headers["x-headrace-pool"] == SHORT
    assert debug["rests_on"] == "learned"
    assert debug["likely_prompt_tokens"] == pytest.approx(BORDERLINE / BYTES_PER_TOKEN, rel=0.08)
    assert await usage(system, "learned", streamed=True) == 20
    recorded = await system.recorded(after)
    assert recorded.decision.context_class == "short"
    assert recorded.decision.features.text[0] == BORDERLINE


async def test_it_survives_a_restart_of_everything_but_etcd(system: RunningSystem) -> None:
    async def all_are_counted() -> bool:
        return await samples(system) >= 40

    await until(all_are_counted)
    learned = await samples(system)

    async def is_stored() -> bool:
        return await stored_samples(system) >= learned

    await until(is_stored, 45.0)
    for part in ("controlplane", "ext-proc", "--disable-hot-restart"):
        await system.kill(part)

    async def answers_as_learned() -> bool:
        try:
            return await pools_of_borderline(system) == {SHORT} and await samples(system) >= learned
        except (AssertionError, httpx.TransportError, grpc.aio.AioRpcError):
            return False

    await until(answers_as_learned, 60.0)
    after = await send(system, chat(BORDERLINE), **{"x-headrace-debug": "1"})
    assert json.loads(after.headers["x-headrace-decision"])["rests_on"] == "learned"


async def stored_samples(system: RunningSystem) -> int:
    async with EtcdClient(EtcdAccess((system.addresses["etcd"],))) as client:
        records = (await client.list("/headrace/calibration/v1/")).records
    sums = [codec.decode(record) for record in records if "/statistics/" in record.key]
    return sum(each.samples for each in sums if each is not None)


async def test_two_control_planes_agree_within_seconds(system: RunningSystem) -> None:
    async with another_control_plane(system) as (process, fleet, admin):

        async def agree() -> bool:
            assert process.returncode is None, (system.folder / "another.log").read_text()
            try:
                answer = await fleet.GetCalibration(calibration_pb2.GetCalibrationRequest(model=MODEL))
            except grpc.aio.AioRpcError:
                return False
            return [sum(each.samples for each in model.categories) for model in answer.models] == [
                await samples(system)
            ]

        await until(agree, START_SECONDS)
        before = await samples(system)
        for number in range(5):
            await send(system, chat(2000, number))

        async def has_more() -> bool:
            return await samples(system) >= before + 5 and await agree()

        await until(has_more)

        async def estimate_alike() -> bool:
            """By what is in force, which follows what is counted."""
            one, other = await explained(system.fleet), await explained(fleet)
            near = one.prompt_tokens == pytest.approx(other.prompt_tokens, rel=0.05)  # what moved by less is not told
            return one.rests_on == other.rests_on == "learned" and near

        await until(estimate_alike)
        await admin.PinCalibration(admin_pb2.PinCalibrationRequest(model=MODEL))

        async def is_pinned() -> bool:
            return (await explained(system.fleet)).rests_on == "pinned" == (await explained(fleet)).rests_on

        await until(is_pinned)
        await admin.ResetCalibration(admin_pb2.ResetCalibrationRequest(model=MODEL))

        async def is_forgotten() -> bool:
            return await samples(system) == 0

        await until(is_forgotten)
        assert await is_pinned()
        await admin.UnpinCalibration(admin_pb2.UnpinCalibrationRequest(model=MODEL))

        async def is_unlearned() -> bool:
            return (await explained(system.fleet)).rests_on == "prior" == (await explained(fleet)).rests_on

        await until(is_unlearned)

        async def goes_long_again() -> bool:
            return await pools_of_borderline(system) == {LONG}

        await until(goes_long_again)


async def explained(fleet: fleet_pb2_grpc.FleetStub) -> decision_pb2.Budget:
    body = json.dumps(chat(BORDERLINE)).encode()
    return (await fleet.Explain(fleet_pb2.ExplainRequest(body=body))).decision.budget


@asynccontextmanager
async def another_control_plane(
    system: RunningSystem,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, fleet_pb2_grpc.FleetStub, admin_pb2_grpc.AdminStub]]:
    """A second one of the same cluster, by the same etcd."""
    settings = system.settings()
    ports = free_ports(3)
    grpc_, xds, metrics = (f"127.0.0.1:{port}" for port in ports)
    control = replace(settings.control_plane, grpc=grpc_, xds=xds, metrics=metrics)
    config = system.folder / "another.yaml"
    config.write_text(dump(replace(settings, control_plane=control)))
    with (system.folder / "another.log").open("wb") as log:
        process = await child.start(
            [sys.executable, "-m", "headrace", "controlplane", "--config", str(config)], stdout=log
        )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
            yield process, fleet_pb2_grpc.FleetStub(channel), admin_pb2_grpc.AdminStub(channel)
    finally:
        await child.stop(process, STOP_SECONDS)
