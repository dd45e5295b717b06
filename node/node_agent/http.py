"""Asking an engine over HTTP, with a bound on time and size. Foreign errors end here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from node_agent.engine import EngineUnavailableError

# An engine's API process that has not answered by then is as good as hung for routing.
ANSWER_SECONDS = 2.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> dict[str, Any]:
        """The JSON object of a 200 answer; empty for any other answer or text."""
        value = self._value()
        return value if isinstance(value, dict) else {}

    def json_list(self) -> list[dict[str, Any]]:
        """The objects in the JSON array of a 200 answer; empty for any other answer or text."""
        value = self._value()
        return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

    def _value(self) -> object:
        try:
            return json.loads(self.body) if self.ok else None
        except (ValueError, RecursionError):
            return None


class EngineHttp:
    """Requests to one engine. `timeout` in seconds bounds each GET as a whole."""

    def __init__(
        self, url: str, *, timeout: float = ANSWER_SECONDS, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        # The engine is a neighbour: proxies that the environment names are not for it.
        self._client = httpx.AsyncClient(base_url=self.url, timeout=timeout, trust_env=False, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def ask(self, path: str) -> Answer:
        """As `get`, and a server error is no answer: an engine in trouble says nothing about what it is."""
        answer = await self.get(path)
        if answer.status >= 500 and answer.status != 501:  # 501 is llama.cpp's word for a part that is switched off
            raise EngineUnavailableError(f"{self.url}{path} answered {answer.status}")
        return answer

    async def get(self, path: str) -> Answer:
        """Raises EngineUnavailableError when no whole answer comes in time."""
        return await self._whole_answer(self._client.build_request("GET", path), path, self._timeout)

    async def post(self, path: str, body: Mapping[str, Any], timeout: float) -> Answer:
        """As `get`, within `timeout` seconds; of a stream the answer is all of it."""
        request = self._client.build_request("POST", path, json=body, timeout=timeout)
        return await self._whole_answer(request, path, timeout)

    async def _whole_answer(self, request: httpx.Request, path: str, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds), self._answering(request) as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise EngineUnavailableError(
                            f"{self.url}{path} answered more than {MAX_ANSWER_BYTES >> 20} MiB; is this an engine?"
                        )
                return Answer(response.status_code, bytes(body))
        except (TimeoutError, httpx.TimeoutException):
            raise EngineUnavailableError(
                f"{self.url}{path} gave no answer within {seconds:g} s", timed_out=True
            ) from None
        except httpx.HTTPError as error:
            raise EngineUnavailableError(f"{self.url}{path}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def _answering(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()
