"""What every process shows over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from controlplane.http_serving import serving_http
from headrace.probes import probes
from headrace.telemetry import new_metrics


async def get(address: str, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as http:
        return await http.get(path, headers=headers)


async def test_a_process_lives_before_it_is_ready_and_says_why_it_is_not() -> None:
    """Facts row: surface."""
    trouble: str | None = "there is no table yet"
    async with serving_http("127.0.0.1:0", probes(new_metrics(), time.monotonic, lambda: trouble)) as address:
        for path in ("/livez", "/healthz"):
            answer = await get(address, path)
            assert (answer.status_code, answer.text) == (200, "ok\n")
        answer = await get(address, "/readyz")
        assert (answer.status_code, answer.text) == (503, "there is no table yet\n")
        trouble = None
        answer = await get(address, "/readyz")
        assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_what_never_is_ready_has_no_answer_to_it() -> None:
    async with serving_http("127.0.0.1:0", probes(new_metrics(), time.monotonic)) as address:
        assert (await get(address, "/readyz")).status_code == 404
        assert (await get(address, "/livez")).status_code == 200


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_metrics_are_shown_as_prometheus_asks_for_them(encoding: str) -> None:
    """Facts row: surface."""
    registry = new_metrics()
    Counter("headrace_test", "A test.", registry=registry).inc()
    async with serving_http("127.0.0.1:0", probes(registry, time.monotonic)) as address:
        headers = {"accept-encoding": encoding}
        answer = await get(address, "/metrics", **headers)
        assert "headrace_test_total 1.0" in answer.text
        assert "process_resident_memory_bytes" in answer.text
        assert answer.headers.get("content-encoding", "identity") == encoding
        assert answer.headers["content-type"].startswith("text/plain; version=")
        open_metrics = await get(address, "/metrics", **headers, accept="application/openmetrics-text; version=1.0.0")
        assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
        assert open_metrics.text.endswith("# EOF\n")


async def test_metrics_are_written_once_a_second_however_many_ask() -> None:
    registry, now = CollectorRegistry(), 100.0
    written = Written()
    registry.register(written)
    written.times = 0
    async with serving_http("127.0.0.1:0", probes(registry, lambda: now)) as address:
        await asyncio.gather(*(get(address, "/metrics") for _ in range(20)))
        assert written.times == 1
        now += 1.1
        await get(address, "/metrics")
        assert written.times == 2


class Written(Collector):
    times = 0

    def collect(self) -> Iterable[Metric]:
        self.times += 1
        return ()
