"""One filter worker as a process of its own."""

from __future__ import annotations

import os
import random
import socket
import time

from controlplane.config.settings import Settings
from controlplane.errors import ConfigurationError
from controlplane.http_serving import serving_http
from ext_proc.http2_transport import Http2Transport
from ext_proc.metrics import FilterMetrics
from ext_proc.redis_debts import RedisDebts
from ext_proc.redis_pins import RedisPins
from ext_proc.server import FilterServer
from ext_proc.transport import GrpcAioTransport
from headrace.allocation import set_for_bodies
from headrace.credentials import control_planes, filter_keys, redis_access
from headrace.one_machine import next_port
from headrace.probes import probes
from headrace.signals import stop_requested
from headrace.telemetry import new_metrics, telemetry


async def run_ext_proc(settings: Settings, worker: int) -> None:
    """Runs worker number `worker`, from 0, until SIGINT or SIGTERM.

    With several workers each has an address of its own in `ext_proc.advertise`; the first has the health and metrics
    ports as configured, and each further one the next ports.
    """
    set_for_bodies()
    metrics = new_metrics()
    with telemetry(settings.telemetry, "ext-proc"):
        async with stop_requested() as stop:
            sessions = _session_store(settings)
            server = FilterServer(
                _listen_address(settings, worker),
                control_planes(settings),
                f"{socket.gethostname()}:{os.getpid()}",
                FilterMetrics(metrics),
                random.random,
                health=next_port(settings.ext_proc.health, worker),
                max_body_bytes=settings.gateway.max_body_bytes,
                max_wait=settings.gateway.max_wait,
                session_store=sessions,
                store_place=settings.ext_proc.session_store.url or "",
                debts=RedisDebts(sessions.link, f"headrace:{settings.cluster}:rate:") if sessions else None,
                keys=filter_keys(settings.ext_proc),
                transport=Http2Transport if settings.ext_proc.transport == "h2" else GrpcAioTransport,
            )
            async with serving_http(
                next_port(settings.ext_proc.metrics, worker), probes(metrics, time.monotonic, server.unready)
            ):
                await server.run(stop)


def _session_store(settings: Settings) -> RedisPins | None:
    store = settings.ext_proc.session_store
    access = redis_access(store)
    if access is None:
        return None
    return RedisPins(access, f"headrace:{settings.cluster}:pin:", timeout=store.timeout)


def _listen_address(settings: Settings, worker: int) -> str:
    ext_proc = settings.ext_proc
    workers = ext_proc.workers or 1
    if worker >= workers:
        raise ConfigurationError([f"ext_proc.workers: there are {workers}, so none is number {worker}"])
    if workers == 1:
        return ext_proc.listen
    if worker >= len(ext_proc.advertise):
        raise ConfigurationError(
            [f"ext_proc.advertise: names {len(ext_proc.advertise)} addresses, none for worker {worker}"]
        )
    return ext_proc.advertise[worker]
