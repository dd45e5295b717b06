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
from results import Result, Times, kept
from rounds import BUSIEST, CONTROL_TOLERANCE
from scenarios import GAP_MS, TOKENS
from targets import TARGETS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

_HEAD = """\
# Benchmarks

`make bench ARGS=compare` measured this and wrote it.
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
        DOCUMENT.write_text("\n".join(_lines(results)) + "\n")
        plot.draw(results, DOCUMENT.with_suffix(".png"))
        print(f"wrote {DOCUMENT}")


def _lines(results: Mapping[str, Result]) -> Iterator[str]:
    yield _HEAD
    for paragraph in _PARAGRAPHS:
        yield fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) + "\n"
    for line in sorted({f"{result.machine}; {result.day}" for result in results.values()}):
        yield f"Measured on: {line}."
    yield "\n![Throughput beside plain Envoy, and latency added to it](benchmarks.png)\n"
    yield "## Targets\n"
    yield from _targets(results)
    yield "\n## Most requests in a second\n"
    yield "In brackets, times plain Envoy.\n"
    yield from _throughput({name: each for name, each in results.items() if each.scenario.rate is None})
    for name, result in results.items():
        if result.scenario.rate is not None:
            yield f"\n## {name}: milliseconds, and how many more than with plain Envoy\n"
            yield from _latency(result)
    for name, result in results.items():
        yield f"\n## {name}: CPU seconds for 1000 requests, and memory\n"
        yield from _cost(result)
    yield "\n## Rounds\n"
    for name, result in results.items():
        yield f"- {name}: {result.note}."


def _targets(results: Mapping[str, Result]) -> Iterator[str]:
    yield from _table(["", "target", "measured", ""], [])
    for target in TARGETS:
        measured = target.value(results)
        sign = "≥" if target.at_least else "≤"
        said = "not measured" if measured is None else f"{measured:.2f}{target.unit}"
        verdict = "" if measured is None else "met" if target.met(measured) else "missed"
        yield f"| {target.what} | {sign} {target.bound:g}{target.unit} | {said} | {verdict} |"


def _throughput(results: Mapping[str, Result]) -> Iterator[str]:
    rows = []
    for name in _present(results.values()):
        cells = []
        for result in results.values():
            rate, ratio = result.rate(name), result.ratio(name, PLAIN_ENVOY.name)
            said = "" if rate is None else f"{rate:,.0f}"
            beside = "" if ratio is None or name == PLAIN_ENVOY.name else f" ({ratio:.3g})"
            cells.append(said + beside + _failures(result.failed(name)))
        rows.append([name, *cells])
    yield from _table(["", *(name.removeprefix("most, ") for name in results)], rows)


def _latency(result: Result) -> Iterator[str]:
    times: dict[Times, str] = {"whole": "answer"}
    if result.scenario.streamed:
        times = {"first": "first token", "gaps": "between tokens"}
    head = [f"{said} P{100 * share:g}" for said in times.values() for share in QUANTILES]
    rows = []
    for name in _present([result]):
        cells = []
        for each in times:
            for share in QUANTILES:
                value, added = result.time(name, each, share), result.added(name, PLAIN_ENVOY.name, each, share)
                beside = "" if added is None or name in {PLAIN_ENVOY.name, DIRECT.name} else f" ({added:+.2f})"
                cells.append("" if value is None else f"{value:.2f}{beside}")
        rows.append([name + _failures(result.failed(name)), *cells])
    yield from _table(["", *head], rows)


def _cost(result: Result) -> Iterator[str]:
    rows = []
    for name in _present([result]):
        parts = []
        for role in result.roles(name):
            seconds = result.median(name, lambda measured, role=role: measured.cpu[role])  # type: ignore[misc]
            megabytes = result.median(name, lambda measured, role=role: measured.memory[role])  # type: ignore[misc]
            parts.append(f"{role} {seconds:.3f} s, {megabytes:.0f} MB")
        if parts:
            whole = result.median(name, lambda m: sum(s for role, s in m.cpu.items() if role != "engines"))
            rows.append([name, f"{whole:.3f} s", "; ".join(parts)])
    yield from _table(["", "all of it", "by process"], rows)


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
