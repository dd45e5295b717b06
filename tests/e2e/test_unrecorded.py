"""The ledger knows how many decisions it has not, whatever died between the filter and it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import grpc
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


@dataclass(frozen=True)
class Seen:
    """`recorded` are the ids of requests whose decision is in the ledger; `undecided` is how many rows have none, those
    of clients that left before Envoy had the answer; `unrecorded` is how many decisions the ledger knows to miss."""

    recorded: frozenset[str]
    undecided: int
    unrecorded: int


async def look(system: RunningSystem) -> Seen | None:
    """None while the control plane is away."""
    try:
        listed = await system.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=10_000))
    except grpc.aio.AioRpcError:
        return None
    numbered = frozenset(each.request_id for each in listed.decisions if each.worker)
    return Seen(numbered, len(listed.decisions) - len(numbered), listed.unrecorded.decisions)


async def written(system: RunningSystem) -> bool:
    """Whether all rows are in the database."""
    ledger = (await system.fleet.GetStatus(fleet_pb2.GetStatusRequest())).ledger
    return bool(ledger.written) and not ledger.waiting


async def send(system: RunningSystem) -> str:
    """The request's id."""
    response = await system.http.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 200
    return response.headers["x-request-id"]


async def test_a_client_that_leaves_misses_in_the_ledger_at_most_where_it_left_before_the_answer(
    system: RunningSystem,
) -> None:
    sent = {await send(system) for _ in range(5)}
    assert (await system.http.get("/v1/models")).status_code == 200
    for patience in (0.001, 0.002, 0.004, 0.008, 0.016) * 6:
        with suppress(httpx.TimeoutException):
            await system.http.post("/v1/chat/completions", json=BODY, timeout=patience)

    async def all_there() -> bool:
        seen = await look(system)
        return seen is not None and sent <= seen.recorded and seen.unrecorded <= seen.undecided

    await until(all_there)


async def test_what_a_control_plane_that_died_did_not_write_is_counted(system: RunningSystem) -> None:
    sent = {await send(system)}

    async def is_written() -> bool:
        seen = await look(system)
        return seen is not None and sent <= seen.recorded and await written(system)

    await until(is_written)
    before = await look(system)
    assert before is not None
    await system.kill("controlplane")
    for _ in range(20):
        sent.add(await send(system))

    async def is_known() -> bool:
        seen = await look(system)
        return seen is not None and seen.unrecorded - before.unrecorded == len(sent - seen.recorded)

    await until(is_known)
    # And it stays so, whatever comes after.
    sent |= {await send(system) for _ in range(5)}
    await until(is_known)
    seen = await look(system)
    assert seen is not None
    told = (await system.headrace("decisions")).out
    assert (f"of decisions made then: {seen.unrecorded} not yet recorded" in told) is (seen.unrecorded > 0)
