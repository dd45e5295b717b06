"""Writes docs/benchmarks.md and its picture, of what was measured last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

import plot
from contestants import CONTESTANTS
from loading import QUANTILES
from peers.direct import DIRECT
from peers.plain_envoy import PLAIN_ENVOY
from results import Go, Result, Run, Times, kept
from rounds import BUSIEST, CONTROL_TOLERANCE
from scenarios import GAP_MS, TOKENS
from targets import TARGETS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

_HEAD = """\
# Benchmarks

`make bench ARGS=compare` measured this and wrote it. `make bench ARGS='compare --help'` says how to measure a part.
"""

_SEVERAL = """\
Not all was measured at one time. A number in square brackets says in which of these goes: at a heading or the head of a
column, whatever beneath does not name another. Numbers are compared only with those of the same go.
"""

_PARAGRAPHS = (
    "Everything, the load generator and the engines too, shares one machine. So what a contestant does in a second is "
    "less than on a machine of its own, and how it compares with plain Envoy in the same round says more. The engines "
    "(`bench/native/engine.c`) answer at once with a chat completion of about 600 bytes, or stream "
    f"{TOKENS} tokens {GAP_MS:g} ms apart. The load generator (`bench/native/load.c`) sends many different prompts of "
    "four kinds of tasks and temperatures. In the mixed set 80% have 2 KB, 18% 50 KB and 2% 500 KB.",
    "Every contestant stands before the same two engines. Headrace is what `headrace up` starts, with its defaults: "
    "policy, ledger and feedback are on, sessions are kept in memory. Where nothing else is said its filter runs on "
    "`ext_proc.transport: h2`. One engine is registered as bf16 and one as int4-awq, so each request is judged and "
    "led by what it asks. The other routers only balance; both are cache-aware by default.",
    "The contestants take turns, and each round begins with another one. A turn is repeated if other programs or "
    f"machines took more than {BUSIEST:.0%} of the processors. The engine alone is measured before and after each "
    f"round, and where that is more than {CONTROL_TOLERANCE:.0%} from the usual the round does not count. Numbers are "
    "medians over the rounds; two contestants are compared within each round. At a fixed rate, requests are due at the "
    "times of a Poisson process, and what they take counts from when they were due: what a slow answer holds up is in "
    "it.",
)


def write() -> None:
    results = kept()
    if results:
        DOCUMENT.write_text("\n".join(lines(results)) + "\n")
        plot.draw(results, DOCUMENT.with_suffix(".png"))
        print(f"wrote {DOCUMENT}")


class _Goes:
    """All goes that something is told of, the first one first."""

    def __init__(self, results: Iterable[Result]) -> None:
        self.all = sorted({run.go for result in results for run in result.runs}, key=lambda go: go.began)

    def mark(self, go: Go, head: Go | None = None) -> str:
        """What is put beside something measured in this go, beneath a head that names another; nothing if there is but
        one go."""
        return "" if go == head or len(self.all) == 1 else f" [{self.all.index(go) + 1}]"


def lines(results: Mapping[str, Result]) -> Iterator[str]:
    goes = _Goes(results.values())
    yield _HEAD
    for paragraph in _PARAGRAPHS:
        yield fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) + "\n"
    yield from _measured(goes)
    yield "\n![Throughput beside plain Envoy, and latency added to it](benchmarks.png)\n"
    yield "## Targets\n"
    yield from _targets(results, goes)
    yield "\n## Most requests in a second\n"
    yield "In brackets, times plain Envoy.\n"
    yield from _throughput({name: each for name, each in results.items() if each.scenario.rate is None}, goes)
    for name, result in results.items():
        if result.scenario.rate is not None:
            head = f"{name}: milliseconds, and how many more than with plain Envoy"
            yield f"\n## {head}{goes.mark(result.runs[0].go)}\n"
            yield from _latency(result, goes)
    for name, result in results.items():
        yield f"\n## {name}: CPU seconds for 1000 requests, and memory{goes.mark(result.runs[0].go)}\n"
        yield from _cost(result, goes)
    yield "\n## Rounds\n"
    for name, result in results.items():
        for run in result.runs:
            yield f"- {name}{goes.mark(run.go)}: {run.note}."


def _measured(goes: _Goes) -> Iterator[str]:
    if len(goes.all) == 1:
        yield fill(f"Measured {_said(goes.all[0])}.", 120)
        return
    yield _SEVERAL
    for number, go in enumerate(goes.all, 1):
        yield f"{number}. {_said(go)}"


def _said(go: Go) -> str:
    commit = f" of commit {go.commit}" if go.commit else ""
    return f"{go.began} UTC{commit} on {go.machine}"


def _targets(results: Mapping[str, Result], goes: _Goes) -> Iterator[str]:
    yield from _table(["", "target", "measured", ""], [])
    for target in TARGETS:
        run = target.run(results)
        measured = target.value(run) if run else None
        sign = "≥" if target.at_least else "≤"
        said = f"{measured:.2f}{target.unit}{goes.mark(run.go)}" if run and measured is not None else "not measured"
        verdict = "" if measured is None else "met" if target.met(measured) else "missed"
        yield f"| {target.what} | {sign} {target.bound:g}{target.unit} | {said} | {verdict} |"


def _throughput(results: Mapping[str, Result], goes: _Goes) -> Iterator[str]:
    def cell(name: str, result: Result) -> str:
        if (run := result.run_of(name)) is None:
            return ""
        ratio = run.ratio(name, PLAIN_ENVOY.name)
        beside = "" if ratio is None or name == PLAIN_ENVOY.name else f" ({ratio:.3g})"
        return f"{run.rate(name):,.0f}{beside}{_failures(run.failed(name))}{goes.mark(run.go, result.runs[0].go)}"

    head = [f"{name.removeprefix('most, ')}{goes.mark(result.runs[0].go)}" for name, result in results.items()]
    rows = [[name, *(cell(name, result) for result in results.values())] for name in _present(results.values())]
    yield from _table(["", *head], rows)


def _latency(result: Result, goes: _Goes) -> Iterator[str]:
    times: dict[Times, str] = {"whole": "answer"}
    if result.scenario.streamed:
        times = {"first": "first token", "gaps": "between tokens"}

    def cell(run: Run, name: str, each: Times, share: float) -> str:
        added = run.added(name, PLAIN_ENVOY.name, each, share)
        beside = "" if added is None or name in {PLAIN_ENVOY.name, DIRECT.name} else f" ({added:+.2f})"
        return f"{run.time(name, each, share):.2f}{beside}"

    head = [f"{said} P{100 * share:g}" for said in times.values() for share in QUANTILES]
    rows = [
        [
            name + _failures(run.failed(name)) + goes.mark(run.go, result.runs[0].go),
            *(cell(run, name, each, share) for each in times for share in QUANTILES),
        ]
        for name, run in _rows(result)
    ]
    yield from _table(["", *head], rows)


def _cost(result: Result, goes: _Goes) -> Iterator[str]:
    rows = []
    for name, run in _rows(result):
        parts = []
        for role in run.roles(name):
            seconds = run.median(name, lambda measured, role=role: measured.cpu[role])  # type: ignore[misc]
            megabytes = run.median(name, lambda measured, role=role: measured.memory[role])  # type: ignore[misc]
            parts.append(f"{role} {seconds:.3f} s, {megabytes:.0f} MB")
        if parts:
            whole = run.median(name, lambda m: sum(s for role, s in m.cpu.items() if role != "engines"))
            rows.append([name + goes.mark(run.go, result.runs[0].go), f"{whole:.3f} s", "; ".join(parts)])
    yield from _table(["", "all of it", "by process"], rows)


def _rows(result: Result) -> Iterator[tuple[str, Run]]:
    """Each contestant with the last run that it took part in."""
    for name in _present([result]):
        if run := result.run_of(name):
            yield name, run


def _present(results: Iterable[Result]) -> list[str]:
    found = {name for result in results for name in result.contestants}
    return [each.name for each in CONTESTANTS if each.name in found]


def _failures(count: int) -> str:
    return f" **{count} failed**" if count else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
