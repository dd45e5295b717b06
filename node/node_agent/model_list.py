"""Reading `/v1/models`, which every OpenAI-compatible engine has and each fills in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_agent.engine import FoundModel
from node_agent.formats import format_of_name
from node_agent.http import EngineHttp

MODELS_PATH = "/v1/models"


async def list_models(http: EngineHttp) -> tuple[Mapping[str, Any], ...]:
    """The entries that have a name; none when the engine has no such list."""
    entries = (await http.ask(MODELS_PATH)).json().get("data")
    if not isinstance(entries, list):
        return ()
    return tuple(entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))


def whole(value: object) -> int | None:
    """A positive whole number, also when it is written as text; None for anything else."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None
    return number if number > 0 else None


def models_by_root(entries: tuple[Mapping[str, Any], ...]) -> tuple[FoundModel, ...]:
    """The models of vLLM and SGLang, which list each name of one model with the same `root`, and adapters with a
    `parent`. An adapter is a model of its own; what it does not say it has from its parent."""
    grouped: dict[object, list[Mapping[str, Any]]] = {}
    for entry in entries:
        key = (entry["id"],) if entry.get("parent") else (entry.get("root") or entry["id"], None)
        grouped.setdefault(key, []).append(entry)
    by_name = {entry["id"]: entry for entry in entries}
    models = []
    for group in grouped.values():
        first = group[0]
        base = by_name.get(first.get("parent") or "", first)
        names = tuple(entry["id"] for entry in group)
        models.append(
            FoundModel(
                served_name=names[0],
                aliases=names[1:],
                format=format_of_name(str(base.get("root") or "")) or format_of_name(base["id"]),
                max_context=whole(first.get("max_model_len")) or whole(base.get("max_model_len")),
            )
        )
    return tuple(models)
