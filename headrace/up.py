"""The whole system on one machine: etcd, control plane, filter workers and Envoy as children of this process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from controlplane.config.addresses import dialable
from controlplane.config.load import dump
from controlplane.config.settings import Settings
from controlplane.errors import HeadraceError
from controlplane.etcd.server import EtcdServer, find_program
from controlplane.grpc_calling import ControlPlaneTarget
from headrace.credentials import target
from headrace.forking import ForkServer
from headrace.one_machine import fit_to_one_machine, next_port
from headrace.supervisor import Part, Supervisor, program

_log = logging.getLogger(__name__)

START_SECONDS = 60.0
CHECK_SECONDS = 2.0
FIRST_TOLD_SECONDS = 3.0  # what is waited for, if the start takes longer than usual
POLL_SECONDS = 0.05
CONFIG_FILE = "headrace.yaml"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the parts of a running system are; what `--ready-file` holds. `etcd` is the first endpoint."""

    gateway: str
    grpc: str
    xds: str
    ext_proc: str
    metrics: str
    envoy_admin: str
    etcd: str


@dataclass(frozen=True, slots=True)
class System:
    """A system through which traffic can flow. `settings` have every port filled in; without a log folder, parts log to
    our own output."""

    addresses: Addresses
    settings: Settings
    supervisor: Supervisor
    state_dir: Path
    log_dir: Path | None

    @property
    def config_file(self) -> Path:
        """The settings as the parts read them."""
        return self.state_dir / CONFIG_FILE

    async def add_program(self, name: str, argv: list[str]) -> None:
        """One more child, stopped before those it was started after."""
        await self.supervisor.add(program(name, argv, log=_log_file(self.log_dir, name)))


@asynccontextmanager
async def running_system(
    settings: Settings, *, state_dir: Path | None = None, log_dir: Path | None = None
) -> AsyncIterator[System]:
    """Starts everything, yields once traffic can flow, and stops everything in order.

    `state_dir` keeps etcd's data over runs; without one it is temporary. Raises PartFailedError when a part does not
    start, with its last words, and HeadraceError when an address is taken or the whole takes longer than START_SECONDS.
    """
    async with AsyncExitStack() as stack:
        if state_dir is None:
            state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        for folder in (state_dir, log_dir):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        settings = fit_to_one_machine(settings, state_dir)
        forking = stack.enter_context(ForkServer(_log_file(log_dir, "fork-server")))
        supervisor = await stack.enter_async_context(Supervisor(time.monotonic))
        system = await _start(settings, supervisor, forking, state_dir, log_dir)
        supervisor.settled()
        yield system


async def _start(
    settings: Settings, supervisor: Supervisor, forking: ForkServer, state_dir: Path, log_dir: Path | None
) -> System:
    deadline = time.monotonic() + START_SECONDS
    if not settings.etcd.endpoints:
        endpoint = await _add_etcd(settings, supervisor, state_dir)
        settings = replace(settings, etcd=replace(settings.etcd, endpoints=(endpoint,), data_dir=None))
    file = state_dir / CONFIG_FILE
    file.write_text(dump(settings))
    config = ("--config", str(file))

    def headrace(name: str, *arguments: str) -> Part:
        argv = [sys.executable, "-m", "headrace", *arguments, *config]
        return program(name, argv, log=_log_file(log_dir, name))

    told = _Told(time.monotonic)

    async def until_well(trouble: Callable[[], Awaitable[str | None]]) -> None:
        await _first(supervisor.failure(), _poll(trouble, deadline, log_dir, told))

    await supervisor.add(headrace("control-plane", "controlplane"))
    if sys.platform == "linux":
        await supervisor.add(forking.part)
    for worker in range(len(settings.ext_proc.advertise)):
        command = ("ext-proc", "--worker", str(worker))
        part = forking.forked(headrace(f"filter-{worker}", *command), f"ext-proc {worker}", (*command, *config))
        health = ControlPlaneTarget(dialable(next_port(settings.ext_proc.health, worker)))
        await supervisor.add(replace(part, answers=partial(_is_alive, health)))
    control_plane = target(dialable(settings.control_plane.grpc), settings.caller)
    # Envoy would warn of a control plane that does not listen yet.
    await until_well(lambda: _silence_of_grpc(control_plane))
    # Last, so that it is stopped first: no request meets a system that has half ended.
    await supervisor.add(headrace("envoy", "envoy"))
    await until_well(lambda: _trouble_of_control_plane(control_plane, settings.control_plane.metrics))
    for address in settings.ext_proc.advertise:
        await until_well(partial(_trouble_of_grpc, ControlPlaneTarget(address)))
    await until_well(lambda: _trouble_of_gateway(settings.gateway.address))
    return System(
        addresses=Addresses(
            gateway=settings.gateway.address,
            grpc=settings.control_plane.grpc,
            xds=settings.control_plane.xds,
            ext_proc=settings.ext_proc.advertise[0],
            metrics=settings.control_plane.metrics,
            envoy_admin=settings.envoy.admin,
            etcd=settings.etcd.endpoints[0],
        ),
        settings=settings,
        supervisor=supervisor,
        state_dir=state_dir,
        log_dir=log_dir,
    )


def write_ready_file(path: Path, addresses: Addresses) -> None:
    """Whole or not at all: a reader never sees half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(addresses)) + "\n")
    draft.replace(path)


async def _add_etcd(settings: Settings, supervisor: Supervisor, state_dir: Path) -> str:
    folder = Path(settings.etcd.data_dir) if settings.etcd.data_dir else state_dir / "etcd"
    server = EtcdServer(await find_program(), folder)

    async def start() -> asyncio.subprocess.Process:
        await server.start()
        return server.process

    await supervisor.add(Part("etcd", start, server.log_file))
    return server.endpoint


def _log_file(log_dir: Path | None, name: str) -> Path | None:
    return log_dir / f"{name}.log" if log_dir else None


async def _silence_of_grpc(server: ControlPlaneTarget) -> str | None:
    """Why a gRPC server does not answer; None when it does, whether or not it is ready."""
    return await _trouble_of_grpc(server, service="liveness")


async def _is_alive(server: ControlPlaneTarget) -> bool:
    return await _silence_of_grpc(server) is None


async def _trouble_of_grpc(server: ControlPlaneTarget, service: str = "") -> str | None:
    """Why a gRPC server, or one of its services, is not ready; None when it is."""
    async with server.open() as channel:
        try:
            check = health_pb2_grpc.HealthStub(channel).Check
            answer = await check(health_pb2.HealthCheckRequest(service=service), timeout=CHECK_SECONDS)
        except grpc.aio.AioRpcError as error:
            details = error.details() or error.code().name
            if "Connection refused" in details:  # as long as it starts; what else there is may need somebody
                return f"nothing listens at {server} yet"
            return f"{server} does not answer: {details}"
        return None if answer.status == health_pb2.HealthCheckResponse.SERVING else f"{server} is not ready"


async def _trouble_of_control_plane(server: ControlPlaneTarget, metrics: str) -> str | None:
    """Its readiness probe says more than gRPC's health can: that it waits for etcd, and where."""
    trouble = await _trouble_of_grpc(server)
    if trouble is None:
        return None
    with suppress(httpx.HTTPError):
        async with httpx.AsyncClient(trust_env=False, timeout=CHECK_SECONDS) as http:
            answer = await http.get(f"http://{dialable(metrics)}/readyz")
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                return answer.text.strip()
    return trouble


async def _trouble_of_gateway(gateway: str) -> str | None:
    """Why a request does not go the whole way to Envoy, the filter and back; None when it does."""
    async with httpx.AsyncClient(trust_env=False, timeout=CHECK_SECONDS) as http:
        try:
            answer = await http.get(f"http://{dialable(gateway)}/v1/models")
        except httpx.HTTPError as error:
            return f"the gateway at {gateway} does not answer: {error}"
        # That it does not know us says that it is well, too.
        well = answer.is_success or answer.headers.get("x-headrace-reason") == "invalid_api_key"
        return None if well else f"the gateway at {gateway} answers {answer.status_code}: {answer.text}"


class _Told:
    """Says what is waited for, less and less often. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wait = FIRST_TOLD_SECONDS
        self._due = clock() + self._wait

    def tell(self, trouble: str) -> None:
        if self._clock() >= self._due:
            self._wait *= 2
            self._due = self._clock() + self._wait
            _log.info("still starting: %s", trouble)


async def _poll(
    trouble: Callable[[], Awaitable[str | None]], deadline: float, log_dir: Path | None, told: _Told
) -> None:
    """Another process becomes ready, which sets no event here. `deadline` by the monotonic clock."""
    while (found := await trouble()) is not None:
        told.tell(found)
        if time.monotonic() > deadline:
            where = f"the logs in {log_dir}" if log_dir else "the logs of its parts"
            raise HeadraceError(f"the system was not up after {START_SECONDS:.0f} s: {found}\n{where} may say why")
        await asyncio.sleep(POLL_SECONDS)


async def _first(*awaitables: Awaitable[None]) -> None:
    """Waits for the first to end, raises what it raised, and cancels the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
