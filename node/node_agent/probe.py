"""One look at an engine's health and load, as it is reported. A hung engine is an unhealthy one, never an error."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

from controlplane.model import NodeLoad
from node_agent.engine import Engine, EngineLoad, EngineUnavailableError

_log = logging.getLogger(__name__)

# A busy engine may be slow to answer now and then. Taking it out of routing for one slow answer would throw its load
# on the others, which would be slow next. One that refuses or says that it is unwell is believed at once.
TIMEOUTS_BEFORE_UNHEALTHY = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """`load` is what is reported; `running` is None when the engine does not tell, which is not the same as idle."""

    load: NodeLoad
    running: int | None


UNKNOWN = Reading(NodeLoad(running=0, waiting=0, healthy=False), None)


class Probe:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last = UNKNOWN
        self._timeouts = 0

    async def read(self) -> Reading:
        try:
            healthy = await self._engine.healthy()
            load = await self._engine.load()
        except EngineUnavailableError as error:
            self._last = self._without_answer(error)
            return self._last
        self._timeouts = 0
        if healthy and not self._last.load.healthy:
            _log.info("engine healthy")
        elif self._last.load.healthy and not healthy:
            _log.warning("engine unhealthy by its own health check")
        self._last = _reading(load, healthy=healthy)
        return self._last

    def _without_answer(self, error: EngineUnavailableError) -> Reading:
        self._timeouts += 1
        if error.timed_out and self._timeouts < TIMEOUTS_BEFORE_UNHEALTHY:
            return self._last
        if self._last.load.healthy:
            _log.warning("engine unhealthy: %s", error)
        return Reading(replace(self._last.load, healthy=False, tokens_per_second=None, ttft_seconds=None), None)


def _reading(load: EngineLoad, *, healthy: bool) -> Reading:
    return Reading(
        NodeLoad(
            running=max(load.running or 0, 0),
            waiting=max(load.waiting or 0, 0),
            kv_cache_use=None if load.kv_cache_use is None else min(max(load.kv_cache_use, 0.0), 1.0),
            tokens_per_second=_usable(load.tokens_per_second),
            ttft_seconds=_usable(load.ttft_seconds),
            healthy=healthy,
            uncounted=load.running is None,
        ),
        None if load.running is None else load.running + (load.waiting or 0),
    )


def _usable(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
