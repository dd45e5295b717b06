"""The whole system on one machine: etcd, control plane, filter workers and Envoy as children of this process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from controlplane.config.addresses import split_address, unix_path
from controlplane.config.load import dump
from controlplane.config.settings import Settings
from controlplane.errors import HeadraceError
from controlplane.etcd.server import EtcdServer, find_program, free_ports
from headrace.supervisor import Part, Supervisor, program

START_SECONDS = 60.0
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
    start, with its last words, and HeadraceError when the whole takes longer than START_SECONDS.
    """
    async with AsyncExitStack() as stack:
        if state_dir is None:
            state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        for folder in (state_dir, log_dir):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        supervisor = await stack.enter_async_context(Supervisor(time.monotonic))
        try:
            async with asyncio.timeout(START_SECONDS):
                system = await _start(settings, supervisor, state_dir, log_dir)
        except TimeoutError:
            raise HeadraceError(
                f"the system was not up after {START_SECONDS:.0f} s; the logs of its parts say why"
                + (f": {log_dir}" if log_dir else "")
            ) from None
        supervisor.settled()
        yield system


async def _start(settings: Settings, supervisor: Supervisor, state_dir: Path, log_dir: Path | None) -> System:
    settings = _with_ports(settings, state_dir)
    if not settings.etcd.endpoints:
        endpoint = await _add_etcd(settings, supervisor, state_dir)
        settings = replace(settings, etcd=replace(settings.etcd, endpoints=(endpoint,)))
    file = state_dir / CONFIG_FILE
    file.write_text(dump(settings))

    def headrace(name: str, *arguments: str) -> Part:
        argv = [sys.executable, "-m", "headrace", *arguments, "--config", str(file)]
        return program(name, argv, log=_log_file(log_dir, name))

    async def until(ready: Callable[[], Awaitable[bool]]) -> None:
        await _first(supervisor.failure(), _poll(ready))

    await supervisor.add(headrace("control-plane", "controlplane"))
    await supervisor.add(headrace("envoy", "envoy"))
    for worker in range(settings.ext_proc.workers):
        await supervisor.add(headrace(f"filter-{worker}", "ext-proc", "--worker", str(worker)))
    await until(lambda: _serves(settings.control_plane.grpc))
    for address in settings.ext_proc.advertise:
        await until(lambda address=address: _serves(address))  # type: ignore[misc]
    await until(lambda: _flows(settings.gateway.address))
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


def _with_ports(settings: Settings, state_dir: Path) -> Settings:
    """Free ports in place of port 0, so that a part that is started again comes back at the same address."""
    ports = iter(free_ports(16))

    def fixed(address: str) -> str:
        return _fixed(address, ports)

    workers = settings.ext_proc.workers
    listen = fixed(settings.ext_proc.listen)
    advertise = (listen,) if workers == 1 else tuple(f"unix:{state_dir}/filter-{n}.sock" for n in range(workers))
    control_plane = replace(
        settings.control_plane,
        grpc=fixed(settings.control_plane.grpc),
        xds=fixed(settings.control_plane.xds),
        metrics=fixed(settings.control_plane.metrics),
    )
    return replace(
        settings,
        gateway=replace(settings.gateway, address=fixed(settings.gateway.address)),
        control_plane=control_plane,
        ext_proc=replace(
            settings.ext_proc,
            listen=listen,
            health=fixed(settings.ext_proc.health),
            metrics=fixed(settings.ext_proc.metrics),
            control_planes=(dialable(control_plane.grpc),),
            advertise=advertise,
        ),
        envoy=replace(settings.envoy, admin=fixed(settings.envoy.admin)),
    )


def _fixed(address: str, ports: Iterator[int]) -> str:
    if unix_path(address) is not None:
        return address
    host, port = split_address(address)
    return address if port else f"{_bracketed(host)}:{next(ports)}"


def dialable(address: str) -> str:
    """The address by which this machine reaches a port that may listen on all addresses."""
    if unix_path(address) is not None:
        return address
    host, port = split_address(address)
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{_bracketed(loopback)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _log_file(log_dir: Path | None, name: str) -> Path | None:
    return log_dir / f"{name}.log" if log_dir else None


async def _serves(address: str) -> bool:
    async with grpc.aio.insecure_channel(dialable(address)) as channel:
        try:
            check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]
            answer = await check(health_pb2.HealthCheckRequest(), timeout=2.0)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def _flows(gateway: str) -> bool:
    """Whether a request goes the whole way: Envoy, the filter and back."""
    async with httpx.AsyncClient(trust_env=False, timeout=2.0) as http:
        try:
            answer = await http.get(f"http://{dialable(gateway)}/v1/models")
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK


async def _poll(ready: Callable[[], Awaitable[bool]]) -> None:
    while not await ready():  # noqa: ASYNC110 - another process becomes ready, which sets no event here
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
