"""What each process shows over HTTP: whether it lives, whether it is ready, and its metrics."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from controlplane.http_serving import Answer, Handler, Question


def probes(registry: CollectorRegistry, unready: Callable[[], str | None] | None = None) -> Mapping[str, Handler]:
    """`unready` says why the process is not ready, None when it is; without it there is no /readyz.

    /livez and its old name /healthz answer as long as the event loop turns, whatever others do: a process that is
    started anew for its neighbours' sake only loses what it knows.
    """

    async def live(_: Question) -> Answer:
        return Answer(200, b"ok\n")

    async def metrics(question: Question) -> Answer:
        encode, content_type = choose_encoder(question.headers.get("accept", ""))
        body = await asyncio.to_thread(encode, registry)
        if "gzip" not in question.headers.get("accept-encoding", ""):
            return Answer(200, body, content_type)
        return Answer(
            200, await asyncio.to_thread(gzip.compress, body, 1), content_type, (("content-encoding", "gzip"),)
        )

    routes = {"/healthz": live, "/livez": live, "/metrics": metrics}
    return routes if unready is None else routes | {"/readyz": _readiness(unready)}


def _readiness(unready: Callable[[], str | None]) -> Handler:
    async def ready(_: Question) -> Answer:
        trouble = unready()
        return Answer(200, b"ok\n") if trouble is None else Answer(503, f"{trouble}\n".encode())

    return ready
