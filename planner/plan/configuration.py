"""A plan as configuration for `headrace up`: the context classes, and how to start each pool's engines as comments."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.policy.settings import Policy
from planner.plan.fleet import PlannedFleet, PlannedPool
from planner.simulation.fleet import with_classes

# vLLM's names for the formats of the catalogue; fp16 needs none.
_VLLM_FORMATS = {"fp8": " --quantization fp8", "int4": " --quantization awq_marlin"}
_NODE_FORMATS = {"fp16": "fp16", "fp8": "fp8", "int4": "int4-awq"}


def configuration(fleet: PlannedFleet, model: str) -> str:
    """YAML that `headrace config check` accepts."""
    engines = (line for pool in fleet.pools for line in _engines(pool, model))
    return "\n".join((*_head(fleet), *_classes(fleet), *engines)) + "\n"


def _head(fleet: PlannedFleet) -> Iterator[str]:
    yield f"# Planned by `headrace plan`: {fleet.instances} instances, {fleet.gpus} GPUs,"
    yield f"# {fleet.dollars_per_hour:,.2f} dollars an hour. Run it with: headrace up --config THIS_FILE"


def _classes(fleet: PlannedFleet) -> Iterator[str]:
    yield "policy:"
    yield "  context_classes:"
    for each in with_classes(Policy(), {pool.up_to for pool in fleet.pools}).context_classes:
        yield f"    - name: {each.name}"
        if each.max_context is not None:
            yield f"      max_context: {each.max_context}"


def _engines(pool: PlannedPool, model: str) -> Iterator[str]:
    engine = pool.size.engine
    kind = f"{pool.size.instances} x {engine.name}"
    yield ""
    yield f"# {kind}: {pool.tier}, requests of {pool.above + 1} to {pool.up_to} tokens, {pool.share:.1%} of all"
    yield f"#   vllm serve {model} --tensor-parallel-size {engine.gpus} --max-model-len {engine.max_context} \\"
    yield (
        f"#     --max-num-seqs {engine.max_sequences} --max-num-batched-tokens {pool.size.token_budget} "
        f"--long-prefill-token-threshold {engine.chunk_tokens}{_VLLM_FORMATS.get(engine.quantization, '')}"
    )
    yield f"#   headrace node --engine-url http://127.0.0.1:8000 --format {_NODE_FORMATS[engine.quantization]}" + (
        f" --max-sequences {engine.max_sequences}"
    )
