"""What each process shows over HTTP: whether it lives, whether it is ready, and its metrics."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controlplane.http_serving import Answer, Handler, Question

# However many ask for metrics, they are written no more often than this.
FRESH_SECONDS = 1.0

_OPEN_METRICS = "application/openmetrics-text"
_END = b"# EOF\n"  # of all metrics, in that form


def probes(
    registry: CollectorRegistry, clock: Callable[[], float], unready: Callable[[], str | None] | None = None
) -> Mapping[str, Handler]:
    """`unready` says why the process is not ready, None when it is; without it there is no /readyz. `clock` is
    monotonic, in seconds.

    /livez and its old name /healthz answer as long as the event loop turns, whatever others do: a process that is
    started anew for its neighbours' sake only loses what it knows.
    """

    async def live(_: Question) -> Answer:
        return Answer(200, b"ok\n")

    routes = {"/healthz": live, "/livez": live, "/metrics": _Metrics(registry, clock).answer}
    return routes if unready is None else routes | {"/readyz": _readiness(unready)}


def _readiness(unready: Callable[[], str | None]) -> Handler:
    async def ready(_: Question) -> Answer:
        trouble = unready()
        return Answer(200, b"ok\n") if trouble is None else Answer(503, f"{trouble}\n".encode())

    return ready


class _Metrics:
    """Writes them at most once in FRESH_SECONDS for each form, family by family, and lets other work go on in between.

    Another thread would not: it and the event loop would wait for each other's turns at the interpreter.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock
        self._writing = asyncio.Lock()
        self._written: dict[tuple[bool, bool], tuple[float, Answer]] = {}

    async def answer(self, question: Question) -> Answer:
        is_open = _OPEN_METRICS in question.headers.get("accept", "")
        packed = "gzip" in question.headers.get("accept-encoding", "")
        async with self._writing:
            at, answer = self._written.get((is_open, packed), (0.0, None))
            if answer is None or self._clock() - at > FRESH_SECONDS:
                at, answer = self._clock(), await self._write(is_open, packed)
                self._written[is_open, packed] = at, answer
            return answer

    async def _write(self, is_open: bool, packed: bool) -> Answer:
        encode, content_type = choose_encoder(f"{_OPEN_METRICS}; version=1.0.0" if is_open else "")
        families = []
        for family in self._registry.collect():
            families.append(encode(_Family(family)).removesuffix(_END))
            await asyncio.sleep(0)
        body = b"".join(families) + (_END if is_open else b"")
        if not packed:
            return Answer(200, body, content_type)
        return Answer(200, gzip.compress(body, 1), content_type, (("content-encoding", "gzip"),))


class _Family(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
