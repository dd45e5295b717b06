"""`headrace up` and the parts that it consists of: `controlplane`, `ext-proc`, `envoy` and `node`."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, TypeVar

import typer
import uvloop

from controlplane.config.addresses import split_address
from controlplane.http_serving import serving_http
from controlplane.model import CapacityType
from headrace.commands.options import ConfigFile, TokenFile, chosen_targets, read_settings
from headrace.probes import probes
from headrace.run_controlplane import run_controlplane
from headrace.run_envoy import envoy_argv
from headrace.run_ext_proc import run_ext_proc
from headrace.signals import run_until_stopped
from headrace.telemetry import new_metrics, telemetry
from headrace.up import running_system, write_ready_file
from node_agent.agent import run_until_signalled
from node_agent.metrics import AgentMetrics
from node_agent.settings import AgentSettings, check_engine_url, default_node_id, parse_label, parse_model
from node_agent.vram import read_gpus

T = TypeVar("T")

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR", help="Keeps etcd's data and the ledger over runs; without it they go at the end."
    ),
]
LogDir = Annotated[
    Path | None,
    typer.Option("--log-dir", metavar="DIR", help="Logs of the parts go there, not to this terminal."),
]


def up(
    config: ConfigFile = None,
    ready_file: Annotated[
        Path | None,
        typer.Option("--ready-file", metavar="FILE", help="Gets the addresses as JSON once traffic can flow."),
    ] = None,
    state_dir: StateDir = None,
    log_dir: LogDir = None,
) -> None:
    """Run the whole system on this machine: etcd unless one is configured, control plane, filter and Envoy."""
    settings = read_settings(config)
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)  # of a former run, whose addresses are not these

    async def serve() -> None:
        async with running_system(settings, state_dir=state_dir, log_dir=log_dir) as system:
            addresses = system.addresses
            typer.echo(
                f"Headrace is up: requests to http://{addresses.gateway}, "
                f"nodes and operators to {addresses.grpc}. Ctrl-C ends it.",
                err=True,
            )
            if ready_file is not None:
                write_ready_file(ready_file, addresses)
            await asyncio.Event().wait()

    with telemetry(settings.telemetry, "up"):
        uvloop.run(run_until_stopped(serve()))


def controlplane(config: ConfigFile = None) -> None:
    """Run one control plane: it registers nodes, forms pools and tells Envoys and filters."""
    uvloop.run(run_controlplane(read_settings(config)))


def ext_proc(
    config: ConfigFile = None,
    worker: Annotated[int, typer.Option(min=0, help="Which of `ext_proc.workers` this is, from 0.")] = 0,
) -> None:
    """Run one filter worker: it decides about each request by the routing table of a control plane."""
    uvloop.run(run_ext_proc(read_settings(config), worker))


def envoy(config: ConfigFile = None) -> None:
    """Run Envoy, configured by the control plane over xDS."""
    argv = envoy_argv(read_settings(config))
    os.execv(argv[0], argv)  # noqa: S606 - the process becomes Envoy, so that signals and exit status are its own


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
