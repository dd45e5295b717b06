"""`override`: lets operators put a load of their choice in the place of a pool's measured one, for drills."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from controlplane.config.quantities import parse_duration
from headrace import tables
from headrace.commands.calling import call, print_json
from headrace.commands.options import AsJson, ConfigFile, ControlPlaneAddress, TokenFile, chosen_target
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc

_LARGEST_COUNT = 2**31 - 1  # what the message holds

PoolName = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name, as `headrace pools` shows it.")]

override = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Override what a pool's load is taken for, for drills."
)


@override.command("set")
def set_override(
    pool: PoolName,
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long it lasts, such as 90s or 10m; at most 24h.")
    ],
    waiting: Annotated[
        int | None, typer.Option(min=0, max=_LARGEST_COUNT, help="Requests waiting, summed over the pool's nodes.")
    ] = None,
    running: Annotated[
        int | None, typer.Option(min=0, max=_LARGEST_COUNT, help="Sequences running, summed over the pool's nodes.")
    ] = None,
    kv_cache_use: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the KV cache in use, 0 to 1.")
    ] = None,
    sla_violation_rate: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of requests that miss their targets, 0 to 1.")
    ] = None,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Have all control planes and filters take the pool's load for this; what is not given stays as it is measured."""
    target = chosen_target(config, control_plane, token_file)
    request = admin_pb2.SetOverrideRequest(
        pool=pool,
        waiting=waiting,
        running=running,
        kv_cache_use=kv_cache_use,
        sla_violation_rate=sla_violation_rate,
        duration_seconds=_seconds(duration),
    )
    answer = call(target, admin_pb2_grpc.AdminStub, lambda s: s.SetOverride, request)
    until = answer.override.expires_at.ToDatetime()
    typer.echo(f"the load of {pool} is overridden until {until:%Y-%m-%d %H:%M:%S} UTC")


@override.command("list")
def list_overrides(
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """List the overrides in force, with the time that each has left."""
    target = chosen_target(config, control_plane, token_file)
    answer = call(target, admin_pb2_grpc.AdminStub, lambda s: s.ListOverrides, admin_pb2.ListOverridesRequest())
    if json:
        print_json(answer)
    else:
        tables.show_overrides(answer.overrides)


@override.command("clear")
def clear_override(
    pool: PoolName,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """End a pool's override before its time: its measured load counts again."""
    target = chosen_target(config, control_plane, token_file)
    request = admin_pb2.ClearOverrideRequest(pool=pool)
    call(target, admin_pb2_grpc.AdminStub, lambda s: s.ClearOverride, request)
    typer.echo(f"the load of {pool} is the measured one again")


def _seconds(duration: str) -> float:
    try:
        return cast(float, parse_duration(duration))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None
