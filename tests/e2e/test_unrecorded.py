"""The ledger knows how many decisions it has not, whatever died between the filter and it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest
import pytest_asyncio

from headrace_protos.headrace.v1 import fleet_pb2
from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
PATIENT = FREE_PORTS.replace("control_plane: {", "control_plane: {lease: 20s, ")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with (
        running_system(PATIENT) as running,
        running_engine(EngineShape(model=MODEL)) as engine,
        running.node(engine.url, "only", "--max-sequences", "64", "--format", "fp16"),
    ):
        await running.until_pools(f"{MODEL}/full/short/on_demand")
        yield running


async def unrecorded(system: RunningSystem) -> int | None:
    """What status says, once it can."""
    try:
        status = await system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
    except Exception:  # the control plane is away
        return None
    return status.ledger.unrecorded.decisions if status.ledger.HasField("unrecorded") else None


async def recorded(system: RunningSystem) -> set[str]:
    listed = await system.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=10_000))
    return {each.request_id for each in listed.decisions if each.worker}


async def send(system: RunningSystem) -> str:
    """The request's id."""
    response = await system.http.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 200
    return response.headers["x-request-id"]


async def test_all_that_is_decided_gets_into_the_ledger_also_when_clients_leave(system: RunningSystem) -> None:
    sent = {await send(system) for _ in range(5)}
    assert (await system.http.get("/v1/models")).status_code == 200
    for patience in (0.001, 0.002, 0.004, 0.008, 0.016) * 6:
        with suppress(httpx.TimeoutException):
            await system.http.post("/v1/chat/completions", json=BODY, timeout=patience)

    async def all_there() -> bool:
        return sent <= await recorded(system) and await unrecorded(system) == 0

    await until(all_there, 30)


async def test_what_a_control_plane_that_died_did_not_write_is_counted(system: RunningSystem) -> None:
    before = await recorded(system)
    await system.kill("controlplane")
    sent: set[str] = set()
    for _ in range(20):
        sent.add(await send(system))

    async def is_known() -> bool:
        missing = await unrecorded(system)
        return missing is not None and missing == len(sent - await recorded(system) - before)

    await until(is_known, 60)
    # And it stays so, whatever comes after.
    sent |= {await send(system) for _ in range(5)}
    await until(is_known, 30)
    missing = len(sent - await recorded(system))
    told = (await system.headrace("decisions")).out
    assert (f"of decisions made then: {missing} not yet recorded" in told) is (missing > 0)
