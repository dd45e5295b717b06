"""What a control plane shows, and lets operators change: `nodes`, `pools`, `status`, `drain`, `policy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace import status_lines, tables
from headrace.commands.calling import RefusedError, call, print_json
from headrace.commands.options import (
    AsJson,
    ConfigFile,
    ControlPlaneAddress,
    TokenFile,
    chosen_target,
    read_text,
)
from headrace_protos.headrace.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)

ModelName = Annotated[str, typer.Option("--model", "-m", help="Only of this model.")]

policy = typer.Typer(no_args_is_help=True, add_completion=False, help="Show and replace the policy of a running fleet.")


def nodes(
    model: ModelName = "",
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """List the nodes: what each serves, in which format, its load, and whether it gets traffic."""
    target = chosen_target(config, control_plane, token_file)
    answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.ListNodes, fleet_pb2.ListNodesRequest(model=model))
    if json:
        print_json(answer)
    else:
        tables.show_nodes(answer.nodes)


def pools(
    model: ModelName = "",
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """List the pools that the nodes form, with their room and load."""
    target = chosen_target(config, control_plane, token_file)
    answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.ListPools, fleet_pb2.ListPoolsRequest(model=model))
    if json:
        print_json(answer)
    else:
        tables.show_pools(answer.pools)


def status(
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Show the state of a control plane, its Envoys and filters, and what an operator should look at."""
    target = chosen_target(config, control_plane, token_file)
    answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.GetStatus, fleet_pb2.GetStatusRequest())
    if json:
        print_json(answer)
    else:
        status_lines.show_status(answer)


def drain(
    node_id: Annotated[str, typer.Argument(help="The node's id, as `headrace nodes` shows it.")],
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Take a node out of routing; what runs on it finishes."""
    target = chosen_target(config, control_plane, token_file)
    request = registry_pb2.DrainRequest(node_id=node_id)
    call(target, registry_pb2_grpc.RegistryStub, lambda s: s.Drain, request)
    typer.echo(f"{node_id} is draining")


@policy.command("get")
def get_policy(
    config: ConfigFile = None, control_plane: ControlPlaneAddress = None, token_file: TokenFile = None
) -> None:
    """Print the policy in force, as YAML."""
    target = chosen_target(config, control_plane, token_file)
    answer = call(target, admin_pb2_grpc.AdminStub, lambda s: s.GetPolicy, admin_pb2.GetPolicyRequest())
    typer.echo(f"# {'set by an operator' if answer.overridden else 'from the configuration file'}")
    typer.echo(answer.policy_yaml, nl=False)


@policy.command("set")
def set_policy(
    file: Annotated[Path, typer.Argument(help="YAML of the shape of the configuration's `policy` section.")],
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Replace the policy on all control planes and filters. One with any fault is refused whole."""
    target = chosen_target(config, control_plane, token_file)
    request = admin_pb2.SetPolicyRequest(policy_yaml=read_text(file))
    try:
        call(target, admin_pb2_grpc.AdminStub, lambda s: s.SetPolicy, request)
    except RefusedError as error:  # the control plane knows no file, and calls it a policy
        lines = (
            f"{file}:{line.removeprefix('policy:')}" if line.startswith("policy:") else line
            for line in str(error).splitlines()
        )
        raise RefusedError("\n".join(lines)) from None
    typer.echo("the policy is set")


@policy.command("reset")
def reset_policy(
    config: ConfigFile = None, control_plane: ControlPlaneAddress = None, token_file: TokenFile = None
) -> None:
    """Go back to the policy of the configuration file."""
    target = chosen_target(config, control_plane, token_file)
    call(target, admin_pb2_grpc.AdminStub, lambda s: s.ResetPolicy, admin_pb2.ResetPolicyRequest())
    typer.echo("the configured policy is in force again")
