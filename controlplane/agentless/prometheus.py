"""Asks Prometheus, again and again, for the loads of nodes that report none."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import httpx

from controlplane.agentless.answers import SIGNALS, UnusableAnswerError, loads_of, values_by_label
from controlplane.config.settings import PrometheusSettings
from controlplane.messages import timestamp
from controlplane.model import NodeLoad, NodeSpec
from headrace_protos.headrace.v1 import fleet_pb2

_log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """`token` is shown as a bearer's; None shows none."""

    settings: PrometheusSettings
    url: str
    token: str | None = None


class PrometheusLoads:
    """`nodes` are those to find loads of. `asked` is told of each query, by its signal, whether it was answered.

    What one query does not answer is missing; what the others do is used. `clock` gives Unix seconds.
    """

    def __init__(
        self,
        access: PrometheusAccess,
        nodes: Callable[[], Iterable[NodeSpec]],
        clock: Callable[[], float],
        asked: Callable[[str, bool], None],
    ) -> None:
        self._access = access
        self._nodes = nodes
        self._clock = clock
        self._asked = asked
        self._failures = 0
        self._trouble = ""
        self._answered_at: float | None = None
        self.loads: Mapping[str, NodeLoad] = MappingProxyType({})

    async def run(self) -> None:
        """Until it is cancelled."""
        headers = {"authorization": f"Bearer {self._access.token}"} if self._access.token else {}
        ca_file = self._access.settings.ca_file
        async with httpx.AsyncClient(
            base_url=self._access.url.rstrip("/"),
            headers=headers,
            timeout=ANSWER_SECONDS,
            trust_env=False,
            verify=ssl.create_default_context(cafile=ca_file),
        ) as http:
            while True:
                await self._read(http)
                await asyncio.sleep(self._access.settings.every)

    def status(self) -> fleet_pb2.PrometheusStatus:
        return fleet_pb2.PrometheusStatus(
            url=self._access.url,
            nodes=len(self.loads),
            failures=self._failures,
            trouble=self._trouble,
            last_answer=None if self._answered_at is None else timestamp(self._answered_at),
        )

    async def _read(self, http: httpx.AsyncClient) -> None:
        at = self._clock()  # what is answered is at least as old as the question
        queries = {signal: query for signal in SIGNALS if (query := getattr(self._access.settings, signal)) is not None}
        results = await asyncio.gather(*(self._values(http, query) for query in queries.values()))
        answers = {}
        troubles = []
        for signal, (values, trouble) in zip(queries, results, strict=True):
            self._asked(signal, not trouble)
            if trouble:
                troubles.append(f"{signal}: {trouble}")
            else:
                answers[signal] = values
        try:
            self.loads = loads_of(answers, self._nodes(), at)
        except UnusableAnswerError as error:
            troubles.append(str(error))
        else:
            self._answered_at = at if answers else self._answered_at
        self._failures += len(troubles)
        self._tell("; ".join(troubles))

    async def _values(self, http: httpx.AsyncClient, query: str) -> tuple[Mapping[str, float], str]:
        """And why there are none."""
        settings = self._access.settings
        asked = {"query": query, "lookback_delta": f"{settings.oldest_sample:g}s", "timeout": f"{ANSWER_SECONDS:g}s"}
        try:
            answer = await http.post("/api/v1/query", data=asked)
            if answer.status_code in {401, 403, 404} or answer.is_server_error:
                return {}, f"HTTP status {answer.status_code}"
            return values_by_label(answer.content, settings.node_label), ""
        except httpx.HTTPError as error:
            return {}, f"{type(error).__name__}: {error}".rstrip(": ")
        except UnusableAnswerError as error:
            return {}, str(error)

    def _tell(self, trouble: str) -> None:
        if trouble and not self._trouble:
            _log.warning("loads cannot be read from Prometheus url=%s trouble=%s", self._access.url, trouble)
        elif self._trouble and not trouble:
            _log.info("loads are read from Prometheus again url=%s", self._access.url)
        self._trouble = trouble
