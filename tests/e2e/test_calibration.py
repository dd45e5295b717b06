"""`headrace calibration` as an operator uses it, and the bounds that status suggests, on a running system."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from controlplane.estimation import codec
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from headrace_protos.headrace.v1 import calibration_pb2, fleet_pb2
from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, Ended, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
REQUESTS = 40
CONFIG = (
    FREE_PORTS
    + """
policy:
  context_classes: [{name: short, max_context: 4096}, {name: long}]
  thresholds: {minimum_samples: 30, patience: 1}
"""
)
PROSE = "The council met on Tuesday to discuss the plans, and several members asked how it had been worked out. "


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    """With requests of a few hundred tokens, which the engines' own counts have taught."""
    async with running_system(CONFIG) as running, node(running, "short", 4096), node(running, "long", 16384):
        await running.until_pools(f"{MODEL}/full/short/on_demand", f"{MODEL}/full/long/on_demand")
        for number in range(REQUESTS):
            answer = await running.http.post("/v1/chat/completions", json=chat(number))
            assert answer.status_code == 200, answer.text

        async def are_stored() -> bool:
            return await stored_samples(running) >= REQUESTS

        await until(are_stored, 60.0)
        yield running


@asynccontextmanager
async def node(system: RunningSystem, name: str, context: int) -> AsyncIterator[None]:
    shape = EngineShape(model=MODEL, max_model_len=context, max_num_seqs=256, bytes_per_token=6.0)
    flags = ("--max-sequences", "256", "--format", "fp16")
    async with running_engine(shape) as engine, system.node(engine.url, name, *flags):
        yield


def chat(number: int) -> dict[str, Any]:
    text = f"{number} {PROSE * (5 + number % 10)}"
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4}


async def stored_samples(system: RunningSystem) -> int:
    async with EtcdClient(EtcdAccess((system.addresses["etcd"],))) as client:
        records = (await client.list("/headrace/calibration/v1/")).records
    sums = [codec.decode(record) for record in records if "/statistics/" in record.key]
    return sum(each.samples for each in sums if each is not None)


async def calibration(system: RunningSystem, *arguments: str) -> Ended:
    ended = await system.headrace("calibration", *arguments)
    assert ended.status == 0, ended.err
    return ended


async def learned_of(system: RunningSystem) -> calibration_pb2.ModelCalibration:
    answer = await system.fleet.GetCalibration(calibration_pb2.GetCalibrationRequest(model=MODEL))
    return answer.models[0]


async def until_in_force(system: RunningSystem, expected: str) -> None:
    """Asked over gRPC, since a command takes a second or more."""

    async def is_so() -> bool:
        found = await learned_of(system)
        has_any = any(category.HasField("in_force") for category in found.categories)
        state = "pinned" if found.HasField("pinned_at") else "learned"
        return (state if has_any else "prior") == expected

    await until(is_so, 30.0)


async def line_of_prose(system: RunningSystem, *arguments: str) -> list[str]:
    shown = (await calibration(system, *arguments)).out
    assert max(map(len, shown.splitlines())) <= 80
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("prose")]
    return line


async def test_status_suggests_better_bounds(system: RunningSystem) -> None:
    """All requests would fit a far smaller class; the new control plane knows them from etcd."""
    await system.kill("controlplane")

    async def suggested() -> fleet_pb2.ContextBounds | None:
        try:
            status = await system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
        except grpc.aio.AioRpcError:
            return None
        return next((found for found in status.context_bounds if found.suggested != found.in_force), None)

    bounds: fleet_pb2.ContextBounds = await until(suggested, 90.0)
    assert (bounds.model, list(bounds.in_force)) == (MODEL, [4096])
    assert bounds.suggested[0] < 4096
    assert bounds.saving > bounds.saving_in_force
    ended = await system.headrace("status")
    assert f"{MODEL}: 4096 saves up to" in ended.out
    assert f"{bounds.suggested[0]} would save up to" in ended.out


async def test_the_table_the_json_and_the_picture_tell_what_was_learned(system: RunningSystem, tmp_path: Path) -> None:
    await until_in_force(system, "learned")
    picture = tmp_path / "calibration.png"
    line = await line_of_prose(system, "--model", MODEL, "--png", str(picture))
    assert (int(line[1]), line[-1]) == (REQUESTS, "learned")
    assert float(line[2]) == pytest.approx(6.0, rel=0.2)
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    (model,) = json.loads((await calibration(system, "--json")).out)["models"]
    (category,) = model["categories"]
    assert (model["model"], category["category"], int(category["samples"])) == (MODEL, "prose", REQUESTS)
    assert category["mis_routed"][0]["threshold"] == 4096
    assert int(category["in_force"]["samples"]) > 0


async def test_a_model_is_pinned_reset_and_let_go_on(system: RunningSystem) -> None:
    await until_in_force(system, "learned")
    assert (await calibration(system, "pin", MODEL)).out == (
        f"{MODEL} is pinned to what was learned for prose, priors for all else\n"
    )
    await until_in_force(system, "pinned")
    assert (await line_of_prose(system))[-1] == "pinned"
    assert "what was learned of test-model is forgotten" in (await calibration(system, "reset", MODEL)).out

    async def is_forgotten() -> bool:
        return not sum(each.samples for each in (await learned_of(system)).categories)

    await until(is_forgotten, 30.0)
    assert await line_of_prose(system) == ["prose", "0", *"-" * 9, "pinned"]
    assert f"the estimates of {MODEL} follow" in (await calibration(system, "unpin", MODEL)).out
    await until_in_force(system, "prior")
    assert "nothing is learned yet: priors are in force" in (await calibration(system)).out


async def test_mistakes_are_told_with_what_to_do(system: RunningSystem) -> None:
    mistakes = (
        (("reset", "test-modle"), "nothing is known of a model 'test-modle'; did you mean 'test-model'?"),
        (("unpin", MODEL), "the calibration of 'test-model' is not pinned; there are: none"),
        (("--model", "another"), "nothing is known of a model 'another'; there are: test-model"),
        (("--png", "/no/such/folder/a.png"), "there is no folder /no/such/folder"),
    )
    for arguments, said in mistakes:
        ended = await system.headrace("calibration", *arguments)
        assert ended.status != 0
        assert said in ended.err
