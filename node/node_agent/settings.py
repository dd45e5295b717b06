"""What an agent is told by its flags. Nothing here reads files, the environment or the network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.model import CapacityType


@dataclass(frozen=True, slots=True)
class ModelFlag:
    """A model to register: `id` is the fleet's name for it, `served_name` the engine's."""

    id: str
    served_name: str


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent for one engine.

    `engine_url` is where the agent reaches the engine, `advertise` (host:port) where Envoy does: by default the host
    and port of the URL. `models` limits what is registered; empty means all that the engine lists. `format`,
    `max_context`, `max_sequences` and `kv_cache_tokens` go for every model, over what the engine says; None leaves it
    to the engine. `drain_grace` is how long requests may go on after SIGTERM, in seconds; `describe_seconds` is how
    often the engine is asked whether it still serves the same. With `ask_for_usage` the agent sends the engine one
    request for one token, to see whether its streams tell token counts.
    """

    engine_url: str
    control_planes: tuple[ControlPlaneTarget, ...]
    node_id: str
    advertise: str | None = None
    models: tuple[ModelFlag, ...] = ()
    format: str | None = None
    max_context: int | None = None
    max_sequences: int | None = None
    kv_cache_tokens: int | None = None
    hardware_class: str | None = None
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    labels: Mapping[str, str] = field(default_factory=dict)
    drain_grace: float = 30.0
    describe_seconds: float = 5.0
    ask_for_usage: bool = True

    @property
    def advertised(self) -> str:
        return self.advertise or host_and_port(self.engine_url)


def parse_model(text: str) -> ModelFlag:
    """`id` or `id=served name`. Raises ValueError."""
    model_id, _, served_name = text.partition("=")
    if not model_id or (("=" in text) and not served_name):
        raise ValueError(f"{text!r} is no model; write ID, or ID=NAME where the engine calls it by another name")
    return ModelFlag(model_id, served_name or model_id)


def parse_label(text: str) -> tuple[str, str]:
    """`key=value`. Raises ValueError."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r} is no label; write KEY=VALUE")
    return key, value


def check_engine_url(url: str) -> str:
    """Raises ValueError when the agent could not ask the engine under this URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{url!r} is no URL of an engine; write one such as http://127.0.0.1:8000")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"{url!r} must end after the port, without a path such as /v1")
    if "@" in parts.netloc:
        raise ValueError("the engine's URL must not hold a user or password")
    return url


def host_and_port(url: str) -> str:
    """The `host:port` of a URL, with its scheme's port when it names none."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def default_node_id(hostname: str, engine_url: str) -> str:
    """A name that stays the same over restarts: the machine's name and the engine's port."""
    port = host_and_port(engine_url).rpartition(":")[2]
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"{hostname}-{port}")
