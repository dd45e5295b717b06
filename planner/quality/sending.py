"""Sends requests through a gateway, and checks of each answer which tier gave it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from controlplane.model import FormatTier
from planner.quality.answers import Answer, AnswerError, AnswerReader
from planner.quality.asking import Mode, without_logprobs
from planner.quality.judging import Judged, Sending
from planner.quality.measured import Failure, FailureKind

_FORMAT = "x-headrace-format"
_DECISION = "x-headrace-decision"
# What engines answer when they give no log-probabilities, or not of such a request.
_INVALID = frozenset({400, 422, 501})
# What may be gone the next moment: no room, an engine that closed the connection, no ready node.
_PASSING = frozenset({429, 502, 503})
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Refused:
    """An error's status and code, and for how many seconds to wait before another try."""

    status: int
    code: str
    pause: float


@dataclass(frozen=True, slots=True)
class Gateway:
    """Usable within `open_gateway`. `timeout` is in seconds, for a whole answer."""

    http: httpx.AsyncClient
    sending: Sending
    timeout: float

    async def send(self, judged: Judged, mode: Mode, tier: FormatTier) -> Answer | Failure:
        """The tier's answer; without log-probabilities where the engine gives none. A refusal that may pass is tried
        once more."""
        body, headers = self.sending.request(judged.sample, mode, judged.model, tier)
        try:
            async with asyncio.timeout(self.timeout):
                found = await self._send_once(judged.sample.path, body, headers, tier)
                if isinstance(found, _Refused) and found.status in _PASSING:
                    await asyncio.sleep(found.pause)
                    found = await self._send_once(judged.sample.path, body, headers, tier)
                if isinstance(found, _Refused) and found.status in _INVALID:
                    found = await self._send_once(judged.sample.path, without_logprobs(body), headers, tier)
                if isinstance(found, _Refused):
                    return Failure(FailureKind.REFUSED, tier, f"status {found.status}{found.code}")
                return found
        except (TimeoutError, httpx.TimeoutException):
            return Failure(FailureKind.TIMED_OUT, tier, f"after {self.timeout:g} s")
        except httpx.ConnectError:
            return Failure(FailureKind.UNREACHABLE, tier, str(self.http.base_url))
        except (httpx.HTTPError, AnswerError) as error:
            return Failure(FailureKind.BROKEN_OFF, tier, str(error))

    async def _send_once(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], tier: FormatTier
    ) -> Answer | Failure | _Refused:
        """Raises what httpx raises, and AnswerError."""
        sent = time.monotonic()
        async with self.http.stream("POST", path, json=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                code = _error_code(await response.aread())
                return _Refused(response.status_code, code, _pause(response.headers))
            answered = response.headers.get(_FORMAT)
            if answered != tier:
                return Failure(FailureKind.OTHER_TIER, tier, _reasons(response.headers))
            reader = AnswerReader()
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    reader.take(line.removeprefix("data:").strip(), time.monotonic() - sent)
            return reader.finish(time.monotonic() - sent)


@asynccontextmanager
async def open_gateway(url: str, sending: Sending, timeout: float) -> AsyncIterator[Gateway]:
    """The client of the gateway at `url`; nothing is sent yet."""
    async with httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=False) as http:
        yield Gateway(http, sending, timeout)


def _error_code(body: bytes) -> str:
    """The error's code, never its message: that may quote the request."""
    try:
        error = json.loads(body)["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""
    return f" {code}" if code else ""


def _pause(headers: httpx.Headers) -> float:
    try:
        return min(max(float(headers["retry-after"]), 0.0), _LONGEST_PAUSE_SECONDS)
    except (KeyError, ValueError):  # there is none, or it is a date
        return _PAUSE_SECONDS


def _reasons(headers: httpx.Headers) -> str:
    try:
        return ", ".join(json.loads(headers[_DECISION])["reasons"])
    except (ValueError, TypeError, KeyError):
        return "by no decision of the filter's"
