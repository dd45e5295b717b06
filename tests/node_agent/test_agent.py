"""The agent against a Registry over real gRPC and an engine over real HTTP."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import httpx
import pytest
from prometheus_client import CollectorRegistry

from controlplane import child
from controlplane.errors import ConfigurationError
from controlplane.grpc_calling import ControlPlaneTarget
from node_agent.agent import run
from node_agent.metrics import AgentMetrics
from node_agent.settings import AgentSettings
from node_agent.telling import Telling
from node_agent.vram import Gpus
from support.engine import EngineShape, FakeEngine, Fault, running_engine
from support.registry import ScriptedRegistry, running_registry
from support.waiting import until

Start = Callable[..., "asyncio.Task[None]"]


class Agent:
    """An agent that runs. Its waits are cut short and kept in `waits`."""

    def __init__(self, settings: AgentSettings) -> None:
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.waits: list[float] = []
        self.metrics = CollectorRegistry()
        self.task = asyncio.create_task(
            run(
                settings,
                Gpus(),
                AgentMetrics(self.metrics, lambda: 1234.5),
                stop=self.stop,
                hurry=self.hurry,
                dice=lambda: 0.5,
                sleep=self._sleep,
            )
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.get_sample_value(f"headrace_node_{name}", labels)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))


@asynccontextmanager
async def running_agent(settings: AgentSettings) -> AsyncIterator[Agent]:
    agent = Agent(settings)
    try:
        yield agent
    finally:
        agent.stop.set()
        agent.hurry.set()
        async with asyncio.timeout(60):
            await agent.task


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def registry() -> AsyncIterator[ScriptedRegistry]:
    async with running_registry() as registry:
        yield registry


@pytest.fixture
def settings(engine: FakeEngine, registry: ScriptedRegistry) -> AgentSettings:
    return AgentSettings(
        engine_url=engine.url,
        control_planes=(ControlPlaneTarget(registry.address),),
        node_id="node-1",
        max_sequences=8,
        describe_seconds=3.0,
        ask_for_usage=False,
    )


# --- joining -------------------------------------------------------------------------------------------------------


async def test_it_registers_what_the_engine_tells_and_reports_its_load(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    async with running_agent(settings):
        await until(lambda: registry.reports and registry.last_load.healthy)
    [node] = registry.registered
    assert (node.node_id, node.address, node.engine) == ("node-1", engine.address, "vllm")
    [model] = node.models
    assert (model.id, model.format, model.max_context, model.max_sequences) == ("test-model", "int4-awq", 4096, 8)
    assert model.kv_cache_tokens == 65536


async def test_it_waits_for_an_engine_that_does_not_serve_yet(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    engine.healthy = False
    async with running_agent(settings):
        await until(lambda: len([r for r in engine.requests if r.path == "/health"]) > 3)
        assert not registry.registered
        engine.healthy = True
        await until(lambda: registry.reports)


async def test_it_waits_for_an_engine_that_does_not_listen_yet(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    async with running_engine() as gone:
        port = int(gone.url.rpartition(":")[2])
    async with running_agent(replace(settings, engine_url=f"http://127.0.0.1:{port}")) as agent:
        await until(lambda: len(agent.waits) > 3)
        async with running_engine(port=port):
            await until(lambda: registry.reports)
            agent.hurry.set()


async def test_what_neither_engine_nor_flags_tell_ends_it_with_everything_that_is_missing(
    settings: AgentSettings, engine: FakeEngine
) -> None:
    engine.shape = replace(engine.shape, root="org/some-model")
    agent = Agent(replace(settings, max_sequences=None))
    with pytest.raises(ConfigurationError) as caught:
        await agent.task
    assert [fault.partition("give ")[2].split()[0].rstrip(",") for fault in caught.value.faults] == [
        "--format",
        "--max-sequences",
    ]


async def test_it_is_stopped_while_it_waits_for_the_engine(settings: AgentSettings, engine: FakeEngine) -> None:
    engine.healthy = False
    async with running_agent(settings) as agent:
        await until(lambda: agent.waits)


async def test_a_host_name_is_advertised_as_ip_and_port(settings: AgentSettings, registry: ScriptedRegistry) -> None:
    async with running_agent(replace(settings, advertise="localhost:1234")):
        await until(lambda: registry.registered)
    assert registry.registered[0].address == "127.0.0.1:1234"


async def test_the_token_goes_with_every_call(settings: AgentSettings, registry: ScriptedRegistry) -> None:
    target = ControlPlaneTarget(registry.address, token="s3cret")
    async with running_agent(replace(settings, control_planes=(target,))):
        await until(lambda: registry.reports)
    assert registry.deregistered
    assert registry.authorizations == {"Bearer s3cret"}


async def test_a_refused_registration_tells_every_fault_and_is_tried_again_slowly(
    settings: AgentSettings, registry: ScriptedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.refusal = (grpc.StatusCode.INVALID_ARGUMENT, "models[0].format: unknown\nlabels: too many")
    async with running_agent(settings) as agent:
        await until(lambda: registry.events.count("refused") == 5)
        registry.refusal = None
        await until(lambda: registry.reports)
    first, *others = [r for r in caplog.records if "refused" in r.message]
    assert first.levelno == logging.ERROR
    assert "  models[0].format: unknown\n  labels: too many" in first.message
    assert not any("labels" in other.message for other in others)
    assert set(agent.waits) > {7.5, 15.0, 30.0, 45.0}  # three quarters of 10 s to 60 s with a dice of 0.5


async def test_one_that_never_registered_drains_and_leaves_nothing(
    settings: AgentSettings, registry: ScriptedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    registry.refusal = (grpc.StatusCode.ALREADY_EXISTS, "its address is another node's")
    async with running_agent(settings) as agent:
        await until(lambda: "refused" in registry.events)
        agent.stop.set()
        async with asyncio.timeout(60):
            await agent.task
    assert "draining" not in caplog.text
    assert "left the fleet" not in caplog.text
    assert "stopped before it was ever registered" in caplog.text


async def test_a_long_wait_for_the_engine_takes_few_lines(
    settings: AgentSettings, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine.healthy = False
    async with running_agent(settings) as agent:
        await until(lambda: len(agent.waits) > 30)
    assert caplog.text.count("waiting for the engine") <= 3


def test_the_same_thing_is_told_less_and_less_often() -> None:
    now = 0.0
    telling = Telling(lambda: now)
    told = []
    for second in range(1000):
        now = float(second)
        if telling.is_due("away"):
            told.append(second)
    assert told == [0, 5, 15, 35, 75, 155, 315, 615, 915]
    assert telling.is_due("another thing")
    telling.over()
    assert telling.is_due("another thing")


async def test_a_control_plane_that_cannot_write_is_left_for_the_next(
    settings: AgentSettings, registry: ScriptedRegistry
) -> None:
    registry.unavailable = True
    async with running_registry() as other:
        targets = tuple(ControlPlaneTarget(r.address) for r in (registry, other))
        async with running_agent(replace(settings, control_planes=targets)):
            await until(lambda: other.reports)
            registry.unavailable = False
    assert not registry.registered


async def test_waits_grow_while_no_control_plane_can_be_reached(
    settings: AgentSettings, registry: ScriptedRegistry
) -> None:
    registry.unavailable = True
    async with running_agent(settings) as agent:
        await until(lambda: 1.25 in agent.waits, 20)
    assert {0.125, 0.25, 0.5, 1.0, 1.25} < set(agent.waits)


# --- staying -------------------------------------------------------------------------------------------------------


async def test_reports_hold_what_runs_and_waits_in_the_engine(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    engine.shape = replace(engine.shape, max_num_seqs=2)
    engine.set_fault(Fault.HOLD)
    async with running_agent(settings), held_requests(engine, 5):
        await until(lambda: registry.reports and registry.last_load.waiting == 3)
        load = registry.last_load
        assert (load.running, load.healthy) == (2, True)
        assert load.kv_cache_use == pytest.approx(engine.counters.kv_tokens / 65536)


async def test_a_broken_stream_goes_on_with_the_same_session(
    settings: AgentSettings, registry: ScriptedRegistry
) -> None:
    async with running_agent(settings):
        await until(lambda: registry.reports)
        registry.break_streams()
        await until(lambda: registry.streams == 2)
        before = len(registry.reports)
        await until(lambda: len(registry.reports) > before)
    assert {report.session_id for report in registry.reports} == {"session-1"}
    assert len(registry.registered) == 1


async def test_a_restarted_control_plane_that_knows_the_session_goes_on_with_it(
    settings: AgentSettings, registry: ScriptedRegistry
) -> None:
    async with running_agent(settings):
        await until(lambda: registry.reports)
        await registry.stop()
        before = len(registry.reports)
        await registry.start()
        await until(lambda: len(registry.reports) > before)
    assert len(registry.registered) == 1


async def test_a_stopped_control_plane_is_left_for_the_next_with_the_same_session(
    settings: AgentSettings, registry: ScriptedRegistry
) -> None:
    async with running_registry() as other:
        other.sessions.add("session-1")
        targets = tuple(ControlPlaneTarget(r.address) for r in (registry, other))
        async with running_agent(replace(settings, control_planes=targets)):
            await until(lambda: registry.reports)
            await registry.stop()
            await until(lambda: other.reports)
    assert not other.registered


@pytest.mark.parametrize("by_status", [False, True])
async def test_a_lost_session_is_registered_anew_after_a_random_wait(
    settings: AgentSettings, registry: ScriptedRegistry, by_status: bool
) -> None:
    registry.not_found_by_status = by_status
    async with running_agent(settings) as agent:
        await until(lambda: registry.reports)
        registry.forget_sessions()
        await until(lambda: registry.reports[-1].session_id == "session-2")
    assert (1.0 if by_status else 0.5) in agent.waits  # half of within_seconds, or of our own 2 s


async def test_a_control_plane_that_hangs_is_left(engine: FakeEngine) -> None:
    async with running_registry(lease_seconds=0.2) as hung, running_registry() as other:
        other.sessions.add("session-1")
        settings = AgentSettings(
            engine_url=engine.url,
            control_planes=tuple(ControlPlaneTarget(r.address) for r in (hung, other)),
            node_id="node-1",
            max_sequences=8,
        )
        async with running_agent(settings):
            await until(lambda: hung.reports)
            hung.silent = True
            await until(lambda: other.reports)
        assert not other.registered


async def test_a_changed_engine_is_registered_as_what_it_is_now(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    async with running_agent(settings):
        await until(lambda: registry.reports)
        engine.shape = replace(engine.shape, root="org/test-model-gptq-int4", max_model_len=8192)
        await until(lambda: registry.reports[-1].session_id == "session-2")
    assert [(n.models[0].format, n.models[0].max_context) for n in registry.registered] == [
        ("int4-awq", 4096),
        ("int4-gptq", 8192),
    ]


async def test_an_engine_that_turns_unusable_keeps_its_session_and_says_why(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_agent(settings):
        await until(lambda: registry.reports)
        engine.shape = replace(engine.shape, root="org/plain")
        await until(lambda: "give --format" in caplog.text)
        engine.shape = EngineShape()
        before = len(registry.reports)
        await until(lambda: len(registry.reports) > before)
    assert len(registry.registered) == 1


# --- an engine in trouble ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.HANG])
async def test_an_engine_in_trouble_is_reported_unhealthy_and_healthy_again_afterwards(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry, fault: Fault
) -> None:
    async with running_agent(settings):
        await until(lambda: registry.reports and registry.last_load.healthy)
        engine.set_fault(fault)
        await until(lambda: not registry.last_load.healthy)
        engine.set_fault(Fault.NONE)
        await until(lambda: registry.last_load.healthy)
    assert len(registry.registered) == 1


async def test_an_engine_that_comes_back_as_another_one_is_never_reported_healthy_as_what_it_was(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    """A reload in another format under the same address: sessions of the old format must not reach it."""
    async with running_agent(replace(settings, describe_seconds=3600)):
        await until(lambda: registry.reports and registry.last_load.healthy)
        engine.healthy = False
        await until(lambda: not registry.last_load.healthy)
        away_since = len(registry.reports)
        engine.shape = replace(engine.shape, root="org/test-model-gptq-int4")
        engine.healthy = True
        await until(lambda: registry.reports[-1].session_id == "session-2" and registry.last_load.healthy)
    assert not [r for r in registry.reports[away_since:] if r.session_id == "session-1" and r.load.healthy]
    assert registry.registered[-1].models[0].format == "int4-gptq"


# --- metrics -------------------------------------------------------------------------------------------------------


async def test_its_metrics_tell_of_engine_and_registration(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    engine.shape = replace(engine.shape, max_num_seqs=2)
    engine.set_fault(Fault.HOLD)
    async with running_agent(settings) as agent:
        async with held_requests(engine, 5):
            await until(lambda: agent.metric("waiting") == 3)
            assert (agent.metric("running"), agent.metric("engine_healthy")) == (2, 1)
            assert agent.metric("kv_cache_use") == pytest.approx(engine.counters.kv_tokens / 65536)
        await until(lambda: agent.metric("heartbeats_total", result="ok"))
        assert agent.metric("registered") == 1
        assert agent.metric("registrations_total", result="ok") == 1
        assert agent.metric("heartbeat_acknowledged_timestamp_seconds") == 1234.5
        engine.set_fault(Fault.UNAVAILABLE)
        await until(lambda: agent.metric("engine_healthy") == 0)
    assert agent.metric("registered") == 0


async def test_its_metrics_count_what_goes_wrong(settings: AgentSettings, registry: ScriptedRegistry) -> None:
    registry.refusal = (grpc.StatusCode.INVALID_ARGUMENT, "labels: too many")
    async with running_agent(settings) as agent:
        await until(lambda: agent.metric("registrations_total", result="refused"))
        assert agent.metric("registered") == 0
        registry.refusal, registry.unavailable = None, True
        await until(lambda: agent.metric("registrations_total", result="unavailable"))
        registry.unavailable = False
        await until(lambda: agent.metric("registered") == 1)
        registry.unavailable = True
        registry.break_streams()
        await until(lambda: agent.metric("heartbeats_total", result="unavailable"))
        assert agent.metric("registered") == 1  # as far as it knows, until its lease is over
        registry.unavailable = False
        registry.forget_sessions()
        await until(lambda: agent.metric("heartbeats_total", result="session_lost"))
        await until(lambda: agent.metric("registrations_total", result="ok") == 2)


# --- leaving -------------------------------------------------------------------------------------------------------


async def test_it_drains_waits_for_what_runs_and_then_leaves(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry
) -> None:
    engine.set_fault(Fault.HOLD)
    async with running_agent(settings) as agent:
        async with held_requests(engine, 1):
            await until(lambda: registry.reports and registry.last_load.running == 1)
            agent.stop.set()
            await until(lambda: registry.drained)
            before = len(registry.reports)
            await until(lambda: len(registry.reports) > before + 3)  # the session stays alive meanwhile
            assert not registry.deregistered
        await agent.task
    assert registry.events == ["registered", "drained", "deregistered"]
    assert engine.counters.finished == 1


async def test_it_leaves_when_the_grace_is_over(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    engine.set_fault(Fault.HOLD)
    async with running_agent(replace(settings, drain_grace=0.1)) as agent, held_requests(engine, 1):
        await until(lambda: registry.reports and registry.last_load.running == 1)
        agent.stop.set()
        await agent.task
        assert registry.deregistered
    assert "may still run" in caplog.text


async def test_a_drain_by_an_operator_outlasts_changes_and_lost_sessions(
    settings: AgentSettings, engine: FakeEngine, registry: ScriptedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_agent(settings):
        await until(lambda: registry.reports)
        registry.draining = True
        await until(lambda: "draining by the control plane's instruction" in caplog.text)
        engine.shape = replace(engine.shape, max_model_len=8192)
        await until(lambda: "the engine's description changed" in caplog.text)
        assert len(registry.registered) == 1
        registry.forget_sessions()
        await until(lambda: registry.events == ["registered", "registered", "drained"])


async def test_sigterm_makes_the_process_leave_and_end_with_0(
    settings: AgentSettings, registry: ScriptedRegistry
) -> None:
    process = await child.start(
        [sys.executable, "-c", PROGRAM, settings.engine_url, registry.address], stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: registry.reports, 20)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        await child.stop(process, 1.0)
    assert registry.events == ["registered", "drained", "deregistered"]


PROGRAM = """
import asyncio, sys, time
from prometheus_client import CollectorRegistry
from controlplane.grpc_calling import ControlPlaneTarget
from node_agent.agent import run_until_signalled
from node_agent.metrics import AgentMetrics
from node_agent.settings import AgentSettings
from node_agent.vram import Gpus

url, registry = sys.argv[1:]
settings = AgentSettings(url, (ControlPlaneTarget(registry),), "node-1", max_sequences=8)
asyncio.run(run_until_signalled(settings, Gpus(), AgentMetrics(CollectorRegistry(), time.time)))
"""


@asynccontextmanager
async def held_requests(engine: FakeEngine, number: int) -> AsyncIterator[None]:
    """Requests that the engine holds, let go at the end."""
    body = {"model": engine.shape.model, "prompt": "x", "max_tokens": 2}
    async with httpx.AsyncClient(base_url=engine.url, timeout=30) as client, asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(client.post("/v1/completions", json=body))
        await until(lambda: engine.counters.running + engine.counters.waiting == number)
        try:
            yield
        finally:
            engine.set_fault(Fault.NONE)
