"""`calibration`: how right the estimates of models' tokens are, and what operators do to what is learned of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.errors import HeadraceError
from headrace import calibration_table
from headrace.commands.calling import call, print_json
from headrace.commands.options import (
    AsJson,
    ConfigFile,
    ControlPlaneAddress,
    TokenFile,
    check_writable,
    chosen_target,
)
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc, calibration_pb2, fleet_pb2_grpc
from planner import convergence
from planner.plots import check_plots

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="The model, as `headrace calibration` shows it.")]

calibration = typer.Typer(invoke_without_command=True, add_completion=False)


class NothingLearnedError(HeadraceError):
    """There is nothing to draw."""


@calibration.callback()
def show(
    context: typer.Context,
    model: Annotated[str, typer.Option("--model", "-m", help="Only of this model.")] = "",
    png_file: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Also draw how the error fell with the number of samples."),
    ] = None,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Show how right the estimates of models' tokens are, by model and category; reset or pin what is learned."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    if png_file is not None:
        check_plots()
        check_writable(png_file)
    target = chosen_target(config, control_plane, token_file)
    request = calibration_pb2.GetCalibrationRequest(model=model)
    answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.GetCalibration, request)
    if json:
        print_json(answer)
    else:
        calibration_table.show(answer.models)
    if png_file is not None:
        if not convergence.can_be_drawn(answer.models):
            raise NothingLearnedError(f"nothing is learned yet that could be drawn; {png_file} is not written")
        convergence.draw(answer.models, png_file)


@calibration.command()
def reset(
    model: ModelName,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Forget what all control planes have learned of a model's tokens; what is pinned stays in force."""
    target = chosen_target(config, control_plane, token_file)
    request = admin_pb2.ResetCalibrationRequest(model=model)
    answer = call(target, admin_pb2_grpc.AdminStub, lambda s: s.ResetCalibration, request)
    typer.echo(f"what was learned of {model} is forgotten (generation {answer.generation})")


@calibration.command()
def pin(
    model: ModelName,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Keep what a model's tokens are estimated by now, whatever is learned from here on; again to pin anew."""
    target = chosen_target(config, control_plane, token_file)
    request = admin_pb2.PinCalibrationRequest(model=model)
    answer = call(target, admin_pb2_grpc.AdminStub, lambda s: s.PinCalibration, request)
    kept = (
        f"what was learned for {', '.join(answer.categories)}, priors for all else" if answer.categories else "priors"
    )
    typer.echo(f"{model} is pinned to {kept}")


@calibration.command()
def unpin(
    model: ModelName,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Let the estimates of a pinned model's tokens follow again what is learned."""
    target = chosen_target(config, control_plane, token_file)
    request = admin_pb2.UnpinCalibrationRequest(model=model)
    call(target, admin_pb2_grpc.AdminStub, lambda s: s.UnpinCalibration, request)
    typer.echo(f"the estimates of {model} follow what is learned")


def _refuse_options(context: typer.Context) -> None:
    """Those of the table, which a sub-command would not obey. The environment may set some of them; it obeys that."""
    sources = filter(None, map(context.get_parameter_source, context.params))
    if any(source.name == "COMMANDLINE" for source in sources):
        raise typer.BadParameter(f"write options after `{context.invoked_subcommand}`, not before it", ctx=context)
