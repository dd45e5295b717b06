"""`headrace node`: the agent of one engine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, TypeVar

import typer
import uvloop

from controlplane.config.addresses import split_address
from controlplane.http_serving import serving_http
from controlplane.model import CapacityType
from headrace.commands.options import ConfigFile, TokenFile, chosen_targets, read_settings
from headrace.probes import probes
from headrace.telemetry import new_metrics, telemetry
from node_agent.agent import run_until_signalled
from node_agent.metrics import AgentMetrics
from node_agent.settings import AgentSettings, check_engine_url, default_node_id, parse_label, parse_model
from node_agent.vram import read_gpus

T = TypeVar("T")


def node(
    engine_url: Annotated[str, typer.Option(metavar="URL", help="Where the engine answers, as http://127.0.0.1:8000.")],
    config: ConfigFile = None,
    control_plane: Annotated[
        list[str] | None,
        typer.Option("--control-plane", "-s", metavar="HOST:PORT", help="A control plane's gRPC address; repeatable."),
    ] = None,
    token_file: TokenFile = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where Envoy reaches the engine; by default as in the URL.")
    ] = None,
    node_id: Annotated[str | None, typer.Option(help="The node's name; by default HOSTNAME-PORT.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="ID[=NAME]", help="A model to register, and the engine's name for it; repeatable."),
    ] = None,
    quantization: Annotated[
        str | None, typer.Option("--format", help="Quantization format, such as fp16, int4-awq or gguf-q4.")
    ] = None,
    max_context: Annotated[int | None, typer.Option(min=1, help="Most tokens of one sequence.")] = None,
    max_sequences: Annotated[int | None, typer.Option(min=1, help="Sequences that run at once.")] = None,
    kv_cache_tokens: Annotated[int | None, typer.Option(min=0, help="Size of the KV cache in tokens.")] = None,
    hardware_class: Annotated[str | None, typer.Option(help="Such as a100-sxm4; by default from the GPU.")] = None,
    capacity_type: Annotated[
        CapacityType, typer.Option(help="Whether the node may be taken away.")
    ] = CapacityType.ON_DEMAND,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Free label; repeatable.")] = None,
    drain_grace: Annotated[float, typer.Option(min=0, help="Seconds that requests may go on after SIGTERM.")] = 30.0,
    ask_for_usage: Annotated[
        bool,
        typer.Option(help="Sends the engine a request for one token, to see whether its streams tell token counts."),
    ] = True,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serves the agent's metrics there; without it, nowhere.")
    ] = None,
) -> None:
    """Run the agent of one engine: it finds out what the engine serves, registers it, and reports its load."""
    settings = read_settings(config)
    agent = AgentSettings(
        engine_url=_checked(check_engine_url, engine_url, "--engine-url"),
        control_planes=chosen_targets(settings, control_plane or (), token_file),
        node_id=node_id or default_node_id(socket.gethostname(), engine_url),
        advertise=advertise,
        models=tuple(_checked(parse_model, text, "--model") for text in model or ()),
        format=quantization,
        max_context=max_context,
        max_sequences=max_sequences,
        kv_cache_tokens=kv_cache_tokens,
        hardware_class=hardware_class,
        capacity_type=capacity_type,
        labels=dict(_checked(parse_label, text, "--label") for text in label or ()),
        drain_grace=drain_grace,
        ask_for_usage=ask_for_usage,
    )
    if metrics is not None:
        _checked(split_address, metrics, "--metrics")
    gpus = read_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
    registry = new_metrics()

    async def run() -> None:
        async with nullcontext() if metrics is None else serving_http(metrics, probes(registry, time.monotonic)):
            await run_until_signalled(agent, gpus, AgentMetrics(registry, time.time))

    with telemetry(settings.telemetry, "node"):
        uvloop.run(run())


def _checked(parse: Callable[[str], T], text: str, option: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
