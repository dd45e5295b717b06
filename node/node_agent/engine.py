"""What an engine is to the agent: something that describes itself, tells its load and is healthy or not.

The adapters (`vllm`, `sglang`, `llamacpp`, `openai_compatible`) know how one kind of engine is asked. They keep what
the engine says and leave out what it does not say; `description` fills that from flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from controlplane.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model as the engine tells of it, in the units of `controlplane.model.ServedModel`; None is unknown.

    `served_name` and `aliases` are the names that the engine answers to.
    """

    served_name: str
    aliases: tuple[str, ...] = ()
    format: str | None = None
    max_context: int | None = None
    max_sequences: int | None = None
    kv_cache_tokens: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.served_name, *self.aliases)


@dataclass(frozen=True, slots=True)
class Found:
    """All that an engine tells of itself. `health_path` is empty when only a connection shows that it lives.

    `instance` as `engine_instance` in `controlplane.model.NodeSpec`.
    """

    engine: str
    version: str = ""
    models: tuple[FoundModel, ...] = ()
    health_path: str = "/health"
    instance: str = ""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The load as an engine tells it, in the units of `controlplane.model.NodeLoad`; None is unknown."""

    running: int | None = None
    waiting: int | None = None
    kv_cache_use: float | None = None
    tokens_per_second: float | None = None
    ttft_seconds: float | None = None


class Engine(Protocol):
    """One engine that can be asked. All raise EngineUnavailableError when it gives no answer."""

    async def describe(self) -> Found: ...

    async def load(self) -> EngineLoad: ...

    async def healthy(self) -> bool: ...


class EngineUnavailableError(UnavailableError):
    """The engine gives no usable answer. `timed_out` when it is slow or hangs rather than gone."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        self.timed_out = timed_out
        super().__init__(message)
