"""From what an engine tells, what flags say and what the machine has to the description that is registered. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.errors import ConfigurationError
from controlplane.model import NodeSpec, ServedModel
from node_agent.engine import Found, FoundModel
from node_agent.settings import AgentSettings, ModelFlag
from node_agent.vram import Gpus


def describe_node(settings: AgentSettings, found: Found, gpus: Gpus, address: str) -> NodeSpec:
    """Flags win over what was found. `address` is `ip:port`.

    Raises ConfigurationError with everything that neither tells, each with the flag that would.
    """
    wanted = settings.models or tuple(ModelFlag(m.served_name, m.served_name) for m in found.models)
    faults: list[str] = []
    models: list[ServedModel] = []
    for flag in wanted:
        model = _found_model(flag, found)
        if model is None:
            faults.append(_not_served(flag, found))
        else:
            faults += _missing(settings, flag, model)
            models.append(_served(settings, flag, model))
    if not wanted:
        faults.append("the engine lists no models; give --model ID for each that it serves")
    if faults:
        raise ConfigurationError(faults)
    return NodeSpec(
        node_id=settings.node_id,
        address=address,
        models=tuple(models),
        engine=found.engine,
        engine_version=found.version,
        gpu_model=gpus.name,
        gpu_count=gpus.count,
        vram_bytes=gpus.memory,
        hardware_class=settings.hardware_class or gpus.hardware_class,
        capacity_type=settings.capacity_type,
        health_path=found.health_path,
        labels=dict(settings.labels),
        engine_instance=found.instance,
    )


def _found_model(flag: ModelFlag, found: Found) -> FoundModel | None:
    """What is known of a model; nothing but its name when the engine has no list of models."""
    if not found.models:
        return FoundModel(flag.served_name)
    return next((model for model in found.models if flag.served_name in model.names), None)


def _not_served(flag: ModelFlag, found: Found) -> str:
    names = ", ".join(name for model in found.models for name in model.names)
    right = f"{flag.id}={found.models[0].served_name if len(found.models) == 1 else 'NAME'}"
    return f"--model {flag.id}: the engine knows no {flag.served_name!r}, it serves {names}; write --model {right}"


def _missing(settings: AgentSettings, flag: ModelFlag, model: FoundModel) -> Iterator[str]:
    who = f"model {flag.served_name}: the engine does not tell"
    if not (settings.format or model.format):
        yield f"{who} its quantization format; give --format, such as --format bf16 or --format int4-awq"
    if not (settings.max_context or model.max_context):
        yield f"{who} its longest context in tokens; give --max-context, such as --max-context 8192"
    if not (settings.max_sequences or model.max_sequences):
        yield (
            f"{who} how many sequences it runs at once; give --max-sequences "
            "(of vLLM the number of --max-num-seqs, of TGI of --max-concurrent-requests)"
        )


def _served(settings: AgentSettings, flag: ModelFlag, model: FoundModel) -> ServedModel:
    return ServedModel(
        id=flag.id,
        served_name=flag.served_name,
        aliases=tuple(name for name in model.names if name not in {flag.id, flag.served_name}),
        format=settings.format or model.format or "",
        max_context=settings.max_context or model.max_context or 0,
        max_sequences=settings.max_sequences or model.max_sequences or 0,
        kv_cache_tokens=settings.kv_cache_tokens or model.kv_cache_tokens or 0,
    )
