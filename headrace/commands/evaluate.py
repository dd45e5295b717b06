"""`headrace evaluate`: what quantization changes in the answers of a running fleet, measured."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Annotated

import grpc
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from controlplane.config.addresses import dialable
from controlplane.config.load import load_policy
from controlplane.errors import HeadraceError
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.model import FormatTier, HttpRequest
from controlplane.policy.settings import Policy
from headrace.commands.calling import CALL_SECONDS, told
from headrace.commands.options import (
    ConfigFile,
    ControlPlaneAddress,
    RequestHeaders,
    TokenFile,
    check_writable,
    chosen_targets,
    read_headers,
    read_settings,
    read_text,
)
from headrace.signals import run_until_stopped
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc, decision_pb2, fleet_pb2, fleet_pb2_grpc
from planner.plots import check_plots
from planner.quality import plot, terminal
from planner.quality.advice import advise
from planner.quality.answers import Answer
from planner.quality.asking import Mode
from planner.quality.comparing import separate
from planner.quality.judging import Explain, Judged, Sending, SetAside, judge
from planner.quality.measured import Failure, Measured
from planner.quality.measuring import Plan, answers, measure
from planner.quality.prompts import PROMPTS
from planner.quality.report import Ending, Evaluation, document
from planner.quality.sample import Sample, choose, read_samples
from planner.quality.sending import open_gateway
from planner.quality.summary import summarise


class NothingComparedError(HeadraceError):
    """Not one request could be sent, or was answered by both tiers."""


@dataclass(slots=True)
class _SoFar:
    """What is known when an evaluation ends, at its end or before."""

    policy: Policy = field(default_factory=Policy)
    pools: Sequence[fleet_pb2.Pool] = ()
    judged: list[Judged] = field(default_factory=list)
    aside: list[SetAside] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    ending: Ending = Ending.EARLY


def evaluate(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE or -]", help="Requests, one JSON body a line; without it, prompts of our own."),
    ] = None,
    gateway: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the gateway is; without it, where the configuration says.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Evaluate this model, whatever the requests name.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many of the requests, chosen by chance.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="At most so many tokens in each answer.")] = 128,
    repetitions: Annotated[
        int, typer.Option(min=1, max=20, help="How often each request is sent as it asks itself.")
    ] = 1,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="How many requests are measured at once.")] = 1,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for an answer.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the order, of greedy requests, and of intervals.")] = 1,
    header: RequestHeaders = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")] = None,
    png_file: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write the report as a picture.")
    ] = None,
    keep_texts: Annotated[bool, typer.Option("--keep-texts", help="Put prompts and answers into the JSON.")] = False,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
) -> None:
    """Send requests to both format tiers of a running fleet, and report how their answers differ.

    Each goes to the full tier twice and to the quantized one once: greedily, and as it asks itself. That is about five
    answers a request, one after the other: minutes to hours. Ctrl-C ends it early, with a report of what was done.
    """
    if keep_texts and json_file is None:
        raise typer.BadParameter("texts are kept in the JSON only; add --json FILE", param_hint="--keep-texts")
    if png_file is not None:
        check_plots()
    for written in (json_file, png_file):
        if written is not None:
            check_writable(written)
    settings = read_settings(config)
    target = chosen_targets(settings, [control_plane] if control_plane else [], token_file)[0]
    url = gateway or f"http://{dialable(settings.gateway.address)}"
    samples = choose(_read(file), limit, seed)
    headers = read_headers(header)
    plan = Plan(repetitions, concurrency, keep_texts)
    so_far = _SoFar()

    async def run() -> None:
        async with target.open() as channel:
            so_far.policy = await _policy_in_force(channel, target)
            so_far.pools = await _pools(channel, target)
            sending = Sending(max_tokens, seed, so_far.policy, model, _only_model(so_far.pools), headers)
            so_far.judged, so_far.aside = await judge(samples, sending, _explaining(channel, target))
        if not so_far.judged:
            return
        with _progress(answers(so_far.judged, plan)) as advance:
            async with open_gateway(url, sending, timeout) as opened:

                async def send(judged: Judged, mode: Mode, tier: FormatTier) -> Answer | Failure:
                    answer = await opened.send(judged, mode, tier)
                    advance()
                    return answer

                whole = await measure(so_far.judged, send, plan, so_far.measured.append)
                so_far.ending = Ending.WHOLE if whole else Ending.GIVEN_UP

    try:
        asyncio.run(run_until_stopped(run()))
    except grpc.aio.AioRpcError as error:
        raise told(error, target) from None
    if not so_far.judged:
        raise NothingComparedError(why_none(so_far.aside))
    evaluation = Evaluation(
        settings={
            "requests": str(file) if file else "built in",
            "model": model,
            "gateway": url,
            "max_tokens": max_tokens,
            "repetitions": repetitions,
            "concurrency": concurrency,
            "seed": seed,
        },
        date=datetime.now().astimezone().date(),
        formats=_formats(so_far.pools, {each.model for each in so_far.judged}),
        asked=len(samples),
        ending=so_far.ending,
        measured=tuple(so_far.measured),
        aside=tuple(so_far.aside),
        summary=(summary := summarise(so_far.measured, Random(seed))),
        separations=separate(summary),
        advice=advise(summary, [each.judged for each in so_far.measured], so_far.policy),
    )
    terminal.show(_console(), evaluation)
    _write(evaluation, json_file, png_file)
    if not summary.overall.gaps:
        raise NothingComparedError("no request was answered by both tiers, so that there is nothing to report")


def _read(file: Path | None) -> Sequence[Sample]:
    """Where requests come from."""
    if file is None:
        return PROMPTS
    if str(file) == "-":
        return read_samples(sys.stdin.buffer.read().decode(errors="replace"), "standard input")
    return read_samples(read_text(file), str(file))


def _write(evaluation: Evaluation, json_file: Path | None, png_file: Path | None) -> None:
    if json_file is not None:
        text = json.dumps(document(evaluation), indent=1, ensure_ascii=False)
        json_file.write_text(text + "\n", encoding="utf-8", errors="replace")
    if png_file is not None and evaluation.summary.overall.gaps:
        plot.draw(evaluation, png_file)


async def _policy_in_force(channel: grpc.aio.Channel, target: ControlPlaneTarget) -> Policy:
    answer: admin_pb2.GetPolicyResponse = await admin_pb2_grpc.AdminStub(channel).GetPolicy(
        admin_pb2.GetPolicyRequest(), metadata=target.metadata, timeout=CALL_SECONDS
    )
    return load_policy(answer.policy_yaml, "policy in force")


async def _pools(channel: grpc.aio.Channel, target: ControlPlaneTarget) -> Sequence[fleet_pb2.Pool]:
    answer: fleet_pb2.ListPoolsResponse = await fleet_pb2_grpc.FleetStub(channel).ListPools(
        fleet_pb2.ListPoolsRequest(), metadata=target.metadata, timeout=CALL_SECONDS
    )
    return answer.pools


def _only_model(pools: Sequence[fleet_pb2.Pool]) -> str | None:
    """The model that both tiers serve, if it is just one."""
    tiers: dict[str, set[str]] = {}
    for pool in pools:
        tiers.setdefault(pool.model, set()).add(pool.tier)
    found = [name for name, served_in in tiers.items() if served_in == set(FormatTier)] or list(tiers)
    return found[0] if len(found) == 1 else None


def _formats(pools: Sequence[fleet_pb2.Pool], models: Collection[str]) -> dict[FormatTier, tuple[str, ...]]:
    """Those that the models are loaded in, by tier."""
    return {
        tier: tuple(
            dict.fromkeys(name for pool in pools if pool.tier == tier and pool.model in models for name in pool.formats)
        )
        for tier in FormatTier
    }


def why_none(aside: Sequence[SetAside]) -> str:
    """Why no request can be sent, and what to do."""
    reasons = Counter(each.reason for each in aside)
    if not reasons:
        return "ended before a request was sent"
    if len(reasons) == 1:
        return f"none of the {len(aside)} requests can be evaluated: {next(iter(reasons))}"
    told = "".join(f"\n  {count} of them: {reason}" for reason, count in reasons.most_common())
    return f"none of the {len(aside)} requests can be evaluated:{told}"


def _explaining(channel: grpc.aio.Channel, target: ControlPlaneTarget) -> Explain:
    async def explain(request: HttpRequest) -> decision_pb2.Decision:
        message = fleet_pb2.ExplainRequest(
            method=request.method, path=request.path, headers=request.headers, body=request.body
        )
        answer: fleet_pb2.ExplainResponse = await fleet_pb2_grpc.FleetStub(channel).Explain(
            message, metadata=target.metadata, timeout=CALL_SECONDS
        )
        return answer.decision

    return explain


class _Left(ProgressColumn):
    """How long it will take, by what the answers took so far."""

    def render(self, task: Task) -> Text:
        return Text(time_left(task.elapsed or 0.0, task.completed, task.total or 0.0), style="progress.remaining")


def time_left(elapsed: float, done: float, total: float) -> str:
    """In words, after `elapsed` seconds."""
    if not done:
        return "waiting for the first answer"
    seconds = elapsed / done * (total - done)
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


@contextmanager
def _progress(answers: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error; what it yields moves it on by one answer."""
    columns = (TextColumn("Answers"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=answers)
        yield lambda: progress.advance(task)


def _console() -> Console:
    """At full width where the output is not a terminal, so that a pipe gets every word."""
    console = Console()
    if not console.is_terminal:
        console.width = 400
    return console
