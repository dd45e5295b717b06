"""The agent of one node: waits for its engine, registers it, reports its load, and takes it out gracefully."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from controlplane.errors import ConfigurationError, UnavailableError
from controlplane.latest import Latest
from controlplane.model import NodeSpec
from node_agent.address import resolve
from node_agent.backoff import Backoff
from node_agent.description import describe_node
from node_agent.detection import detect_engine
from node_agent.engine import Engine
from node_agent.http import EngineHttp
from node_agent.membership import Membership, Sleep
from node_agent.metrics import Observer
from node_agent.probe import UNKNOWN, Probe, Reading
from node_agent.registry import RegistryClient
from node_agent.settings import AgentSettings
from node_agent.stream_usage import StreamUsage
from node_agent.telling import Telling
from node_agent.vram import Gpus

T = TypeVar("T")
Describe = Callable[[], Awaitable[NodeSpec]]

_log = logging.getLogger(__name__)

# Until a control plane tells another interval, and while there is none.
HEARTBEAT_SECONDS = 1.0
# Requests that Envoy had sent on their way when the node left routing still arrive: idle must last.
IDLE_READINGS = 3


async def run_until_signalled(settings: AgentSettings, gpus: Gpus, observer: Observer) -> None:
    """Runs until SIGTERM or SIGINT and leaves the fleet gracefully; a second signal ends the waiting for requests.

    Raises ConfigurationError when the engine and the flags together do not describe a node.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    try:
        await run(settings, gpus, observer, stop=stop, hurry=hurry)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def run(
    settings: AgentSettings,
    gpus: Gpus,
    observer: Observer,
    *,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    clock: Callable[[], float] = time.monotonic,
    dice: Callable[[], float] = random.random,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Runs until `stop` is set, then drains for at most `settings.drain_grace` seconds, less when `hurry` is set.

    `clock` is monotonic, in seconds; `dice` gives numbers in 0..1. Raises ConfigurationError as `run_until_signalled`.
    """
    async with EngineHttp(settings.engine_url) as http, RegistryClient(settings.control_planes) as registry:
        engine = await _unless(stop, _wait_for_engine(http, clock, dice, sleep))
        if engine is None:
            return

        usage = StreamUsage(http)

        async def describe() -> NodeSpec:
            address = await resolve(settings.advertised)
            found = await engine.describe()
            spec = describe_node(settings, found, gpus, address)
            usage.described(found)
            return spec

        spec = await _unless(stop, _wait_for_description(describe, clock, dice, sleep))
        if spec is None:
            return
        readings = Latest(UNKNOWN)
        membership = Membership(registry, spec, readings, observer, clock=clock, dice=dice, sleep=sleep)
        async with asyncio.TaskGroup() as group:
            watch = DescriptionWatch(describe, membership)
            tasks = [
                group.create_task(
                    _take_readings(
                        Probe(engine), readings, membership, watch, observer, usage=usage, clock=clock, sleep=sleep
                    )
                ),
                group.create_task(_look_again(watch, readings, settings.describe_seconds, sleep)),
                group.create_task(membership.keep()),
            ]
            if settings.ask_for_usage:
                tasks.append(group.create_task(usage.run(dice, sleep)))
            await stop.wait()
            if membership.was_registered:
                # The heartbeats go on meanwhile, or the lease would end with requests still running.
                await membership.drain()
                await _finish_requests(readings, settings.drain_grace, hurry)
            for task in tasks:
                task.cancel()
        if membership.was_registered:
            await membership.leave()
            _log.info("left the fleet node=%s", settings.node_id)
        else:
            _log.info("stopped before it was ever registered")


async def _wait_for_engine(
    http: EngineHttp, clock: Callable[[], float], dice: Callable[[], float], sleep: Sleep
) -> Engine:
    backoff, telling = Backoff(dice), Telling(clock)
    while True:
        try:
            engine = await detect_engine(http, clock)
            trouble = "it does not serve yet"
        except UnavailableError as error:
            engine, trouble = None, str(error)
        if engine is not None:
            return engine
        if telling.is_due(trouble):
            _log.info("waiting for the engine at %s: %s", http.url, trouble)
        await sleep(backoff.next())


async def _wait_for_description(
    describe: Describe, clock: Callable[[], float], dice: Callable[[], float], sleep: Sleep
) -> NodeSpec:
    backoff, telling = Backoff(dice), Telling(clock)
    while True:
        try:
            return await describe()
        except UnavailableError as error:
            if telling.is_due(str(error)):
                _log.warning("the node cannot be described yet: %s", error)
        await sleep(backoff.next())


async def _take_readings(
    probe: Probe,
    readings: Latest[Reading],
    membership: Membership,
    watch: DescriptionWatch,
    observer: Observer,
    *,
    usage: StreamUsage,
    clock: Callable[[], float],
    sleep: Sleep,
) -> None:
    """An engine that was away may be another one now: it is healthy once the node is registered as what it is."""
    due = clock()
    was_away = False
    while True:
        reading = await probe.read()
        was_away = not reading.load.healthy or (was_away and not await watch.look())
        if was_away:
            reading = replace(reading, load=replace(reading.load, healthy=False))
        reading = replace(reading, load=replace(reading.load, streams_usage=usage.told))
        observer.reading(reading.load)
        readings.put(reading)
        registration = membership.session.value
        interval = registration.heartbeat_seconds if registration else HEARTBEAT_SECONDS
        # Readings that are late are not made up for.
        due = max(due + interval, clock())
        await sleep(due - clock())


async def _look_again(watch: DescriptionWatch, readings: Latest[Reading], interval: float, sleep: Sleep) -> None:
    """An engine may come back as another one between two readings, or change while it runs."""
    while True:
        await sleep(interval)
        if readings.value.load.healthy:  # an engine that starts tells half of what it is
            await watch.look()


class DescriptionWatch:
    """Has the node registered anew when its engine is not what it was: started with another model or format."""

    def __init__(self, describe: Describe, membership: Membership) -> None:
        self._describe = describe
        self._membership = membership
        self._refused: tuple[str, ...] = ()

    async def look(self) -> bool:
        """Whether the engine tells what it is, and can be registered so."""
        try:
            spec = await self._describe()
        except UnavailableError:
            return False  # the readings tell that it is unhealthy
        except ConfigurationError as error:
            if self._refused != error.faults:
                _log.error("the engine is not what it was, and cannot be registered as it is:\n%s", error)
            self._refused = error.faults
            return False
        self._refused = ()
        if spec != self._membership.spec:
            _log.info("the engine's description changed, registering anew")
            self._membership.spec = spec
        return True


async def _finish_requests(readings: Latest[Reading], grace: float, hurry: asyncio.Event) -> None:
    """Waits until nothing runs; an engine that does not tell what runs is given the whole grace."""

    async def idle() -> bool:
        quiet = 0
        while quiet < IDLE_READINGS:
            quiet = quiet + 1 if (await readings.next()).running == 0 else 0
        return True

    _log.info("draining, for at most %.0f s", grace)
    with suppress(TimeoutError):
        async with asyncio.timeout(grace):
            if await _unless(hurry, idle()):
                return
    _log.warning("leaving, though requests may still run")


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None when `event` is set before, and `work` is cancelled."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
